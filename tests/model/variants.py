"""The searches: the protocol, its variants and its negative controls, each with the expected verdict.

A program is a string of the steps in config.STEPS.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from . import search
from .config import Cfg
from .model import Model

ROWS_FIRST = "IRAPOTE"  # init, read, AddPartitions, Produce, AddOffsets, TxnOffsetCommit, EndTxn
OFFSETS_FIRST = "IROTAPE"  # the code's order: a fenced task fails before it produces a row
TOGETHER = "IR(OT|AP)E"  # librdkafka sends enqueued rows while send_offsets_to_transaction waits
START = "IUQ(LM|OT)E"  # initialisation of a lane: init, lanes topic, position; then position and record together
ADOPT = "IUK(LM|OT)E"  # the same for an adopted group: its position is committed again, with the record

DUPLICATED = "duplicated or out of order"
DIFFERS = "but the committed output is"
PENDING = "a pending offset that nothing will end"
BACKWARDS = "position moves backwards"
TWICE = "more than once"
LOST = "lost"
FALSE_HALT = "halts, but no position was ever lost"


@dataclass(frozen=True)
class Variant:
    """One search."""

    about: str
    cfg: Any  # the parameters of the model
    violation: str | None = None  # part of the expected violation's text; None: safe
    slow: bool = False  # not part of the test suite
    model: Callable[[Any], search.Model[Any]] = Model


def safe(about: str, slow: bool = False, **cfg: Any) -> Variant:
    """A variant without a violation."""
    return Variant(about, Cfg(**{k: both(k, v) for k, v in cfg.items()}), None, slow)


def unsafe(violation: str, about: str, slow: bool = False, **cfg: Any) -> Variant:
    """A variant that must end with a violation."""
    return Variant(about, Cfg(**{k: both(k, v) for k, v in cfg.items()}), violation, slow)


def both(key: str, value: Any) -> Any:
    """The value for both drivers, if the key's values are per driver."""
    return (value, value) if key in ("program", "start") and isinstance(value, str) else value


# The main variants also run with the code's two orders of requests, see `ordered`.
MAIN = {
    "eo": safe("two drivers, 3 tasks, a retried request, a timeout", slow=True, attempts=3),
    "eo-2-tasks": safe("the same with two tasks"),
    "eo-restarts": safe("with a driver that restarts its query", slow=True, starts=3),
    "eo-two-retries": safe("two retried requests", slow=True, duplicates=2, timeouts=0, attempts=3),
    "eo-epochs-used-up": safe("epochs end after 2 (new producer ids)", slow=True, max_epoch=2, attempts=3),
    "eo-id-expires": safe("the transactional.id expires once", slow=True, id_expiry=1),
    "eo-position-expires-halt": safe("the position expires, tasks halt", position_expiry=1),
    "eo-old-coordinator": safe(
        "offsets materialise after the marker (Kafka before 4), require_stable", asynchronous=True
    ),
}


def ordered(program: str, name: str, about: str, slow: tuple[str, ...] = ()) -> dict[str, Variant]:
    """The main variants with another order of a task's requests. slow: the variants that are slow in this order."""
    return {
        f"{key}-{name}": Variant(
            f"{v.about}; {about}", replace(v.cfg, program=(program, program)), slow=v.slow or key in slow
        )
        for key, v in MAIN.items()
    }


