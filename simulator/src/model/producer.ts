// The transitions of the producer, and of its previous instance. The reference is tests/simulator/producer.py.

import { advance, append, appendMarker } from "./brokers";
import { breakConnection, first, retry, withOutcome, without } from "./requests";
import { logAt, type Entry, type Producer, type Request, type Settings, type State, type Step } from "./state";

export function send(s: Settings, t: State): Step {
  const value = t.outcomes.length + 1;
  const p = t.producer;
  const request: Request = { value, pid: p.pid, epoch: p.epoch, seq: p.next_seq, phase: "request", offset: -1 };
  const state: State = {
    ...t,
    outcomes: [...t.outcomes, s.acks === "0" ? "unconfirmed" : "waiting"],
    producer: s.idempotence ? { ...p, next_seq: p.next_seq + 1 } : p,
    requests: [...t.requests, request],
    transaction: s.transactions ? [...t.transaction, value] : [],
  };
  return { state, reason: s.acks === "0" ? "send.unconfirmed" : "send.waits", number: value };
}

export function loseRequest(s: Settings, t: State): Step {
  const r = first(t, "request");
  const [state, end] = breakConnection(s, t);
  return { state, reason: `lose-request.${end}`, number: r.value };
}

export function deliverAck(_: Settings, t: State): Step {
  const r = first(t, "reply");
  return { state: withOutcome(without(t, r), r.value, "acknowledged"), reason: "deliver-ack", number: r.value };
}

export function loseAck(s: Settings, t: State): Step {
  const r = first(t, "reply", "stored");
  const [state, end] = breakConnection(s, t);
  return { state, reason: `lose-ack.${end}`, number: r.value };
}

export function deliver(s: Settings, t: State): Step {
  const r = first(t, "request");
  const number = r.value;
  if (s.acks === "all" && t.isr.length < s.min_insync) {
    const [state, end] = retry(s, t, r);
    return { state, reason: `deliver.too-few-${end}`, number };
  }
  const [verdict, known] = sequence(t, r);
  if (verdict === "gap") {
    if (t.requests.some((x) => x.seq < r.seq)) return { state: retry(s, t, r)[0], reason: "deliver.gap", number };
    if (s.transactions) return { state: abort(s, t), reason: "deliver.gap-aborted", number };
    return { state: newEpoch(t), reason: "deliver.gap-epoch", number };
  }
  const [stored, offset] = verdict === "new" ? append(t, entryOf(t, r)) : [t, known];
  if (s.acks === "0") return { state: advance(s, without(stored, r)), reason: "deliver.no-answer", number };
  const phase = s.acks === "1" ? "reply" : "stored";
  const requests = stored.requests.map((x): Request => (x === r ? { ...r, phase, offset } : x));
  const reason = verdict === "duplicate" ? "deliver.duplicate" : `deliver.acks-${s.acks}`;
  return { state: advance(s, { ...stored, requests }), reason, number };
}

function entryOf(t: State, r: Request): Entry {
  return { kind: "record", value: r.value, pid: r.pid, epoch: r.epoch, seq: r.seq, leader_epoch: t.leader_epoch };
}

/** The leader's check of a request's sequence, and the offset of a record that it has already stored. */
function sequence(t: State, r: Request): ["new" | "gap" | "duplicate", number] {
  if (r.pid < 0) return ["new", -1];
  const log = logAt(t, t.leader);
  const known = log.filter((e) => e.pid === r.pid);
  if (!known.length) {
    const inOrder = !t.transaction.length || t.requests.every((x) => x.seq >= r.seq);
    return [inOrder ? "new" : "gap", -1];
  }
  const lastEpoch = Math.max(...known.map((e) => e.epoch));
  if (r.epoch !== lastEpoch) return [r.epoch > lastEpoch && r.seq === 0 ? "new" : "gap", -1];
  const inEpoch = (e: Entry) => e.kind === "record" && e.pid === r.pid && e.epoch === r.epoch;
  const offset = log.findIndex((e) => inEpoch(e) && e.seq === r.seq);
  if (offset >= 0) return ["duplicate", offset];
  const last = Math.max(-1, ...log.filter(inEpoch).map((e) => e.seq));
  return [r.seq === last + 1 ? "new" : "gap", -1];
}

