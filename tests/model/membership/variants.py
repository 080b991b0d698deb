"""The searches of the second model, each with the expected verdict.

A program is a string of the steps in config.STEPS.
"""

from __future__ import annotations

from typing import Any

from ..variants import Variant
from .config import TOGETHER, Cfg
from .model import Model

DUPLICATED = "duplicated or out of order"
DIFFERS = "but the committed output is"
BACKWARDS = "position moves backwards"
PASSED_OVER = "a driver has passed over"
TWICE = "more than once"
LOST = "lost"
FALSE_HALT = "halts, but no position was ever lost"
REPLACED = "a driver starts at positions of a replaced topic"
MIXED = "rows of a recreated topic count for a position of the earlier one"


def safe(about: str, slow: bool = False, **cfg: Any) -> Variant:
    """A variant without a violation."""
    return Variant(about, configuration(cfg), None, slow, Model)


def unsafe(violation: str, about: str, slow: bool = False, **cfg: Any) -> Variant:
    """A variant that must end with a violation."""
    return Variant(about, configuration(cfg), violation, slow, Model)


def configuration(cfg: dict[str, Any]) -> Cfg:
    """The parameters, with one value for both drivers where only one is set."""
    pairs: dict[str, Any] = {
        k: (v, v) for k, v in cfg.items() if k in ("program", "start", "tasks") and isinstance(v, str)
    }
    return Cfg(**{**cfg, **pairs})


# A driver runs in the initial state, another one starts, or it restarts its query itself.
RUNS: dict[str, Any] = {"n": 1, "running": "member", "starts": 1}
# The same with fewer interleavings within one attempt.
STEPWISE: dict[str, Any] = {**RUNS, "program": "IRBTPE", "start": "GDIBTE"}
OUTPUT: dict[str, Any] = {**STEPWISE, "monotone": False}
LARGE: dict[str, Any] = {"n": 1, "slow": True}
EXACTLY_ONCE = {
    "member": safe("two starts, two tasks; one transaction settles all lanes, with an id for it alone", n=1),
    "member-settle-slot": safe("the same, the settling transaction has the id of slot 0", n=1, settle_id="slot"),
    "member-ends-slots": safe("a start first ends what the slots left open", **{**RUNS, "start": "01GDIOTE"}),
    "member-copy": safe("a late copy of any request", duplicates=1, **STEPWISE),
    "member-timeout": safe("a transaction times out", timeouts=1, **RUNS),
    "member-session": safe("the member's session times out", sessions=1, **RUNS),
    "member-late-join": safe("a join arrives late: a member that no driver is", late_joins=1, **RUNS),
    "member-unstable-tasks": safe("tasks do not wait for pending offsets", stable_tasks=False, **RUNS),
    "member-keeps-number": safe(
        "a driver keeps its number in a restart", keep_number=True, **{**RUNS, "starts": 2, "attempts": 1}
    ),
    "member-keeps-number-copy": safe(
        "the same with two attempts of a task and a late copy",
        slow=True,
        keep_number=True,
        duplicates=1,
        **{**RUNS, "starts": 2, "attempts": 2},
    ),
    "member-copy-together": safe("a late copy, offsets and rows concurrently", duplicates=1, **LARGE),
    "member-three-starts": safe("three starts", starts=3, program="IRBTPE", start="GDIBTE", **LARGE),
    "member-three-tasks": safe("two offsets, three tasks", slow=True, attempts=3),
    "member-rows-first": safe("rows, then offsets; three tasks", attempts=3, **{**LARGE, **RUNS, "program": "IRAPOTE"}),
    "member-idle-lanes": safe(
        "a batch may leave out a lane", slow=True, idle_lanes=True, attempts=3, **{**STEPWISE, "n": 2}
    ),
    "member-large": safe(
        "two offsets, three tasks, a late copy", slow=True, attempts=3, duplicates=1, **{**STEPWISE, "n": 2}
    ),
}

