"""Successions of the protocol's model (tests/model) for the page: with each rule off, with it on, and undisturbed.

A rule that is off has a shortest counterexample. With the rule on, the page plays the same steps as far as they are
possible, and what happens instead of the others.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from model import brokers as lanes
from model.__main__ import VARIANTS
from model.membership import brokers as group
from model.membership.config import TOGETHER
from model.membership.text import NAMES, describe
from model.model import Kind
from model.text import describe as describe_of_lane
from model.variants import START

from .protocol_steps import in_words, why

Goal = Callable[[str, Any, str | None], bool]  # of a step: label, state or None, violation or None
Path = list[tuple[str, Any, str | None]]  # label, state or None, violation


@dataclass(frozen=True)
class Rule:
    """A rule with its switch. Without a variant the model does not have it."""

    number: int
    off: str  # what the protocol does without the rule
    variant: str = ""
    on: tuple[tuple[str, Any], ...] = ()  # the parameters with the rule on


RULES = (
    Rule(1, "Offsets are committed without the membership.", "member-none", (("membership", "offsets"),)),
    Rule(2, "A producer carries two transactions in one epoch.", "eo-reuse", (("reuse", False),)),
    Rule(
        3,
        "A task does not read the positions after it has initialised its transactional id.",
        "member-unread",
        (("program", (TOGETHER, TOGETHER)),),
    ),
    Rule(
        4,
        "No record shows that a lane had a position.",
        "init-lane-forgets",
        (("start", (START, START)), ("check_records", True)),
    ),
    Rule(5, "A query that restarts keeps its old membership.", "member-same-restart", (("join", True),)),
    Rule(
        6,
        "A task claims its range by a plain commit.",
        "amo-plain",
        (("program", ("IROTEX", "IROTEX")), ("start", ("I", "I"))),
    ),
    Rule(7, "The model gives a lane one range in a batch; the job refuses everything else."),
    Rule(
        8,
        "A driver compares positions with the topic id that its first start has read.",
        "member-recreated-snapshot",
        (("topic_snapshot", False),),
    ),
    Rule(9, "A start does not wait for pending positions.", "member-unstable-start", (("stable_start", True),)),
    Rule(10, "A test on real brokers shows what another member does."),
    Rule(11, "Brokers do not verify transactional offset commits.", "eo-unverified", (("verify", True),)),
    Rule(12, "A test on real clients shows what an uncounted row does."),
    Rule(
        13,
        "A range without rows is committed by a plain commit.",
        "filtered-plain",
        (("filtered_program", "IROTE"),),
    ),
    Rule(
        14,
        "A deposed group coordinator answers. The protocol does not close this window.",
        "eo-deposed-coordinator",
        (("stale_reads", 0),),
    ),
)


@dataclass(frozen=True)
class Story:
    """A safe succession: the shortest one in which these steps occur in this order, and all output is committed."""

    title: str
    steps: tuple[str, ...]  # regular expressions of labels


PLAN = r"plans slot 0: \[\(0, 0, 1\), \(1, 0, 1\)\]$"
STORIES = (
    Story("A batch with one task", (f"D1 {PLAN}", r"D1 task: EndTxn")),
    Story(
        "A batch with two tasks", (r"D1 plans slot 0.*slot 1", r"D1 task: EndTxn.*slot 0", r"D1 task: EndTxn.*slot 1")
    ),
    Story(
        "A second driver takes over while a task begins its transaction",
        (
            f"D1 {PLAN}",
            r"D1 task: AddOffsetsToTxn",
            r"D2 starts",
            r"D1 task: TxnOffsetCommit.*refused",
            r"D2 start: EndTxn",
            f"D2 {PLAN}",
            r"D2 task: EndTxn",
        ),
    ),
    Story(
        "A task is attempted again while its first attempt runs",
        (f"D1 {PLAN}", r"D1 task: Produce", r"another attempt", r"InitProducerId.*aborts", r"task: reads", r"EndTxn"),
    ),
    Story(
        "A query restarts, and its task had committed",
        (f"D1 {PLAN}", r"D1 task: EndTxn", r"D1 restarts", r"D1 start: reads \[\(1,", r"D1 start: EndTxn"),
    ),
)


def counterexample(name: str) -> Path:
    """The shortest path to a violation of an unsafe variant."""
    model = VARIANTS[name].model(VARIANTS[name].cfg)
    return shortest(model, lambda _label, _state, violation: violation is not None)


def shortest(model: Any, is_goal: Goal, steps: Sequence[str] = ()) -> Path:
    """The shortest path that has labels for all steps, in their order, and then reaches the goal."""
    first = (model.initial(), 0)
    parents: dict[Any, tuple[Any, str] | None] = {first: None}
    frontier = [first]
    while frontier:
        following = []
        for node in frontier:
            state, done = node
            for label, t, at_step in model.successors(state):
                violation = at_step or (model.check(t) if t else None)
                now = done + (done < len(steps) and bool(re.search(steps[done], label)))
                if now == len(steps) and is_goal(label, t, violation):
                    return [*((b, a[0], None) for b, a, _ in _chain(parents, node)), (label, t, violation)]
                if t is not None and not violation and (t, now) not in parents:
                    parents[t, now] = (node, label)
                    following.append((t, now))
        frontier = following
    raise ValueError(f"no path through {list(steps)}")


def protected(rule: Rule, steps: Path) -> tuple[Any, Path]:
    """The model with the rule on, and a path along the counterexample that ends well.

    A step that is not possible at once follows after at most MISSED others, or is left out. Then the path continues to
    the nearest state in which everything is delivered, or in which the driver halts.
    """
    variant = VARIANTS[rule.variant]
    model = variant.model(replace(variant.cfg, **dict(rule.on)))
    state, path = model.initial(), []
    for expected, _, _ in steps:

        def is_expected(label: str, t: Any, violation: str | None, expected: str = expected) -> bool:
            return t is not None and not violation and _same(label, expected)

        piece = _from(model, state, is_expected, MISSED)
        path += piece
        state = piece[-1][1] if piece else state
    return model, [*path, *_from(model, state, ends_well, 30)]


MISSED = 3
EVENTS = r"starts|restarts|another attempt|expire|times out|late copy|recreated"


def _from(model: Any, state: Any, is_goal: Goal, depth: int) -> Path:
    """The shortest path from a state to a goal, of at most `depth` steps before the last; without further failures."""
    parents: dict[Any, tuple[Any, str] | None] = {state: None}
    frontier = [state]
    for _ in range(depth + 1):
        following = []
        for s in frontier:
            for label, t, at_step in model.successors(s):
                violation = at_step or (model.check(t) if t else None)
                if violation:
                    raise ValueError(f"the rule does not prevent: {label}: {violation}")
                if is_goal(label, t, violation):
                    return [*_chain(parents, s), (label, t, None)]
                if t not in parents and not re.search(EVENTS, label):
                    parents[t] = (s, label)
                    following.append(t)
        frontier = following
    return []


def _chain(parents: dict[Any, tuple[Any, str] | None], state: Any) -> Path:
    path: Path = []
    while (parent := parents[state]) is not None:
        path.insert(0, (parent[1], state, None))
        state = parent[0]
    return path


def ends_well(label: str, t: Any, violation: str | None) -> bool:
    """Whether everything is delivered, or a driver halts."""
    if t is None or violation or "halt" in label:
        return "halt" in label
    if isinstance(t, group.State):
        positions = [group.committed(log) for log in t.offsets]
        return (
            not any(x[1] for x in t.txns)
            and not any(map(group.pending, t.offsets))
            and all(p and p[0] == 1 for p in positions)
        )
    ended = (lanes.EMPTY, lanes.COMPLETE_COMMIT, lanes.COMPLETE_ABORT)
    return not t.attempts and all(x[lanes.STATE] in ended for x in t.lanes)


def _same(a: str, b: str) -> bool:
    """Whether two labels name the same step, whatever its result."""
    variable = r", (member|epoch) -?\d+| as member \d+|( position)? (None|\d+|\[[^]]*\])( for .*)?: .*| -> .*| \(.*\)$"
    return re.sub(variable, "", a) == re.sub(variable, "", b)


# ------------------------------------------------------------ views


def view(state: Any) -> dict[str, Any]:
    """A state as the page draws it."""
    return _view_of_group(state) if isinstance(state, group.State) else _view_of_lanes(state)


MODES = {
    "N": "not started", "S": "starts", "F": "starts", "R": "starts", "I": "idle", "B": "in a batch", "T": "stops",
    "D": "done", "H": "halted",
}  # fmt: skip
STATES = ("", "open", "commits", "aborts", "committed")
LANE_STATES = ("", "open", "commits", "aborts", "committed", "aborted")


def _view_of_group(s: group.State) -> dict[str, Any]:
    def by(tid: int) -> str:
        return "another program" if tid == group.FOREIGN else NAMES[tid]

    rows = {lane: [_row(e[2], e[3], by(e[0]) if e[0] >= 0 else "") for e in s.logs[lane]] for lane in group.LANES}
    offsets = {lane: group.committed(s.offsets[lane]) for lane in group.LANES}
    return {
        "member": s.member,
        "drivers": [
            _driver(i, d.mode, [f"member {d.member}"] if d.member > 0 else [], s.attempts)
            for i, d in enumerate(s.drivers)
        ],
        "lanes": [
            {
                "position": offsets[lane][0] if offsets[lane] else None,
                "by": f"driver number {offsets[lane][1]}" if offsets[lane] and offsets[lane][1] else "",
                "pending": [[e[2][0], by(e[0])] for e in s.offsets[lane] if e[0] != group.COMMITTED],
                "rows": rows[lane],
                "recorded": group.committed(s.records[lane]) is not None,
            }
            for lane in group.LANES
        ],
        "ids": [
            {"name": NAMES[i], "epoch": t[0], "state": STATES[t[1]]}
            for i, t in enumerate(s.txns)
            if i < group.LANE_IDS[0]
        ],
        "late": [describe(m) for m in s.net],
    }


def _view_of_lanes(s: Any) -> dict[str, Any]:
    def lane(x: Any) -> dict[str, Any]:
        return {
            "position": lanes.position(x),
            "by": "",
            "pending": [[e[1], f"producer {e[0]}"] for e in x[lanes.OFFSETS] if e[0]],
            "rows": [_row(e[1], e[2], f"producer {e[0]}" if e[3] else "") for e in x[lanes.LOG]],
            "recorded": lanes.recorded(x),
        }

    return {
        "member": None,
        "drivers": [_driver(i, d.mode, [], s.attempts) for i, d in enumerate(s.drivers)],
        "lanes": [lane(x) for x in s.lanes],
        "ids": [
            {"name": f"lane {i}'s id", "epoch": x[lanes.EPOCH], "state": LANE_STATES[x[lanes.STATE]]}
            for i, x in enumerate(s.lanes)
        ],
        "late": [describe_of_lane(m) for m in s.net],
    }


def _row(start: int, until: int, open_by: str) -> dict[str, Any]:
    return {"from": start, "until": until, "open": open_by}


def _driver(index: int, mode: str, notes: list[str], attempts: Sequence[Any]) -> dict[str, Any]:
    """A driver with what it runs: a start, or tasks with their epochs."""

    def name(a: Any) -> str:
        if hasattr(a, "ranges"):
            kind = ("start", "task", "stop", "abandoned range")[a.kind]
        else:
            kind = "start" if a.kind == Kind.START else "task"
        return f"{kind}, epoch {a.epoch}" if a.epoch else kind

    return {
        "name": f"D{index + 1}",
        "mode": MODES[mode],
        "notes": notes,
        "attempts": [name(a) for a in attempts if a.driver == index],
    }


def succession(model: Any, path: Path) -> dict[str, Any]:
    """A path as the page plays it: the first view, and each step with the view after it."""
    return {
        "first": view(model.initial()),
        "steps": [
            {"label": in_words(label), "why": why(label), "view": view(t) if t is not None else None}
            for label, t, _ in path
        ],
        "violation": path[-1][2],
    }


def rules() -> Iterator[dict[str, Any]]:
    """The rules, those with a variant with both successions."""
    for rule in RULES:
        exported: dict[str, Any] = {"number": rule.number, "off": rule.off, "variant": rule.variant}
        if rule.variant:
            path = counterexample(rule.variant)
            variant = VARIANTS[rule.variant]
            model, safe = protected(rule, path)
            exported["without"] = succession(variant.model(variant.cfg), path)
            exported["with"] = succession(model, safe)
        yield exported


def stories() -> Iterator[dict[str, Any]]:
    """The safe successions with all rules on."""
    for story in STORIES:
        variant = VARIANTS["member-timeout"]
        cfg = replace(variant.cfg, timeouts=0)
        model = variant.model(cfg)

        yield {"title": story.title, **succession(model, shortest(model, ends_well, story.steps))}


def protocol(page: str) -> dict[str, Any]:
    """Everything that the page shows of the protocol. page: docs/protocol.md, with the rules' sentences."""
    sentences = dict(re.findall(r"^### Rule (\d+)\n\n\*\*(.*?)\*\*", page, re.MULTILINE | re.DOTALL))
    return {
        "rules": [{**r, "rule": " ".join(sentences[str(r["number"])].replace("`", "").split())} for r in rules()],
        "stories": list(stories()),
    }