EXACTLY_ONCE = {
    **{key: replace(v, slow=True) for key, v in MAIN.items()},  # rows first; the code's two orders follow
    **ordered(OFFSETS_FIRST, "offsets-first", "offsets, then rows"),
    **ordered(
        TOGETHER, "together", "offsets and rows concurrently", slow=("eo-position-expires-halt", "eo-old-coordinator")
    ),
    "eo-n3": safe("three offsets: other boundaries of batches", slow=True, n=3, attempts=3, timeouts=0),
    "eo-4-tasks": safe("four tasks (speculation on both sides)", slow=True, attempts=4, program="IRBPTE", timeouts=0),
    "eo-two-lanes": safe(
        "two lanes, one offset each", slow=True, n=1, lanes=2, attempts=3, program="IRBPTE", timeouts=0, duplicates=0
    ),
    "eo-two-lanes-n2": safe(
        "two lanes, two offsets each", lanes=2, attempts=4, starts=1, program="IRBPTE", timeouts=0, duplicates=0
    ),
    "eo-no-start-fence": safe("drivers read positions without fencing first", slow=True, start="", attempts=3),
    "eo-drop-rows": safe("position inside the range: drop the rows below it", slow=True, between="drop", attempts=3),
    "eo-large": safe(
        "three offsets, four tasks, a retry, a timeout (takes minutes)", slow=True, n=3, attempts=4, program="IRBPTE"
    ),
    "eo-settle": safe(
        "a starting driver commits each position again, in the transaction of its init",
        start="IHOTE",
        program=OFFSETS_FIRST,
        timeouts=0,
    ),
    "eo-settle-plain": unsafe(
        BACKWARDS, "the same by OffsetCommit", start="IHC", program=OFFSETS_FIRST, timeouts=0, duplicates=0
    ),
    "eo-prepared": safe(
        "a producer initialised in advance, position read later (not in the code)", slow=True, prepares=2
    ),
    # ---- negative controls
    "eo-read-first": unsafe(DUPLICATED, "position read before init", program="RIAPOTE"),
    "eo-read-first-together": unsafe(DUPLICATED, "the same in the code's order", program="RI(OT|AP)E"),
    "eo-reuse": unsafe(
        DIFFERS, "one producer for two transactions, in the same epoch", reuse=True, starts=1, attempts=3, timeouts=0
    ),
    "eo-reuse-unverified": unsafe(
        PENDING, "the same, brokers do not verify", reuse=True, starts=1, attempts=3, timeouts=0, verify=False
    ),
    "eo-reuse-tv2": safe(
        "the same under KIP-890 part 2 (not in librdkafka)", slow=True, reuse=True, tv2=True, attempts=3, timeouts=0
    ),
    "eo-unverified": unsafe(PENDING, "brokers do not verify (before 3.6/3.7, or disabled)", verify=False),
    "eo-unverified-together": unsafe(PENDING, "the same in the code's order", program=TOGETHER, verify=False),
    "eo-old-coordinator-unstable": unsafe(
        DUPLICATED, "offsets materialise after the marker, no require_stable", asynchronous=True, stable=False
    ),
    "eo-unstable": safe("Kafka 4 without require_stable (init waits for the markers)", slow=True, stable=False),
    "eo-position-expires-assume": unsafe(
        DUPLICATED, "a missing position is read as the start", position_expiry=1, missing="assume"
    ),
    "eo-deposed-coordinator": unsafe(DUPLICATED, "a position comes from a deposed group coordinator", stale_reads=1),
    # ---- commits outside the lane's transaction
    "heartbeat-plain": unsafe(
        DIFFERS,
        "a driver commits an idle position again by OffsetCommit",
        heartbeat="HC",
        heartbeats=1,
        duplicates=0,
        timeouts=0,
        monotone=False,
    ),
    "heartbeat-lane": safe(
        "the same through the lane's fenced transaction", slow=True, heartbeat="IHOTE", heartbeats=1, timeouts=0
    ),
    "filtered-plain": unsafe(
        BACKWARDS,
        "a range without rows is committed by OffsetCommit",
        filtered=frozenset({0}),
        filtered_program="C",
        duplicates=0,
        timeouts=0,
    ),
    "filtered-lane": safe(
        "a range without rows goes through the lane's transaction",
        filtered=frozenset({0}),
        filtered_program="IROTE",
        timeouts=0,
    ),
}

