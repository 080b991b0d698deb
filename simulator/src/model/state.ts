// Settings and states of the simulator. The reference is tests/simulator/state.py; test/golden.test.ts compares them.

export const RECORDS = 9;
export const IN_FLIGHT = 5;

export type Acks = "0" | "1" | "all";
export type Commit = "before" | "after" | "transaction";

export interface Settings {
  readonly acks: Acks;
  readonly retries: boolean;
  readonly idempotence: boolean;
  readonly transactions: boolean;
  readonly replicas: number;
  readonly min_insync: number;
  readonly unclean: boolean;
  readonly commit: Commit;
}

export interface Entry {
  readonly kind: "record" | "commit" | "abort";
  readonly value: number;
  readonly pid: number;
  readonly epoch: number;
  readonly seq: number;
  readonly leader_epoch: number;
}

export interface Request {
  readonly value: number;
  readonly pid: number;
  readonly epoch: number;
  readonly seq: number;
  readonly phase: "request" | "stored" | "reply";
  readonly offset: number;
}

export interface Producer {
  readonly instance: number;
  readonly pid: number;
  readonly epoch: number;
  readonly next_seq: number;
}

export interface Broker {
  readonly alive: boolean;
  readonly log: readonly Entry[];
}

export interface Consumer {
  readonly instance: number;
  readonly position: number;
  readonly held: number;
  readonly phase: "idle" | "held" | "committed" | "processed";
}

export type Outcome = "waiting" | "unconfirmed" | "acknowledged" | "failed";

export interface State {
  readonly outcomes: readonly Outcome[];
  readonly producer: Producer;
  readonly requests: readonly Request[];
  readonly zombie_requests: readonly Request[];
  readonly transaction: readonly number[];
  readonly brokers: readonly Broker[];
  readonly leader: number;
  readonly leader_epoch: number;
  readonly isr: readonly number[];
  readonly elr: readonly number[];
  readonly high_watermark: number;
  readonly committed: number;
  readonly consumer: Consumer;
  readonly zombie: Consumer | null;
  readonly output: readonly number[];
}

/** The result of an action: the next state, a key of sentences.ts, and the record or broker that the sentence names. */
export interface Step {
  readonly state: State;
  readonly reason: string;
  readonly number: number;
}

/** The reason why Kafka refuses these settings, as a key of sentences.ts, or null. */
export function refusal(s: Settings): string | null {
  if (s.idempotence && s.acks !== "all") return "refused.idempotence-acks";
  if (s.idempotence && !s.retries) return "refused.idempotence-retries";
  if (s.transactions && !s.idempotence) return "refused.transactions";
  if (s.min_insync > s.replicas) return "refused.min-insync";
  return null;
}

/** The state before the first record. */
export function initial(s: Settings): State {
  const first = s.idempotence ? 0 : -1;
  return {
    outcomes: [],
    producer: { instance: 1, pid: s.idempotence ? 1 : -1, epoch: first, next_seq: first },
    requests: [],
    zombie_requests: [],
    transaction: [],
    brokers: Array.from({ length: s.replicas }, () => ({ alive: true, log: [] })),
    leader: 1,
    leader_epoch: 1,
    isr: Array.from({ length: s.replicas }, (_, i) => i + 1),
    elr: [],
    high_watermark: 0,
    committed: 0,
    consumer: { instance: 1, position: 0, held: 0, phase: "idle" },
    zombie: null,
    output: [],
  };
}

/** The partition's log: the leader's, or without a leader that of the first replica that may become one. */
export function logOf(t: State): readonly Entry[] {
  return logAt(t, t.leader || [...t.isr, ...t.elr][0]!);
}

export function logAt(t: State, broker: number): readonly Entry[] {
  return t.brokers[broker - 1]!.log;
}

export function sameEntry(a: Entry, b: Entry): boolean {
  return (
    a.kind === b.kind &&
    a.value === b.value &&
    a.pid === b.pid &&
    a.epoch === b.epoch &&
    a.seq === b.seq &&
    a.leader_epoch === b.leader_epoch
  );
}
