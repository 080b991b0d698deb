"""Runs `python -m tests.chaos --kills N --seed S`: the campaign under each guarantee.

It prints a table. The exit code is 1 if a guarantee did not hold.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # the tests' own packages, as pytest has them

from rich.console import Console
from rich.table import Table

from ackwright.local.kafka import EmbeddedKafka
from ackwright_stream.jobspec import Guarantee
from chaos.campaign import Campaign, Outcome


def table(outcomes: list[Outcome]) -> Table:
    table_ = Table(
        "guarantee", "sent", "kills", "lost", "duplicated", "seconds", "held", title=f"seed {outcomes[0].seed}"
    )
    for o in outcomes:
        counts = (o.guarantee, o.sent, o.kills.total(), o.verdict.lost, o.verdict.duplicated, f"{o.seconds:.0f}")
        table_.add_row(*map(str, counts), "no" if o.problems else "yes")
    return table_


def main() -> int:
    arguments = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    arguments.add_argument("--kills", type=int, default=50, help="per guarantee (default 50)")
    arguments.add_argument(
        "--seed", type=int, default=None, help="repeats a campaign's plan; default: a new one, printed"
    )
    arguments.add_argument(
        "--guarantee", type=Guarantee, choices=list(Guarantee), action="append", help="default: all three"
    )
    options = arguments.parse_args()
    seed = random.randrange(1 << 31) if options.seed is None else options.seed
    console = Console(stderr=True)
    console.print(f"seed {seed}")
    with EmbeddedKafka() as kafka, tempfile.TemporaryDirectory(prefix="ackwright-chaos-") as directory:
        outcomes = [
            Campaign(kafka, guarantee, seed, lambda line: console.print(line, highlight=False)).run(
                Path(directory), options.kills
            )
            for guarantee in options.guarantee or list(Guarantee)
        ]
    out = Console()
    out.print(table(outcomes))
    for o in outcomes:
        out.print(
            f"{o.guarantee}: {', '.join(f'{n} × {kill}' for kill, n in sorted(o.kills.items()))}", highlight=False
        )
        for problem in o.problems:
            out.print(f"{o.guarantee} did not hold: {problem}", style="red", highlight=False)
    return 1 if any(o.problems for o in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
