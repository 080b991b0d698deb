// The transitions of the consumer, and of its previous instance. The reference is tests/simulator/consumer.py.

import { readable } from "./counts";
import type { Consumer, Settings, State, Step } from "./state";

export function poll(s: Settings, t: State): Step {
  const [offset, value] = readable(s, t).find(([o]) => o >= t.consumer.position)!;
  const consumer: Consumer = { ...t.consumer, position: offset + 1, held: value, phase: "held" };
  return { state: { ...t, consumer }, reason: "poll", number: value };
}

export function process(s: Settings, t: State): Step {
  const c = t.consumer;
  const reason = `process.${s.commit}`;
  const consumer: Consumer =
    s.commit === "before" ? { ...c, held: 0, phase: "idle" } : { ...c, phase: "processed" };
  const output = s.commit === "transaction" ? t.output : [...t.output, c.held];
  return { state: { ...t, consumer, output }, reason, number: c.held };
}

export function commit(s: Settings, t: State): Step {
  const c = t.consumer;
  const consumer: Consumer =
    s.commit === "before" ? { ...c, phase: "committed" } : { ...c, held: 0, phase: "idle" };
  const output = s.commit === "transaction" ? [...t.output, c.held] : t.output;
  return { state: { ...t, consumer, committed: c.position, output }, reason: `commit.${s.commit}`, number: c.held };
}

function nextConsumer(t: State): Consumer {
  const instance = Math.max(t.consumer.instance, t.zombie?.instance ?? 0) + 1;
  return { instance, position: t.committed, held: 0, phase: "idle" };
}

export function killConsumer(s: Settings, t: State): Step {
  const reason = `kill-consumer.${s.commit}-${t.consumer.phase}`;
  return { state: { ...t, consumer: nextConsumer(t) }, reason, number: t.consumer.held };
}

export function pauseConsumer(_: Settings, t: State): Step {
  const state = { ...t, consumer: nextConsumer(t), zombie: t.consumer };
  return { state, reason: "pause-consumer", number: t.consumer.held };
}

export function zombieConsumer(s: Settings, t: State): Step {
  const z = t.zombie!;
  const hasEffect =
    (s.commit === "before" && z.phase === "committed") || (s.commit === "after" && z.phase === "held");
  const output = hasEffect ? [...t.output, z.held] : t.output;
  return { state: { ...t, zombie: null, output }, reason: `zombie-consumer.${s.commit}-${z.phase}`, number: z.held };
}