# The first position of a lane.
NEW: dict[str, Any] = {"initialised": False, "program": OFFSETS_FIRST, "timeouts": 0}
EXPIRES: dict[str, Any] = {**NEW, "position_expiry": 1}
SMALLER: dict[str, Any] = {**EXPIRES, "attempts": 1, "duplicates": 0}
ONE: dict[str, Any] = {**EXPIRES, "n": 1, "attempts": 1, "duplicates": 0}
ADOPTED: dict[str, Any] = {**ONE, "initialised": True}
INITIALISATION = {
    "init-plain": unsafe(
        BACKWARDS, "by OffsetCommit if the position is missing", start="QC", **{**NEW, "duplicates": 0}
    ),
    "init-fence-plain": unsafe(BACKWARDS, "the same after fencing", start="IQC", **{**NEW, "duplicates": 0}),
    "init-lane": safe("init, read, commit in the lane's transaction only if missing", slow=True, start="IQOTE", **NEW),
    "init-lane-latest": safe(
        "the same, drivers resolve latest differently", slow=True, start="IQOTE", starting_offset=(0, 1), **NEW
    ),
    "init-lane-forgets": unsafe(
        DIFFERS,
        "the same, a position expires, and no record shows that it existed",
        start="IQOTE",
        **{**EXPIRES, "duplicates": 0},
    ),
    # ---- the code's order: lanes topic read between init and position, record and first position in one transaction
    "init-lane-recorded": safe("position and record in one transaction", start=START, check_records=True, **NEW),
    "init-lane-recorded-expires": safe(
        "the same, a position expires: halts", slow=True, start=START, check_records=True, **EXPIRES
    ),
    "init-lane-recorded-latest": safe(
        "the same, drivers resolve latest differently",
        slow=True,
        start=START,
        starting_offset=(0, 1),
        check_records=True,
        **EXPIRES,
    ),
    "init-lane-recorded-timeout": safe(
        "the same, a transaction times out, a position expires",
        start=START,
        check_records=True,
        **{**EXPIRES, "timeouts": 1, "duplicates": 0},
    ),
    "init-lane-recorded-reread": safe(
        "position, lanes topic, position again: equivalent to the lanes topic first",
        start="IQUQ(LM|OT)E",
        check_records=True,
        **SMALLER,
    ),
    # ---- an adopted group: its positions are older than any record of them
    "adopt-recorded": safe(
        "the position again and the record in one transaction, a position expires: halts", start=ADOPT, **ADOPTED
    ),
    "adopt-unrecorded": unsafe(DIFFERS, "the same, only missing positions get a record", start=START, **ADOPTED),
    # ---- the lanes topic read at another time
    "init-ledger-after-position": unsafe(
        FALSE_HALT, "lanes topic read after the position: another driver commits in between", start="IQV(LM|OT)E", **NEW
    ),
    "init-ledger-after-position-safe": safe(
        "the same, without the check for unjustified halts",
        slow=True,
        start="IQV(LM|OT)E",
        check_records=True,
        no_false_halt=False,
        **EXPIRES,
    ),
    "init-ledger-before-init": unsafe(
        DIFFERS, "lanes topic read before init: another driver commits in between", start="UIQ(LM|OT)E", **ONE
    ),
    # ---- the record in a separate step
    "init-recorded-before": unsafe(FALSE_HALT, "record first: a crash in between", start="IUQNOTE", **NEW),
    "init-recorded-before-safe": safe(
        "the same, without the check for unjustified halts",
        start="IUQNOTE",
        no_false_halt=False,
        **{**EXPIRES, "duplicates": 0},
    ),
    "init-recorded-after": unsafe(
        DIFFERS,
        "record second: a crash in between, then the position expires",
        start="IUQOTEN",
        **{**ONE, "starts": 3},
    ),
}

