"""Named successions of actions, each with the counter at its end."""

from __future__ import annotations

from dataclasses import dataclass

from .counts import Counts, counts
from .state import Settings, State, initial
from .step import actions, step

TRANSFER = ("send", "deliver", "replicate", "deliver-ack")  # a record that everything goes well for, with acks=all
CONSUMER = ("poll", "process", "commit")


@dataclass(frozen=True)
class Scenario:
    """A succession. The consumer then reads everything that it can, so that the counter is final."""

    name: str
    title: str
    settings: Settings
    failures: tuple[str, ...]  # the actions up to the last failure and what follows from it
    lost: int = 0
    reported: int = 0
    duplicated: int = 0
    out_of_order: int = 0

    @property
    def actions(self) -> tuple[str, ...]:
        """The failures, and the consumer's actions until there is nothing to read."""
        t, path = initial(self.settings), list(self.failures)
        for action in path:
            t = step(self.settings, t, action).state
        while remaining := [a for a in actions(self.settings, t) if a in CONSUMER]:
            path.append(remaining[0])
            t = step(self.settings, t, remaining[0]).state
        return tuple(path)

    def end(self) -> tuple[State, Counts]:
        """The last state and its counter."""
        t = initial(self.settings)
        for action in self.actions:
            t = step(self.settings, t, action).state
        return t, counts(self.settings, t)


def _scenario(name: str, title: str, path: str, settings: Settings, **end: int) -> Scenario:
    return Scenario(name, title, settings, tuple(path.split()), **end)


_READ = "poll process commit"
_SENT = " ".join(TRANSFER)
SCENARIOS = (
    _scenario(
        "acks-0-request-lost",
        "acks=0: a request is lost",
        "send lose-request send deliver replicate",
        Settings(acks="0", retries=False, idempotence=False),
        lost=1,
    ),
    _scenario(
        "retries-0-request-lost",
        "retries=0: a request is lost",
        f"send lose-request {_SENT}",
        Settings(retries=False, idempotence=False),
        lost=1,
        reported=1,
    ),
    _scenario(
        "acks-1-leader-dies-before-replication",
        "acks=1: the leader dies before replication",
        "send deliver deliver-ack kill-leader send deliver replicate deliver-ack",
        Settings(acks="1", idempotence=False),
        lost=1,
    ),
    _scenario(
        "acks-1-leader-dies-after-replication",
        "acks=1: the leader dies after replication",
        "send deliver replicate deliver-ack kill-leader send deliver replicate deliver-ack",
        Settings(acks="1", idempotence=False),
    ),
    _scenario(
        "acks-all-leader-dies-before-replication",
        "acks=all: the leader dies before replication",
        "send deliver kill-leader deliver replicate deliver-ack",
        Settings(),
    ),
    _scenario(
        "acknowledgement-lost",
        "Without idempotence an acknowledgement is lost",
        "send deliver replicate lose-ack deliver replicate deliver-ack",
        Settings(idempotence=False),
        duplicated=1,
    ),
    _scenario(
        "acknowledgement-lost-idempotence",
        "With idempotence an acknowledgement is lost",
        "send deliver replicate lose-ack deliver deliver-ack",
        Settings(),
    ),
    _scenario(
        "retry-order",
        "Without idempotence the first of two requests is refused and repeated",
        f"{_SENT} lag-2 send send deliver return-2 deliver deliver replicate deliver-ack deliver-ack",
        Settings(replicas=2, idempotence=False),
        out_of_order=1,
    ),
    _scenario(
        "retry-order-idempotence",
        "With idempotence the first of two requests is refused and repeated",
        f"{_SENT} lag-2 send send deliver return-2 deliver deliver deliver replicate deliver-ack deliver-ack",
        Settings(replicas=2),
    ),
    _scenario(
        "zombie-producer",
        "A producer returns after its replacement, without transactions",
        "send replace-producer deliver replicate deliver-ack zombie-produces replicate",
        Settings(),
        duplicated=1,
    ),
    _scenario(
        "zombie-producer-transactions",
        "A producer returns after its replacement, with transactions",
        "send replace-producer deliver replicate deliver-ack zombie-produces commit-transaction",
        Settings(transactions=True),
    ),
    _scenario(
        "commit-before-killed",
        "Commit before processing: the consumer dies in between",
        f"{_SENT} poll commit kill-consumer",
        Settings(commit="before"),
        lost=1,
    ),
    _scenario(
        "commit-after-killed",
        "Commit after processing: the consumer dies in between",
        f"{_SENT} poll process kill-consumer",
        Settings(commit="after"),
        duplicated=1,
    ),
    _scenario(
        "commit-transaction-killed",
        "Commit in the same transaction: the consumer dies before it",
        f"{_SENT} poll process kill-consumer",
        Settings(commit="transaction"),
    ),
    _scenario(
        "zombie-consumer",
        "Commit after processing: a consumer returns after its replacement",
        f"{_SENT} poll pause-consumer {_READ} zombie-consumer",
        Settings(commit="after"),
        duplicated=1,
    ),
    _scenario(
        "zombie-consumer-transaction",
        "Commit in the same transaction: a consumer returns after its replacement",
        f"{_SENT} poll process pause-consumer {_READ} zombie-consumer",
        Settings(commit="transaction"),
    ),
    _scenario(
        "min-insync-1-unclean",
        "min.insync.replicas=1, and an unclean election",
        "lag-2 send deliver deliver-ack kill-leader send deliver deliver-ack",
        Settings(replicas=2, min_insync=1, unclean=True),
        lost=1,
    ),
    _scenario(
        "min-insync-1-clean",
        "min.insync.replicas=1, and no unclean election",
        "lag-2 send deliver deliver-ack kill-leader return-1",
        Settings(replicas=2, min_insync=1),
    ),
    _scenario(
        "min-insync-2",
        "min.insync.replicas=2: a follower falls behind, and the leader dies",
        "lag-2 send deliver kill-leader deliver return-1 deliver replicate deliver-ack",
        Settings(replicas=2, min_insync=2),
    ),
)
