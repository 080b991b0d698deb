"""Runs `python -m tests.chaos --kills N --seed S`: the campaign under each guarantee, or of a stateful pipeline.

It prints a table. The exit code is 1 if a guarantee did not hold.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
import sys
import tempfile
from dataclasses import asdict, astuple, fields
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # the tests' own packages, as pytest has them

from rich.console import Console
from rich.table import Table

from ackwright.local.kafka import EmbeddedKafka
from ackwright_stream.jobspec import Guarantee
from chaos import network
from chaos.campaign import Campaign, Outcome
from chaos.plan import Fault
from chaos.soak import Sample, Series
from chaos.stateful import StatefulCampaign
from integration.support.spark_local import session


def table(outcomes: list[Outcome]) -> Table:
    """The outcomes, one line each, and a line for the total."""
    columns = ("guarantee", "rounds", "kills", "faults", "records", "lost", "duplicated", "out of order")
    table_ = Table(*columns, "seconds", "held", title=f"seed {outcomes[0].seed}")
    for o in outcomes:
        numbers = (o.rounds, o.kills.total(), o.faults.total(), *asdict(o.counts).values())
        rounds, kills, faults, records, lost, duplicated, _, disordered = numbers
        shown = (rounds, kills, faults, records, lost, duplicated, disordered, f"{o.seconds:.0f}")
        table_.add_row(o.guarantee, *map(str, shown), "no" if o.problems else "yes")
    return table_


def as_json(o: Outcome) -> dict[str, object]:
    return {**asdict(o), "kills": dict(o.kills), "faults": dict(o.faults), "held": not o.problems}


def parse_faults(names: str) -> list[Fault]:
    """The faults of a comma-separated list; "all" and "none" are lists as well."""
    if names in ("all", "none"):
        return list(Fault) if names == "all" else []
    try:
        return [Fault(name) for name in names.split(",")]
    except ValueError as e:
        raise argparse.ArgumentTypeError(f"{e}; choose from {', '.join(Fault)}, all, none") from None


def options_of(argv: list[str] | None = None) -> argparse.Namespace:
    arguments = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    arguments.add_argument("--kills", type=int, default=50, help="per guarantee (default 50)")
    arguments.add_argument(
        "--seed", type=int, default=None, help="repeats a campaign's plan; default: a new one, printed"
    )
    arguments.add_argument(
        "--guarantee", type=Guarantee, choices=list(Guarantee), action="append", help="default: all three"
    )
    arguments.add_argument(
        "--faults",
        type=parse_faults,
        default=list(Fault),
        metavar="LIST",
        help=f"beside the kills: all (default), none, or some of {','.join(Fault)}",
    )
    arguments.add_argument("--no-spark", action="store_true", help="leave the rounds with Spark out")
    arguments.add_argument(
        "--stateful", action="store_true", help="kill drivers of a stateful pipeline, and lose its state"
    )
    arguments.add_argument(
        "--soak",
        type=float,
        metavar="SECONDS",
        help="make kills for so long, and check that memory, threads and handles are flat; --kills does not count",
    )
    arguments.add_argument("--csv", type=Path, metavar="FILE", help="write the samples of --soak to this file")
    arguments.add_argument("-o", "--output", choices=["table", "json"], default="table")
    arguments.add_argument("-v", "--verbose", action="store_true", help="print every kill and fault")
    options = arguments.parse_args(argv)
    if options.stateful:
        if options.guarantee or options.soak is not None or options.no_spark or options.faults not in ([], list(Fault)):
            arguments.error("--stateful has neither --guarantee, --faults, --no-spark nor --soak")
        options.faults = []
    return options


def main() -> int:
    options = options_of()
    seed = random.randrange(1 << 31) if options.seed is None else options.seed
    faults = options.faults
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    if Fault.NETWORK in faults and not network.is_private():
        reason = network.unavailable()
        if reason is None:
            network.enter([sys.executable, "-m", "tests.chaos", *sys.argv[1:], "--seed", str(seed)])
        faults = [fault for fault in faults if fault is not Fault.NETWORK]
        console.print(f"left out: the network is not cut ({reason})", style="yellow")
    console.print(f"seed {seed}; faults: {', '.join(faults) or 'none'}")

    def tell(line: str) -> None:
        if options.verbose or not line.startswith("    "):
            console.print(line)

    outcomes, soaks = [], {}
    with EmbeddedKafka() as kafka, tempfile.TemporaryDirectory(prefix="ackwright-chaos-") as directory:
        if options.stateful:
            outcomes.append(StatefulCampaign(kafka, session(), seed, tell).run(Path(directory), options.kills))
        for guarantee in () if options.stateful else options.guarantee or list(Guarantee):
            campaign = Campaign(kafka, guarantee, seed, tell, faults=faults, spark=not options.no_spark)
            if options.soak is None:
                outcomes.append(campaign.run(Path(directory), options.kills))
            else:
                outcome, sampler = campaign.soak(Path(directory), options.soak)
                outcomes.append(outcome)
                soaks[guarantee] = sampler.judge()
                if options.csv:
                    write_csv(options.csv.with_stem(f"{options.csv.stem}-{guarantee}"), sampler.samples)
    if options.output == "json":
        series = {guarantee: [asdict(s) for s in judged] for guarantee, judged in soaks.items()}
        print(json.dumps([{**as_json(o), "soak": series.get(o.guarantee, [])} for o in outcomes], indent=2))
    else:
        out = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else 120)
        for guarantee, judged in soaks.items():
            out.print(soak_table(guarantee, judged))
        report(out, outcomes)
    return 1 if any(o.problems for o in outcomes) else 0


def write_csv(file: Path, samples: list[Sample]) -> None:
    """Writes one line for each process and moment."""
    with file.open("w", newline="") as text:
        writer = csv.writer(text)
        writer.writerow([f.name for f in fields(Sample)])
        writer.writerows(astuple(sample) for sample in samples)


def soak_table(guarantee: Guarantee, judged: list[Series]) -> Table:
    """The first and the last quarter of each measurement, one line for each generation of a process."""
    table_ = Table("process", "measurement", "samples", "first quarter", "last quarter", "flat", title=guarantee)
    for s in judged:
        unit = " MB" if s.measurement == "memory" else ""
        table_.add_row(
            s.name,
            s.measurement,
            str(s.samples),
            f"{s.first:g}{unit}",
            f"{s.last:g}{unit}",
            "yes" if s.flat else "no",
        )
    return table_


def report(out: Console, outcomes: list[Outcome]) -> None:
    out.print(table(outcomes))
    for o in outcomes:
        for what in (o.kills, o.faults):
            out.print(f"{o.guarantee}: {', '.join(f'{n} × {name}' for name, n in sorted(what.items())) or 'no faults'}")
        for problem in o.problems:
            out.print(f"{o.guarantee} did not hold: {problem}", style="red")


if __name__ == "__main__":
    sys.exit(main())