CONTROLS = {
    "member-none": unsafe(DIFFERS, "offsets are committed without membership", membership="", **OUTPUT),
    "member-rows-only": unsafe(
        DIFFERS, "the membership is sent with the rows alone", membership="rows", **{**OUTPUT, "program": TOGETHER}
    ),
    "member-unstable-start": unsafe(
        BACKWARDS, "a start does not wait for pending offsets", stable_start=False, **STEPWISE
    ),
    "member-read-first": unsafe(BACKWARDS, "a start reads before it joins", **{**STEPWISE, "start": "GDJIBTE"}),
    "member-unread": unsafe(DUPLICATED, "a task does not read after init", **{**RUNS, "program": "I(OT|AP)E"}),
    "member-same-restart": unsafe(BACKWARDS, "a query restarts with its old membership", join=False, **STEPWISE),
    # ---- a session times out, the client rejoins by itself
    "member-rejoins-plans": safe(
        "a removed member rejoins and continues; a start and a batch keep the membership that they began with",
        sessions=1,
        rejoins=1,
        rejoin="plans",
        **STEPWISE,
    ),
    "member-rejoins-plans-large": safe(
        "the same, three tasks", slow=True, sessions=1, rejoins=1, rejoin="plans", **{**STEPWISE, "attempts": 3}
    ),
    "member-rejoins": unsafe(
        BACKWARDS,
        "the same, each request carries the membership of the moment",
        rejoins=1,
        rejoin="attempts",
        **{**STEPWISE, "starts": 2, "attempts": 1},
    ),
}

# Another program commits offsets of the group.
FOREIGN = {
    "member-foreign-plain": safe(
        "OffsetCommit by another program: only an empty group accepts it", foreign_plain=1, sessions=1, **STEPWISE
    ),
    "member-foreign-txn": safe("transactional commit without membership, at any time", foreign_txn=1, **STEPWISE),
    "member-foreign-txn-skip": unsafe(
        PASSED_OVER, "the same, a task skips whatever the number", foreign_txn=1, own_number=False, **STEPWISE
    ),
    "member-foreign-txn-resumes": unsafe(
        PASSED_OVER, "the same, a start resumes from it", foreign_txn=1, halts_if_moved=False, **STEPWISE
    ),
    "member-foreign-large": safe(
        "two offsets, and the session times out",
        slow=True,
        foreign_txn=1,
        foreign_plain=1,
        sessions=1,
        **{**STEPWISE, "n": 2},
    ),
}

TOPICS = {
    "member-recreated": safe("the topic is recreated: the next start halts", recreations=1, **STEPWISE),
    "member-recreated-snapshot": unsafe(
        REPLACED, "the same, compared with the topic id of the first start", recreations=1, topic_snapshot=True, **RUNS
    ),
    "member-recreated-exact": unsafe(
        MIXED, "the same: does the running driver mix the topics?", recreations=1, exact_topic=True, **STEPWISE
    ),
    "member-recreated-exact-reread": safe(
        "the topic id is compared again after the rows are read, before the commit",
        recreations=1,
        exact_topic=True,
        **{**STEPWISE, "program": "IRBTPZE"},
    ),
}

