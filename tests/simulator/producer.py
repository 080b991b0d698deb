"""The transitions of the producer, and of its previous instance."""

from __future__ import annotations

from .brokers import advance, append, append_marker, log_at
from .requests import break_connection, first, retry, with_outcome, without
from .state import Entry, Producer, Request, Settings, State, Step


def send(s: Settings, t: State) -> Step:
    value, p = len(t.outcomes) + 1, t.producer
    request = Request(value, p.pid, p.epoch, p.next_seq, "request", -1)
    after = t._replace(
        outcomes=(*t.outcomes, "unconfirmed" if s.acks == "0" else "waiting"),
        producer=p._replace(next_seq=p.next_seq + 1) if s.idempotence else p,
        requests=(*t.requests, request),
        transaction=(*t.transaction, value) if s.transactions else (),
    )
    return Step(after, "send.unconfirmed" if s.acks == "0" else "send.waits", value)


def lose_request(s: Settings, t: State) -> Step:
    r = first(t, "request")
    after, end = break_connection(s, t)
    return Step(after, f"lose-request.{end}", r.value)


def deliver_ack(_: Settings, t: State) -> Step:
    r = first(t, "reply")
    return Step(with_outcome(without(t, r), r.value, "acknowledged"), "deliver-ack", r.value)


def lose_ack(s: Settings, t: State) -> Step:
    r = first(t, "reply", "stored")
    after, end = break_connection(s, t)
    return Step(after, f"lose-ack.{end}", r.value)


def deliver(s: Settings, t: State) -> Step:
    r = first(t, "request")
    if s.acks == "all" and len(t.isr) < s.min_insync:
        after, end = retry(s, t, r)
        return Step(after, f"deliver.too-few-{end}", r.value)
    verdict, offset = sequence(t, r)
    if verdict == "gap":
        earlier = [x for x in t.requests if x.seq < r.seq]
        if earlier:
            after, _ = retry(s, t, r)
            return Step(after, "deliver.gap", r.value)
        if s.transactions:
            return Step(abort(s, t), "deliver.gap-aborted", r.value)
        return Step(new_epoch(t), "deliver.gap-epoch", r.value)
    if verdict == "new":
        t, offset = append(t, Entry("record", r.value, r.pid, r.epoch, r.seq, t.leader_epoch))
    if s.acks == "0":
        return Step(advance(s, without(t, r)), "deliver.no-answer", r.value)
    phase = "reply" if s.acks == "1" else "stored"
    i = t.requests.index(r)
    stored = r._replace(phase=phase, offset=offset)
    after = advance(s, t._replace(requests=(*t.requests[:i], stored, *t.requests[i + 1 :])))
    return Step(after, "deliver.duplicate" if verdict == "duplicate" else f"deliver.acks-{s.acks}", r.value)


def sequence(t: State, r: Request) -> tuple[str, int]:
    """The leader's check of a request's sequence: new, gap, or duplicate with the offset of the stored record."""
    if r.pid < 0:
        return "new", -1
    log = log_at(t, t.leader)
    known = [e for e in log if e.pid == r.pid]
    if not known:
        # A leader without state of a producer accepts any sequence. In a transaction it compares the record with those
        # that it has refused, for example because too few replicas were in sync (KIP-890, verification).
        in_order = not t.transaction or all(x.seq >= r.seq for x in t.requests)
        return "new" if in_order else "gap", -1
    last_epoch = max(e.epoch for e in known)
    if r.epoch != last_epoch:
        return ("new" if r.epoch > last_epoch and r.seq == 0 else "gap"), -1
    stored = [(i, e.seq) for i, e in enumerate(log) if e.kind == "record" and (e.pid, e.epoch) == (r.pid, r.epoch)]
    for offset, seq in stored:
        if seq == r.seq:
            return "duplicate", offset
    return ("new" if r.seq == max((seq for _, seq in stored), default=-1) + 1 else "gap"), -1


def new_epoch(t: State) -> State:
    """The producer begins a new epoch: its unanswered requests are numbered again, in their order (KIP-360)."""
    epoch, in_order = t.producer.epoch + 1, sorted(t.requests, key=lambda r: r.seq)
    requests = tuple(r._replace(epoch=epoch, seq=i, phase="request", offset=-1) for i, r in enumerate(in_order))
    return t._replace(producer=t.producer._replace(epoch=epoch, next_seq=len(requests)), requests=requests)


def abort(s: Settings, t: State) -> State:
    """The producer's transaction is aborted: the application learns that its records have failed."""
    p = t.producer._replace(epoch=t.producer.epoch + 1, next_seq=0)
    for value in t.transaction:
        t = with_outcome(t, value, "failed")
    t = t._replace(producer=p, requests=(), transaction=())
    return append_marker(s, t, Entry("abort", 0, p.pid, p.epoch, -1, t.leader_epoch))


def commit_transaction(s: Settings, t: State) -> Step:
    p, first = t.producer, t.transaction[0]
    t = append_marker(s, t, Entry("commit", 0, p.pid, p.epoch, -1, t.leader_epoch))
    return Step(t._replace(transaction=()), "commit-transaction", first)


def time_out(s: Settings, t: State) -> Step:
    first = t.requests[0].value
    if s.transactions:
        return Step(abort(s, t), "time-out.aborted", first)
    for r in t.requests:
        t = with_outcome(t, r.value, "failed")
    t = t._replace(requests=())
    return Step(new_epoch(t) if s.idempotence else t, "time-out.failed", first)


def replace_producer(s: Settings, t: State) -> Step:
    """A new instance starts while requests of the old one are still on their way."""
    p, zombies = t.producer, tuple(r for r in t.requests if r.phase == "request")
    again = sorted({r.value for r in t.requests if s.acks != "0"} | set(t.transaction))
    if s.transactions:
        reason, new = "replace-producer.transactional", Producer(p.instance + 1, p.pid, p.epoch + 1, len(again))
        t = append_marker(s, t, Entry("abort", 0, new.pid, new.epoch, -1, t.leader_epoch))
    elif s.idempotence:
        reason, new = "replace-producer.idempotent", Producer(p.instance + 1, p.pid + 1, 0, len(again))
    else:
        reason, new = "replace-producer.plain", p._replace(instance=p.instance + 1)
    for value in again:
        t = with_outcome(t, value, "waiting")
    requests = tuple(
        Request(value, new.pid, new.epoch, i if s.idempotence else -1, "request", -1) for i, value in enumerate(again)
    )
    after = t._replace(
        producer=new,
        requests=requests,
        zombie_requests=zombies,
        transaction=tuple(again) if s.transactions else (),
    )
    return Step(advance(s, after), reason, new.instance)


def zombie_produces(s: Settings, t: State) -> Step:
    r = t.zombie_requests[0]
    t = t._replace(zombie_requests=t.zombie_requests[1:])
    if s.transactions:
        return Step(t, "zombie-produces.fenced", r.value)
    if s.acks == "all" and len(t.isr) < s.min_insync:
        return Step(t, "zombie-produces.too-few", r.value)
    if sequence(t, r)[0] != "new":
        return Step(t, "zombie-produces.sequence", r.value)
    t, _ = append(t, Entry("record", r.value, r.pid, r.epoch, r.seq, t.leader_epoch))
    return Step(advance(s, t), "zombie-produces.appended", r.value)
