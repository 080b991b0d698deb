// The transitions of the replicas. The reference is tests/simulator/brokers.py.

import { breakConnection } from "./requests";
import { logAt, sameEntry, type Broker, type Entry, type Settings, type State, type Step } from "./state";

export function withBroker(t: State, broker: number, changes: Partial<Broker>): State {
  return { ...t, brokers: t.brokers.map((b, i) => (i === broker - 1 ? { ...b, ...changes } : b)) };
}

/** The state with another entry in the leader's log, and the entry's offset. */
export function append(t: State, e: Entry): [State, number] {
  const log = logAt(t, t.leader);
  return [withBroker(t, t.leader, { log: [...log, e] }), log.length];
}

/** The coordinator writes a marker, and repeats it until all in-sync replicas have it. */
export function appendMarker(s: Settings, t: State, e: Entry): State {
  return replicate(s, append(t, e)[0]).state;
}

/** The high watermark rises to what all in-sync replicas have, and answers the requests that wait for it. */
export function advance(s: Settings, t: State): State {
  if (!t.leader || t.isr.length < s.min_insync) return t;
  const leaderLog = logAt(t, t.leader);
  const common = Math.min(...t.isr.map((b) => commonLength(leaderLog, logAt(t, b))));
  const mark = Math.max(t.high_watermark, common);
  return {
    ...t,
    high_watermark: mark,
    requests: t.requests.map((r) => (r.phase === "stored" && r.offset < mark ? { ...r, phase: "reply" } : r)),
  };
}

export function commonLength(a: readonly Entry[], b: readonly Entry[]): number {
  let n = 0;
  while (n < a.length && n < b.length && sameEntry(a[n]!, b[n]!)) n += 1;
  return n;
}

export function sameLog(a: readonly Entry[], b: readonly Entry[]): boolean {
  return a.length === b.length && commonLength(a, b) === a.length;
}

export function replicate(s: Settings, t: State): Step {
  const log = logAt(t, t.leader);
  const after = t.isr.reduce((x, b) => withBroker(x, b, { log }), t);
  return { state: advance(s, after), reason: "replicate", number: t.leader };
}

function withIsr(s: Settings, t: State, isr: readonly number[]): State {
  const left = [...new Set([...t.elr, ...t.isr])].filter((b) => !isr.includes(b)).sort();
  return { ...t, isr, elr: isr.length >= s.min_insync ? [] : left };
}

export function lag(s: Settings, t: State, broker: number): Step {
  const after = withIsr(
    s,
    t,
    t.isr.filter((b) => b !== broker),
  );
  const reason = after.isr.length < s.min_insync ? "lag.below" : "lag.enough";
  return { state: advance(s, after), reason, number: broker };
}

export function killLeader(s: Settings, t: State): Step {
  const dead = t.leader;
  const had = logAt(t, dead);
  let next: State = { ...withBroker(t, dead, { alive: false }), leader: 0 };
  next = withIsr(
    s,
    next,
    next.isr.filter((b) => b !== dead),
  );
  [next] = breakConnection(s, next);
  const [after, kind] = elect(s, next);
  if (!after.leader) return { state: after, reason: "kill-leader.none", number: dead };
  const isComplete = commonLength(had, logAt(after, after.leader)) === had.length;
  return { state: after, reason: `kill-leader.${kind}-${isComplete ? "complete" : "shorter"}`, number: after.leader };
}

function elect(s: Settings, t: State): [State, "clean" | "eligible" | "unclean" | "none"] {
  const all = s.unclean ? t.brokers.map((_, i) => i + 1) : [];
  for (const [kind, candidates] of [
    ["clean", t.isr],
    ["eligible", t.elr],
    ["unclean", all],
  ] as const) {
    const leader = candidates.find((b) => t.brokers[b - 1]!.alive);
    if (!leader) continue;
    const end = logAt(t, leader).length;
    let next = t;
    if (kind === "unclean") next = { ...t, isr: [leader], elr: [] };
    if (kind === "eligible") next = withIsr(s, t, [leader]);
    next = {
      ...next,
      leader,
      leader_epoch: t.leader_epoch + 1,
      high_watermark: Math.min(t.high_watermark, end),
      committed: Math.min(t.committed, end),
      consumer: { ...t.consumer, position: Math.min(t.consumer.position, end) },
    };
    return [advance(s, next), kind];
  }
  return [t, "none"];
}

export function comeBack(s: Settings, t: State, broker: number): Step {
  const next = withBroker(t, broker, { alive: true });
  if (t.leader) {
    const copied = withBroker(next, broker, { log: logAt(t, t.leader) });
    const after = withIsr(s, copied, [...t.isr, broker]);
    return { state: advance(s, after), reason: "return.follower", number: broker };
  }
  const [after, kind] = elect(s, next);
  return { state: after, reason: `return.${kind}`, number: broker };
}
