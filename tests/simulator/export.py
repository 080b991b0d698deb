"""Writes the files of simulator/ that come from the Python models.

golden.json: successions of states that the page's transition function must reproduce. scenarios.json: the named
successions. protocol.json: counterexamples and safe successions of tests/model.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .counts import counts
from .protocol import protocol
from .scenarios import SCENARIOS
from .state import Settings, State, initial, plain, refusal
from .step import actions, step

SIMULATOR = Path(__file__).parents[2] / "simulator"
PROTOCOL = Path(__file__).parents[2] / "docs" / "protocol.md"
DEPTH = 4  # of the exhaustive successions
WALKS, STEPS = 400, 30  # random successions, over all settings
SEED = 17
# Successions that random ones hardly contain: an unclean election loses an acknowledged sequence number.
_GAP = "send deliver replicate deliver-ack lag-2 send deliver deliver-ack kill-leader send deliver"
RARE = tuple(
    (Settings(replicas=2, min_insync=1, unclean=True, transactions=transactions), _GAP.split())
    for transactions in (False, True)
)


def digest(values: Any) -> str:
    """A hash of JSON values that TypeScript computes in the same way: sorted keys, no spaces."""
    text = json.dumps(values, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def all_settings() -> Iterator[Settings]:
    """Every combination of settings, refused ones as well."""
    flags = (False, True)
    for values in itertools.product(
        ("0", "1", "all"), flags, flags, flags, (1, 2, 3), (1, 2, 3), flags, ("before", "after", "transaction")
    ):
        yield Settings(*values)


def observed(s: Settings, t: State) -> Any:
    """Everything that the page shows of a state: the state, its counter, and the possible actions."""
    return [plain(t), counts(s, t)._asdict(), list(actions(s, t))]


def walk(s: Settings, path: list[str]) -> list[Any]:
    """The steps of a succession: action, reason, the number of the sentence, hash of what the page shows."""
    t, steps = initial(s), []
    for action in path:
        t, reason, number = step(s, t, action)
        steps.append([action, reason, number, digest(observed(s, t))])
    return steps


LIKELY = ("deliver", "commit", "replicate", "poll", "process", "return")  # actions that begin like this
UNLIKELY = ("lag", "lose", "kill", "time", "replace", "pause")


def random_path(s: Settings, rng: random.Random, calm: bool) -> list[str]:
    """A random succession. calm: steps that bring records forward are much likelier than failures."""
    t = initial(s)
    path: list[str] = []
    while len(path) < STEPS and (possible := actions(s, t)):
        likely = 12 if calm else 4
        weights = [likely if a.startswith(LIKELY) else 1 if a.startswith(UNLIKELY) else 4 for a in possible]
        action = rng.choices(possible, weights)[0]
        t = step(s, t, action).state
        path.append(action)
    return path


def exhaustive(s: Settings, depth: int = DEPTH) -> dict[str, Any]:
    """The number and the hash of all steps that are possible within `depth` actions."""
    frontier, known, lines = [initial(s)], {initial(s)}, set[str]()
    for _ in range(depth):
        following = []
        for t in frontier:
            for action in actions(s, t):
                after, reason, number = step(s, t, action)
                lines.add(digest([plain(t), action, reason, number, observed(s, after)]))
                if after not in known:
                    known.add(after)
                    following.append(after)
        frontier = following
    return {"settings": asdict(s), "steps": len(lines), "hash": digest(sorted(lines))}


def golden() -> dict[str, Any]:
    """The successions: every one of DEPTH actions for a sample of settings, random long ones for all settings."""
    rng = random.Random(SEED)
    valid = [s for s in all_settings() if refusal(s) is None]
    sample = [Settings(), *rng.sample(valid, 23)]
    walks = [{"settings": asdict(s), "steps": walk(s, path)} for s, path in RARE]
    for n in range(WALKS):
        s = valid[n * len(valid) // WALKS]
        walks.append({"settings": asdict(s), "steps": walk(s, random_path(s, rng, calm=n % 2 == 0))})
    return {
        "refusals": [[asdict(s), refusal(s)] for s in all_settings() if refusal(s)],
        "accepted": len(valid),
        "depth": DEPTH,
        "exhaustive": [exhaustive(s) for s in sample],
        "walks": walks,
    }


def scenarios() -> list[dict[str, Any]]:
    """The named successions, as the page and its tests read them."""
    return [
        {
            "name": x.name,
            "title": x.title,
            "settings": asdict(x.settings),
            "actions": list(x.actions),
            "end": x.end()[1]._asdict(),
        }
        for x in SCENARIOS
    ]


def _lines(values: Any) -> str:
    return json.dumps(values, sort_keys=True, separators=(",", ":")).replace('},{"', '},\n{"') + "\n"


FILES: dict[Path, Callable[[], str]] = {
    SIMULATOR / "test" / "golden.json": lambda: _lines(golden()),
    SIMULATOR / "src" / "scenarios.json": lambda: json.dumps(scenarios(), indent=1) + "\n",
    SIMULATOR / "src" / "protocol.json": lambda: _lines(protocol(PROTOCOL.read_text())),
}


def main() -> int:
    p = argparse.ArgumentParser(prog="python -m simulator.export", description=__doc__)
    p.add_argument("--check", action="store_true", help="write nothing; exit code 1 if a file is not current")
    check = p.parse_args().check
    stale = False
    for file, content in FILES.items():
        text = content()
        if not file.exists() or file.read_text() != text:
            stale = True
            print(f"{'not current' if check else 'written'}: {file.name}")
            if not check:
                file.write_text(text)
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