function newEpoch(t: State): State {
  const epoch = t.producer.epoch + 1;
  const inOrder = [...t.requests].sort((a, b) => a.seq - b.seq);
  const requests = inOrder.map((r, seq): Request => ({ ...r, epoch, seq, phase: "request", offset: -1 }));
  return { ...t, producer: { ...t.producer, epoch, next_seq: requests.length }, requests };
}

function abort(s: Settings, t: State): State {
  const producer = { ...t.producer, epoch: t.producer.epoch + 1, next_seq: 0 };
  const failed = t.transaction.reduce((x, value) => withOutcome(x, value, "failed"), t);
  return appendMarker(s, { ...failed, producer, requests: [], transaction: [] }, marker(t, "abort", producer));
}

function marker(t: State, kind: "commit" | "abort", p: Producer): Entry {
  return { kind, value: 0, pid: p.pid, epoch: p.epoch, seq: -1, leader_epoch: t.leader_epoch };
}

export function commitTransaction(s: Settings, t: State): Step {
  const ended = appendMarker(s, t, marker(t, "commit", t.producer));
  return { state: { ...ended, transaction: [] }, reason: "commit-transaction", number: t.transaction[0]! };
}

export function timeOut(s: Settings, t: State): Step {
  const number = t.requests[0]!.value;
  if (s.transactions) return { state: abort(s, t), reason: "time-out.aborted", number };
  const failed = t.requests.reduce((x, r) => withOutcome(x, r.value, "failed"), t);
  const state: State = { ...failed, requests: [] };
  return { state: s.idempotence ? newEpoch(state) : state, reason: "time-out.failed", number };
}

/** A new instance starts while requests of the old one are still on their way. */
export function replaceProducer(s: Settings, t: State): Step {
  const p = t.producer;
  const instance = p.instance + 1;
  const unanswered = s.acks === "0" ? [] : t.requests.map((r) => r.value);
  const again = [...new Set([...unanswered, ...t.transaction])].sort((a, b) => a - b);
  let state = t;
  let kind = "plain";
  let producer: Producer = { ...p, instance };
  if (s.transactions) {
    kind = "transactional";
    producer = { instance, pid: p.pid, epoch: p.epoch + 1, next_seq: again.length };
    state = appendMarker(s, t, marker(t, "abort", producer));
  } else if (s.idempotence) {
    kind = "idempotent";
    producer = { instance, pid: p.pid + 1, epoch: 0, next_seq: again.length };
  }
  state = {
    ...again.reduce((x, value) => withOutcome(x, value, "waiting"), state),
    producer,
    requests: again.map((value, i) => ({
      value,
      pid: producer.pid,
      epoch: producer.epoch,
      seq: s.idempotence ? i : -1,
      phase: "request",
      offset: -1,
    })),
    zombie_requests: t.requests.filter((r) => r.phase === "request"),
    transaction: s.transactions ? again : [],
  };
  return { state: advance(s, state), reason: `replace-producer.${kind}`, number: instance };
}

export function zombieProduces(s: Settings, t: State): Step {
  const [r, ...rest] = t.zombie_requests as [Request, ...Request[]];
  const state = { ...t, zombie_requests: rest };
  const number = r.value;
  if (s.transactions) return { state, reason: "zombie-produces.fenced", number };
  if (s.acks === "all" && t.isr.length < s.min_insync) return { state, reason: "zombie-produces.too-few", number };
  if (sequence(t, r)[0] !== "new") return { state, reason: "zombie-produces.sequence", number };
  return { state: advance(s, append(state, entryOf(t, r))[0]), reason: "zombie-produces.appended", number };
}
