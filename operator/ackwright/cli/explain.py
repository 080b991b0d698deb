"""ackwright explain: the chain from the upstream producer to the downstream consumer, link by link, and the weakest of them."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console
from rich.text import Text

from ackwright.api.spec import DeliveryPipeline
from ackwright.cli.output import OutputFormat, console, emit, file_option, output_option, settings_table
from ackwright.planning.chain import Chain, Link, chain
from ackwright.planning.guarantees import TERMS, values
from ackwright.planning.plan import ClientSettings, DeliveryPlan, load


@click.command()
@file_option
@output_option
def explain(file: Path, output: OutputFormat) -> None:
    """Show, link by link, what keeps the guarantee, what each setting protects against, and the weakest link.

    Also prints the client settings for whoever writes the source and whoever reads the sink.
    """
    pipeline, planned = load(file)
    links = chain(pipeline, planned)
    if output == "table":
        _print(planned, links, console())
    else:
        emit(described(pipeline, planned), output)


def described(pipeline: DeliveryPipeline, planned: DeliveryPlan) -> dict[str, object]:
    """What the command prints as JSON or YAML, as a document."""
    links = chain(pipeline, planned)
    terms, weakest = TERMS[planned.guarantee], links.weakest
    return {
        "name": planned.name,
        "namespace": planned.namespace,
        "guarantee": planned.guarantee,
        "position": terms.position,
        "afterACrash": terms.after_a_crash,
        "readerHasTo": terms.reader,
        "chain": [
            {"link": n.name, "subject": n.subject, "settings": n.settings, "caveat": n.caveat} for n in links.links
        ],
        "weakestLink": {"link": weakest.name, "subject": weakest.subject, "why": weakest.caveat},
        "clients": {"upstreamProducer": _clients(planned.upstream), "downstreamConsumer": _clients(planned.downstream)},
    }


def _clients(settings: ClientSettings) -> dict[str, object]:
    return {"java": values(settings.java), "librdkafka": values(settings.librdkafka)}


def _print(planned: DeliveryPlan, links: Chain, out: Console) -> None:
    terms, weakest = TERMS[planned.guarantee], links.weakest
    out.print(Text(f"{planned.namespace}/{planned.name}: {planned.guarantee}", style="bold"))
    out.print(
        Text(
            f"The position moves {terms.position}. After a crash {terms.after_a_crash}. The reader has to: {terms.reader}."
        )
    )
    for i, link in enumerate(links.links):
        out.print(Text("" if i == 0 else "  ↓"))
        _link(link, out)
    out.print(
        "",
        Text.assemble((f"Weakest link: {weakest.name} ({weakest.subject})", "bold yellow"), f", {weakest.caveat}"),
        sep="\n",
    )
    for title, client in (
        ("whoever writes the source", planned.upstream),
        ("whoever reads the sink", planned.downstream),
    ):
        for kind, settings in (("Java properties", client.java), ("librdkafka", client.librdkafka)):
            out.print("", Text(f"Client settings for {title} ({kind})", style="bold"), sep="\n")
            for name, value in values(settings).items():
                out.print(Text(f"{name}={value}"), soft_wrap=True)


def _link(link: Link, out: Console) -> None:
    title = f"{link.name}: {link.subject}"
    out.print(settings_table(title, link.settings) if link.settings else Text(title, style="bold italic"))
    if link.caveat:
        out.print(Text(f"! {link.caveat}", style="yellow"))