# First positions and records of lanes; final positions.
NEW: dict[str, Any] = {"n": 1, "initialised": (False, False), "start": "GUGDI(LM|OT)E", "program": "IRBTPE"}
EXPIRES: dict[str, Any] = {"attempts": 1, "sessions": 1, "expiries": 1}
FINAL: dict[str, Any] = {
    **RUNS,
    **EXPIRES,
    "program": "IRBTPE",
    "start": "GUGDIBTME",
    "stop": "IRBTME",
    "stops": 1,
    "resume": True,
}
FINAL_STARTS: dict[str, Any] = {**FINAL, "starts": 2}
LANES_TOPIC = {
    "member-new-lanes": safe("first positions and records in the settling transaction", attempts=1, **NEW),
    "member-new-lanes-tasks": safe("the same with two tasks", slow=True, **NEW),
    "member-new-lane": safe("one new lane beside an old one", attempts=1, **{**NEW, "initialised": (True, False)}),
    "member-new-lanes-latest": safe(
        "drivers resolve latest differently", starting_offset=(0, 1), attempts=1, **{**NEW, "n": 2}
    ),
    "member-new-lanes-expire": safe("all positions expire: halts", **EXPIRES, **NEW),
    "member-adopted": safe(
        "an adopted group: positions again with records; they expire: halts",
        adopted=True,
        **EXPIRES,
        **{**NEW, "initialised": (True, True)},
    ),
    "member-ledger-first": safe(
        "lanes topic, then positions (safe only without final positions)",
        **EXPIRES,
        **{**NEW, "start": "UGDI(LM|OT)E"},
    ),
    "member-ledger-before-join": unsafe(
        DIFFERS, "lanes topic read before the join", **EXPIRES, **{**NEW, "start": "UJGDIBTME"}
    ),
    "member-ledger-last": unsafe(
        FALSE_HALT,
        "positions, then lanes topic: a removed driver reports a loss",
        attempts=1,
        **{**NEW, "start": "GUDIBTME"},
    ),
    # ---- final positions: a stop writes them, a start without positions resumes from them
    "member-final": safe("a stop commits positions and final positions in one transaction", **FINAL),
    "member-final-starts": safe("the same, two starts", slow=True, **FINAL_STARTS),
    "member-final-copy": safe("the same, a late copy", slow=True, duplicates=1, **FINAL_STARTS),
    "member-final-open": unsafe(
        DIFFERS,
        "the read of the lanes topic ends at an open transaction",
        slow=True,
        stable_records=False,
        **FINAL_STARTS,
    ),
    "member-final-unread": safe("the same, a stop does not read", slow=True, **{**FINAL_STARTS, "stop": "IBTME"}),
    "member-final-stays": unsafe(
        DIFFERS,
        "the start's transaction does not overwrite them",
        overwrite="",
        stopped=True,
        **{**FINAL, "starts": 2, "running": "", "stops": 0},
    ),
    "member-final-plain": unsafe(
        DIFFERS, "a stop writes them outside a transaction", slow=True, **{**FINAL_STARTS, "stop": "RN"}
    ),
    "member-final-ledger-first": unsafe(
        DIFFERS, "lanes topic, then positions: a stop commits in between", **{**FINAL_STARTS, "start": "UGDIBTME"}
    ),
    "member-final-ledger-first-all": safe(
        "the same, a start overwrites all records", overwrite="all", slow=True, **{**FINAL_STARTS, "start": "UGDIBTME"}
    ),
}

# Source and sink on two clusters: positions are offsets of a marker topic on the sink's cluster.
MARKERS: dict[str, Any] = {**NEW, "initialised": (True, True), "running": "member", "starts": 1}
TWO_CLUSTERS = {
    "member-marker-deleted": safe("the marker is deleted at any time: halts", marker_deletions=1, **MARKERS),
    "member-marker-deleted-unrecorded": unsafe(
        DIFFERS, "the same, a start does not read the lanes topic", marker_deletions=1, **{**MARKERS, "start": "GDIBTE"}
    ),
    "member-other-cluster": unsafe(
        DIFFERS,
        "the position is on the source's cluster: OffsetCommit with membership, after the commit of the rows",
        **{**OUTPUT, "program": "IRAPEC", "start": "GDC"},
    ),
}

