// What a reader gets, and what is lost, duplicated or out of order. The reference is tests/simulator/counts.py.

import { logOf, type Entry, type Settings, type State } from "./state";

export interface Counts {
  readonly sent: number;
  readonly delivered: number;
  readonly pending: number;
  readonly lost: number;
  readonly reported: number;
  readonly duplicated: number;
  readonly out_of_order: number;
}

/** How the transaction of the record at this offset ends. */
export function markerOf(log: readonly Entry[], offset: number): "commit" | "abort" | "open" {
  const pid = log[offset]!.pid;
  for (const e of log.slice(offset)) if (e.pid === pid && e.kind !== "record") return e.kind;
  return "open";
}

/** The records that the consumer can read, as [offset, value]: below the high watermark and, in transactions, committed. */
export function readable(s: Settings, t: State): [number, number][] {
  const log = logOf(t).slice(0, t.high_watermark);
  const records: [number, number][] = [];
  for (const [offset, e] of log.entries()) {
    if (e.kind !== "record") continue;
    const end = s.transactions ? markerOf(log, offset) : "commit";
    if (end === "open") break;
    if (end === "commit") records.push([offset, e.value]);
  }
  return records;
}

/** The records that the consumer still has to process, if nothing fails any more. */
export function future(s: Settings, t: State): number[] {
  const log = logOf(t);
  const c = t.consumer;
  const hasEffect = c.phase === "processed" && s.commit !== "transaction";
  const inMemory = c.held && !hasEffect ? [c.held] : [];
  const unread = [...log.entries()]
    .filter(
      ([offset, e]) =>
        offset >= c.position && e.kind === "record" && !(s.transactions && markerOf(log, offset) === "abort"),
    )
    .map(([, e]) => e.value);
  return [...inMemory, ...unread];
}

/** How many values come after a greater one, repetitions left out. */
export function inversions(values: readonly number[]): number {
  let highest = 0;
  let count = 0;
  for (const v of new Set(values)) {
    if (v < highest) count += 1;
    highest = Math.max(highest, v);
  }
  return count;
}

/** The counter in a state. A record is lost if it has no effect and nothing can give it one. */
export function counts(s: Settings, t: State): Counts {
  const effects = [...t.output, ...future(s, t)];
  const open = new Set([...t.requests, ...t.zombie_requests].map((r) => r.value).concat(t.transaction));
  if (t.zombie && s.commit === "before" && t.zombie.phase === "committed") open.add(t.zombie.held);
  const sent = t.outcomes.map((_, i) => i + 1);
  const lost = sent.filter((v) => !effects.includes(v) && !open.has(v));
  const delivered = new Set(t.output).size;
  return {
    sent: sent.length,
    delivered,
    pending: sent.length - delivered - lost.length,
    lost: lost.length,
    reported: lost.filter((v) => t.outcomes[v - 1] === "failed").length,
    duplicated: effects.length - new Set(effects).size,
    out_of_order: inversions(effects),
  };
}
