"""The transitions of the consumer, and of its previous instance."""

from __future__ import annotations

from .counts import readable
from .state import Consumer, Settings, State, Step


def poll(s: Settings, t: State) -> Step:
    offset, value = next(x for x in readable(s, t) if x[0] >= t.consumer.position)
    c = t.consumer._replace(position=offset + 1, held=value, phase="held")
    return Step(t._replace(consumer=c), "poll", value)


def process(s: Settings, t: State) -> Step:
    c = t.consumer
    if s.commit == "transaction":
        return Step(t._replace(consumer=c._replace(phase="processed")), "process.transaction", c.held)
    done = c._replace(held=0, phase="idle") if s.commit == "before" else c._replace(phase="processed")
    return Step(t._replace(consumer=done, output=(*t.output, c.held)), f"process.{s.commit}", c.held)


def commit(s: Settings, t: State) -> Step:
    c = t.consumer
    done = c._replace(phase="committed") if s.commit == "before" else c._replace(held=0, phase="idle")
    output = (*t.output, c.held) if s.commit == "transaction" else t.output
    after = t._replace(consumer=done, committed=c.position, output=output)
    return Step(after, f"commit.{s.commit}", c.held)


def next_consumer(t: State) -> Consumer:
    newest = max(t.consumer.instance, t.zombie.instance if t.zombie else 0)
    return Consumer(newest + 1, t.committed, 0, "idle")


def kill_consumer(s: Settings, t: State) -> Step:
    reason = f"kill-consumer.{s.commit}-{t.consumer.phase}"
    return Step(t._replace(consumer=next_consumer(t)), reason, t.consumer.held)


def pause_consumer(_: Settings, t: State) -> Step:
    return Step(t._replace(consumer=next_consumer(t), zombie=t.consumer), "pause-consumer", t.consumer.held)


def zombie_consumer(s: Settings, t: State) -> Step:
    zombie = t.zombie
    if zombie is None:  # the action is impossible then
        raise ValueError("there is no zombie")
    has_effect = (s.commit, zombie.phase) in (("before", "committed"), ("after", "held"))
    output = (*t.output, zombie.held) if has_effect else t.output
    reason = f"zombie-consumer.{s.commit}-{zombie.phase}"
    return Step(t._replace(zombie=None, output=output), reason, zombie.held)
