"""ackwright explain: the chain from the upstream producer to the downstream consumer, link by link, and its weakest
link."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import click
from rich.console import Console
from rich.text import Text

from ackwright.cli import next_runs
from ackwright.cli.failures import print_errors, warnings_of
from ackwright.cli.output import OutputFormat, console, emit, file_option, output_option, print_pairs, settings_table
from ackwright.planning.chain import Chain, chain
from ackwright.planning.guarantees import Setting, values
from ackwright.planning.plan import ClientSettings, DeliveryPlan, load_judged
from ackwright.sinks.base import Link

# The settings that carry the guarantee: of each link the first of these that it has. The others serve or speed it up.
_CARRYING = (
    "advance",
    "isolation.level",
    "acks",
    "replication.factor",
    "synchronous_commit",
    "spark.task.maxFailures",
)


@click.command()
@file_option
@click.option("--details", is_flag=True, help="Also every setting with its reason, and client settings for both ends.")
@output_option
def explain(file: Path, details: bool, output: OutputFormat) -> None:
    """Show, link by link, what keeps the guarantee, and the weakest link.

    --details shows what each setting protects against, and client settings for the applications that write the source
    and read the sink. JSON and YAML always have all of it.
    """
    _, plan, warnings = load_judged(file)
    now = datetime.now(UTC)
    if output == "table":
        print_errors(warnings_of(warnings), "warning")
        _print(plan, console(), next_runs.in_words(plan, now), details=details)
    else:
        emit({**described(plan), **next_runs.as_document(plan, now), "warnings": warnings_of(warnings)}, output)


def described(plan: DeliveryPlan) -> dict[str, object]:
    """What the command prints as JSON or YAML, as a document."""
    links = chain(plan)
    promise, weakest = plan.promise, links.weakest
    return {
        "name": plan.name,
        "namespace": plan.namespace,
        "guarantee": plan.guarantee,
        "position": promise.position,
        "afterACrash": promise.after_a_crash,
        "readerHasTo": promise.reader,
        "chain": [
            {"link": n.name, "subject": n.subject, "settings": n.settings, "caveat": n.caveat} for n in links.links
        ],
        "weakestLink": {"link": weakest.name, "subject": weakest.subject, "why": weakest.caveat},
        "clients": {"upstreamProducer": _clients(plan.upstream), "downstreamConsumer": _clients(plan.downstream)},
    }


def _clients(settings: ClientSettings) -> dict[str, object]:
    return {"java": values(settings.java), "librdkafka": values(settings.librdkafka)}


def _print(plan: DeliveryPlan, out: Console, runs: str | None, *, details: bool) -> None:
    links, promise = chain(plan), plan.promise
    weakest = links.weakest
    out.print(Text(f"{plan.namespace}/{plan.name}: {plan.guarantee}", style="bold"))
    position = f"The position moves {promise.position}."
    out.print(Text(f"{position} After a crash {promise.after_a_crash}. The reader has to: {promise.reader}."))
    if runs:
        out.print(Text(f"Runs: {runs}."))
    if details:
        for i, link in enumerate(links.links):
            out.print(Text("" if i == 0 else "  ↓"))
            _link(link, out)
    else:
        out.print()
        _print_briefly(links)
    title = Text.assemble((f"Weakest link: {weakest.name} ({weakest.subject})", "bold yellow"), f", {weakest.caveat}")
    out.print("", title, sep="\n")
    if not details:
        out.print(
            "", Text("--details shows every setting with its reason, and client settings for both ends."), sep="\n"
        )
        return
    for application, client in (
        ("the application that writes the source", plan.upstream),
        ("the application that reads the sink", plan.downstream),
    ):
        for kind, settings in (("Java properties", client.java), ("librdkafka", client.librdkafka)):
            out.print("", Text(f"Client settings for {application} ({kind})", style="bold"), sep="\n")
            for name, value in values(settings).items():
                out.print(Text(f"{name}={value}"), soft_wrap=True)


def _print_briefly(links: Chain) -> None:
    """Prints a line for each link, with the setting that carries the guarantee, and its caveat below."""
    pairs: list[tuple[str, str, str | None]] = []
    for link in links.links:
        setting = carrying(link)
        pairs.append((link.name, f"{link.subject}{f'; {_in_words(setting)}' if setting else ''}", None))
        if link.caveat:
            pairs.append(("", f"! {link.caveat}", "yellow"))
    print_pairs(pairs)


def carrying(link: Link) -> Setting | None:
    """The setting of the link that carries the guarantee; None if the link has none."""
    return next((s for name in _CARRYING for s in link.settings if s.name == name), None)


def _in_words(setting: Setting) -> str:
    return f"{setting.name}={setting.value}: {setting.reason}"


def _link(link: Link, out: Console) -> None:
    title = f"{link.name}: {link.subject}"
    out.print(settings_table(title, link.settings) if link.settings else Text(title, style="bold italic"))
    if link.caveat:
        out.print(Text(f"! {link.caveat}", style="yellow"))
