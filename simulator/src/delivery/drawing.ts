// A state of the simulator as cards.

import type { Card, Cell } from "../cards";
import type { Broker, Consumer, Entry, Request, Settings, State } from "../model/state";

const OUTCOMES = { waiting: "waits", unconfirmed: "sent", acknowledged: "ack", failed: "error" } as const;

export function cardsOf(settings: Settings, t: State): Card[] {
  return [
    producer(settings, t),
    network(settings, t),
    ...t.brokers.map((b, i) => broker(settings, t, b, i + 1)),
    consumer(`Consumer ${t.consumer.instance}`, settings, t, t.consumer, ""),
    ...(t.zombie ? [consumer(`Consumer ${t.zombie.instance}`, settings, t, t.zombie, "zombie")] : []),
    {
      title: "Effects",
      state: "what the consumer has processed",
      rows: [{ cells: t.output.map((v): Cell => ({ text: String(v), kind: "stored" })), empty: "none" }],
    },
  ];
}

function producer(settings: Settings, t: State): Card {
  const { instance, pid, epoch, next_seq } = t.producer;
  const identity = settings.idempotence ? `id ${pid}, epoch ${epoch}, next sequence ${next_seq}` : "not idempotent";
  const cells = t.outcomes.map((o, i): Cell => ({ text: String(i + 1), small: OUTCOMES[o], kind: o }));
  const open = t.transaction.length ? [{ label: "open transaction", cells: t.transaction.map(plain) }] : [];
  return { title: `Producer ${instance}`, state: identity, rows: [{ cells, empty: "nothing sent" }, ...open] };
}

const plain = (value: number): Cell => ({ text: String(value) });

function network(settings: Settings, t: State): Card {
  const named = (r: Request): Cell => ({ text: String(r.value), ...(settings.idempotence && { small: `seq ${r.seq}` }) });
  const row = (label: string, requests: readonly Request[], kind: string) =>
    requests.length ? [{ label, cells: requests.map((r) => ({ ...named(r), kind })) }] : [];
  const phase = (name: string) => t.requests.filter((r) => r.phase === name);
  const rows = [
    ...row("requests on their way to the leader", phase("request"), "waiting"),
    ...row("stored, and waiting for the in-sync replicas", phase("stored"), "pending"),
    ...row("acknowledgements on their way back", phase("reply"), "acknowledged"),
    ...row("requests of the old producer", t.zombie_requests, "zombie"),
  ];
  return { title: "Network", kind: "network", rows: rows.length ? rows : [{ cells: [], empty: "nothing on its way" }] };
}

function broker(settings: Settings, t: State, b: Broker, id: number): Card {
  const role = !b.alive
    ? "dead"
    : id === t.leader
      ? `leader, epoch ${t.leader_epoch}`
      : t.isr.includes(id)
        ? "follower, in sync"
        : `out of sync${t.elr.includes(id) ? ", may become leader" : ""}`;
  const cells = b.log.map((e, offset) => entry(settings, t, e, offset));
  const mark = id === t.leader ? `high watermark ${t.high_watermark}` : "";
  return {
    title: `Broker ${id}`,
    state: role,
    kind: !b.alive ? "dead" : id === t.leader ? "leader" : "",
    rows: [{ ...(mark && { label: mark }), cells, empty: "empty log" }],
  };
}

function entry(settings: Settings, t: State, e: Entry, offset: number): Cell {
  const kind = offset < t.high_watermark ? "stored" : "pending";
  if (e.kind !== "record") return { text: e.kind === "commit" ? "✓" : "✗", small: e.kind, kind: `marker ${kind}` };
  return { text: String(e.value), ...(settings.idempotence && { small: `${e.epoch}/${e.seq}` }), kind };
}

function consumer(title: string, settings: Settings, t: State, c: Consumer, kind: string): Card {
  const position = `reads offset ${c.position}${kind ? "" : `, committed ${t.committed}`}`;
  const doing = { idle: "", held: "in memory", committed: "committed, not processed", processed: "" }[c.phase];
  const processed = settings.commit === "transaction" ? "in an open transaction" : "processed, not committed";
  const cells = c.held ? [{ text: String(c.held), kind: "pending" }] : [];
  return {
    title: kind ? `${title} (replaced, hangs)` : title,
    state: position,
    kind,
    rows: [{ ...(c.held && { label: doing || processed }), cells, empty: "no record in memory" }],
  };
}
