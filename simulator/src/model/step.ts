// The transitions of the simulator. The reference is tests/simulator/step.py; test/golden.test.ts compares them.

import { comeBack, killLeader, lag, replicate, sameLog } from "./brokers";
import * as consumer from "./consumer";
import { readable } from "./counts";
import * as producer from "./producer";
import { IN_FLIGHT, logAt, RECORDS, type Settings, type State, type Step } from "./state";

const STEPS: Record<string, (s: Settings, t: State) => Step> = {
  send: producer.send,
  deliver: producer.deliver,
  "lose-request": producer.loseRequest,
  replicate,
  "deliver-ack": producer.deliverAck,
  "lose-ack": producer.loseAck,
  "commit-transaction": producer.commitTransaction,
  "time-out": producer.timeOut,
  "replace-producer": producer.replaceProducer,
  "zombie-produces": producer.zombieProduces,
  "kill-leader": killLeader,
  poll: consumer.poll,
  process: consumer.process,
  commit: consumer.commit,
  "kill-consumer": consumer.killConsumer,
  "pause-consumer": consumer.pauseConsumer,
  "zombie-consumer": consumer.zombieConsumer,
};

/** The actions that are possible in a state, in the order of the page's buttons. */
export function actions(s: Settings, t: State): string[] {
  const ids = t.brokers.map((_, i) => i + 1);
  const isAlive = (b: number) => t.brokers[b - 1]!.alive;
  const followers = ids.filter((b) => isAlive(b) && t.isr.includes(b) && b !== t.leader);
  const absent = ids.filter((b) => !isAlive(b) || (t.leader > 0 && !t.isr.includes(b)));
  const has = (...phases: string[]) => t.requests.some((r) => phases.includes(r.phase));
  const { phase, position } = t.consumer;
  const led = t.leader > 0;
  const endsTransaction = led && t.isr.length >= s.min_insync;
  const [first, second] = s.commit === "before" ? ["commit", "process"] : ["process", "commit"];
  const possible: [string, boolean][] = [
    ["send", led && t.outcomes.length < RECORDS && t.requests.length < IN_FLIGHT],
    ["deliver", led && has("request")],
    ["lose-request", led && has("request")],
    ["replicate", led && followers.some((b) => !sameLog(logAt(t, b), logAt(t, t.leader)))],
    ["deliver-ack", has("reply")],
    ["lose-ack", has("reply", "stored")],
    ["commit-transaction", endsTransaction && t.transaction.length > 0 && !t.requests.length],
    ["time-out", (endsTransaction || !s.transactions) && t.requests.length > 0 && s.acks !== "0"],
    ["replace-producer", (s.transactions ? endsTransaction : led) && t.requests.length + t.transaction.length > 0],
    ["zombie-produces", led && t.zombie_requests.length > 0],
    ["kill-leader", led],
    ...followers.map((b): [string, boolean] => [`lag-${b}`, led]),
    ...absent.map((b): [string, boolean] => [`return-${b}`, true]),
    ["poll", led && phase === "idle" && readable(s, t).some(([offset]) => offset >= position)],
    [first!, phase === "held"],
    [second!, phase === "processed" || phase === "committed"],
    ["kill-consumer", phase !== "idle"],
    ["pause-consumer", phase !== "idle" && t.zombie === null],
    ["zombie-consumer", t.zombie !== null],
  ];
  return possible.filter(([, isPossible]) => isPossible).map(([name]) => name);
}

/** The state after a possible action. Throws for an impossible one. */
export function step(s: Settings, t: State, action: string): Step {
  if (!actions(s, t).includes(action)) throw new Error(`${action} is not possible in this state`);
  const [, name, broker] = /^(lag|return)-(\d)$/.exec(action) ?? [];
  if (name) return (name === "lag" ? lag : comeBack)(s, t, Number(broker));
  return STEPS[action]!(s, t);
}