CHANGE: dict[str, Any] = {"guarantee": "MIX", "monotone": False}
AMO: dict[str, Any] = {**RUNS, "guarantee": "AMO", "program": "IROTEX"}
ALO: dict[str, Any] = {"guarantee": "ALO", "tasks": "driver", "monotone": False}
OTHER_GUARANTEES = {
    "member-amo": safe("at-most-once: claim in the slot's transaction, then process", duplicates=1, **AMO),
    "member-amo-none": unsafe(TWICE, "the same without membership", membership="", monotone=False, **AMO),
    "member-amo-abandon": safe(
        "a failed batch is abandoned: init, read, only from `from`, no processing", abandon="IROTE", abandons=1, **AMO
    ),
    "member-alo-transaction": safe(
        "at-least-once: process, then a transaction of the driver, in one epoch",
        reuse=True,
        program="XOTE",
        duplicates=1,
        **ALO,
    ),
    "member-alo-plain": safe("process, then OffsetCommit with membership", program="XC", duplicates=1, **ALO),
    "member-alo-plain-backwards": unsafe(
        BACKWARDS,
        "the same: does the position move backwards?",
        program="XC",
        duplicates=1,
        **{**ALO, "monotone": True},
    ),
    "member-alo-commit-first": unsafe(LOST, "OffsetCommit, then process", program="CX", **ALO),
    "member-change-plain": safe(
        "an at-least-once driver (OffsetCommit with membership) and an exactly-once one",
        slow=True,
        tasks=("driver", "slots"),
        program=("XC", TOGETHER),
        duplicates=1,
        **CHANGE,
    ),
}

# The first driver is of the previous protocol: a transactional id for each lane, no membership.
BY_LANE = "34GDxOTEyOTE"  # init the lanes' ids, read all positions, commit each lane in its own transaction
OLD: dict[str, Any] = {
    "n": 1,
    "running": "old",
    "tasks": ("lanes", "slots"),
    "program": "IRBTPE",
    "start": ("", BY_LANE),
    "starts": 1,
    "attempts": 3,
}
OLD_STARTS: dict[str, Any] = {**OLD, "start": BY_LANE, "starts": 2, "attempts": 1}
# As the job does: afterwards read all positions and commit them in one transaction with the driver's id.
OLD_SETTLED: dict[str, Any] = {**OLD_STARTS, "start": (BY_LANE, BY_LANE + "zGDIOTE"), "marked": True}
OLD_ALO: dict[str, Any] = {
    "guarantee": "MIX",
    "running": "old",
    "tasks": ("driver", "slots"),
    "program": ("XOTE", "IRBTPE"),
    "start": ("", "2" + BY_LANE),
    "starts": 1,
    "reuse": True,
}
MIGRATION = {
    "member-upgrade-together": unsafe(
        DIFFERS,
        "init the lanes' ids, read, one transaction for all lanes: an old task inits in between",
        **{**OLD, "start": ("", "34GDIOTE")},
    ),
    "member-upgrade-by-lane": safe("init the lanes' ids, read, commit each lane by its own id", **OLD),
    "member-upgrade-new-metadata": unsafe(
        DUPLICATED, "the same, an old driver does not understand the new numbers", old_reads_numbers=False, **OLD
    ),
    "member-upgrade-old-start": unsafe(
        BACKWARDS, "the same, an old start that has checked the empty group continues", **OLD_STARTS
    ),
    "member-upgrade-marked": safe(
        "the same, an old driver halts at a mark in new positions", marked=True, old_checks_group=False, **OLD_STARTS
    ),
    "member-upgrade-marked-tasks": safe(
        "the same, two tasks", slow=True, marked=True, old_checks_group=False, **{**OLD_STARTS, "attempts": 2}
    ),
    "member-upgrade-settled": safe(
        "each lane by its own id with the mark, then all lanes in one transaction; an old start as well", **OLD_SETTLED
    ),
    "member-upgrade-settled-tasks": safe("the same, two tasks", slow=True, **{**OLD_SETTLED, "attempts": 2}),
    "member-upgrade-marked-last": unsafe(
        BACKWARDS, "the same, only the transaction for all lanes has the mark", marked_last=True, **OLD_SETTLED
    ),
    "member-upgrade-alo": safe("an old at-least-once driver; a start also inits the pipeline's id", **OLD_ALO),
    "member-upgrade-alo-by-lane": unsafe(
        BACKWARDS, "the same without the pipeline's id", **{**OLD_ALO, "start": ("", BY_LANE)}
    ),
}

VARIANTS: dict[str, Variant] = {
    **EXACTLY_ONCE,
    **CONTROLS,
    **FOREIGN,
    **TOPICS,
    **LANES_TOPIC,
    **TWO_CLUSTERS,
    **OTHER_GUARANTEES,
    **MIGRATION,
}