# X comes after the claim. A driver may abandon a batch at any time before it is done.
AMO: dict[str, Any] = {"guarantee": "AMO", "program": "IROTEX"}
ABANDONS: dict[str, Any] = {**AMO, "abandons": 1, "attempts": 3}
SMALL: dict[str, Any] = {**ABANDONS, "duplicates": 0, "timeouts": 0, "speculation": False}
UNREAD: dict[str, Any] = {**SMALL, "attempts": 4}
AT_MOST_ONCE = {
    "amo-plain": unsafe(
        TWICE,
        "claim by OffsetCommit, then process",
        guarantee="AMO",
        program="RCX",
        start="",
        duplicates=0,
        speculation=False,
        monotone=False,
    ),
    "amo-plain-fenced-start": unsafe(
        TWICE,
        "the same, drivers fence when they start",
        guarantee="AMO",
        program="RCX",
        duplicates=0,
        speculation=False,
        monotone=False,
    ),
    "amo-lane": safe("claim in the lane's transaction, then process", slow=True, attempts=4, **AMO),
    "amo-lane-2-tasks": safe("the same with two tasks", **AMO),
    "amo-abandon": safe(
        "a driver abandons a range: init, read, only from `from`, no processing", abandon="IROTE", **SMALL
    ),
    "amo-abandon-3-tasks": safe(
        "the same with three tasks, a retry, a timeout", slow=True, abandon="IROTE", **ABANDONS
    ),
    "amo-abandon-unread": unsafe(BACKWARDS, "abandoned without reading the position", abandon="IOTE", **SMALL),
    "amo-abandon-unread-twice": unsafe(TWICE, "the same, in the output", abandon="IOTE", monotone=False, **UNREAD),
    "amo-abandon-plain": unsafe(BACKWARDS, "abandoned by OffsetCommit after reading", abandon="RC", **SMALL),
    "amo-reuse": unsafe(TWICE, "one epoch for all claims of a driver", slow=True, reuse=True, attempts=3, **AMO),
    "amo-reuse-unverified": unsafe(
        PENDING, "the same, brokers do not verify", reuse=True, attempts=3, verify=False, **AMO
    ),
}

# X comes before the commit.
ALO: dict[str, Any] = {"guarantee": "ALO"}
AT_LEAST_ONCE = {
    "alo-plain-loss": safe(
        "process, then OffsetCommit: is anything lost?",
        slow=True,
        program="XC",
        start="",
        monotone=False,
        n=3,
        attempts=4,
        starts=3,
        **ALO,
    ),
    "alo-plain-backwards": unsafe(
        BACKWARDS,
        "process, then OffsetCommit: does the position move backwards?",
        program="XC",
        start="",
        n=3,
        attempts=4,
        speculation=False,
        **ALO,
    ),
    "alo-init-latest": unsafe(
        LOST,
        "lane initialised by OffsetCommit with different latest",
        program="XC",
        start="QC",
        starting_offset=(0, 1),
        initialised=False,
        monotone=False,
        duplicates=0,
        **ALO,
    ),
    "alo-driver": safe(
        "one init per driver; process, read, commit only forwards, in one epoch",
        slow=True,
        program="IXWOTE",
        reuse=True,
        attempts=3,
        **ALO,
    ),
    "alo-driver-2-tasks": safe("the same with two batches", program="IXWOTE", reuse=True, **ALO),
    "alo-commit-first": unsafe(LOST, "commit, then process", program="IWOTEX", reuse=True, **ALO),
    "alo-lane": safe(
        "process, init, read, commit only forwards, in the lane's transaction",
        slow=True,
        program="XIWOTE",
        attempts=3,
        **ALO,
    ),
    "alo-lane-latest": safe(
        "the same with lanes initialised in their transactions, different latest",
        program="XIWOTE",
        start="IQOTE",
        starting_offset=(0, 1),
        initialised=False,
        timeouts=0,
        **ALO,
    ),
}

# The guarantee changes while the old driver still runs.
MIX: dict[str, Any] = {"guarantee": "MIX", "duplicates": 0, "timeouts": 0, "attempts": 4, "starts": 3, "slow": True}
CHANGES = {
    "change-plain": unsafe(
        "transactional output",
        "an at-least-once zombie (OffsetCommit) and an exactly-once driver",
        program=("XC", ROWS_FIRST),
        start=("", "I"),
        monotone=False,
        **MIX,
    ),
    "change-lane": safe(
        "an at-least-once zombie that commits in the lane's transaction", program=("XIWOTE", ROWS_FIRST), **MIX
    ),
    "change-lane-offsets-first": safe("the same, offsets before rows", program=("XIWOTE", OFFSETS_FIRST), **MIX),
}

VARIANTS: dict[str, Variant] = {**EXACTLY_ONCE, **INITIALISATION, **AT_MOST_ONCE, **AT_LEAST_ONCE, **CHANGES}
