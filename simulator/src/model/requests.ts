// The producer's requests: what happens to one that is not acknowledged. The reference is tests/simulator/requests.py.

import type { Outcome, Request, Settings, State } from "./state";

export function first(t: State, ...phases: Request["phase"][]): Request {
  return t.requests.find((r) => phases.includes(r.phase))!;
}

export function without(t: State, r: Request): State {
  return { ...t, requests: t.requests.filter((x) => x !== r) };
}

export function withOutcome(t: State, value: number, outcome: Outcome): State {
  return { ...t, outcomes: t.outcomes.map((o, i) => (i === value - 1 ? outcome : o)) };
}

/** The state after the producer has learnt that r was not acknowledged, and whether it retries or fails. */
export function retry(s: Settings, t: State, r: Request): [State, "lost" | "failed" | "retried"] {
  const rest = without(t, r);
  if (s.acks === "0") return [rest, "lost"];
  if (!s.retries) return [withOutcome(rest, r.value, "failed"), "failed"];
  return [{ ...rest, requests: [...rest.requests, { ...r, phase: "request", offset: -1 }] }, "retried"];
}

/** The state after the connection to the leader broke, and the first request's end. Every unanswered one is affected. */
export function breakConnection(s: Settings, t: State): [State, string] {
  let state = t;
  const ends = t.requests.map((r) => {
    const [next, end] = retry(s, state, r);
    state = next;
    return end;
  });
  return [state, ends[0] ?? ""];
}
