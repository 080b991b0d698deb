"""An example or two for the help of each command, as a user would type it."""

from __future__ import annotations

from collections.abc import Mapping

EXAMPLES: Mapping[str, tuple[str, ...]] = {
    "plan": ("ackwright plan -f pipeline.yaml", "ackwright plan -f pipeline.yaml --against cluster"),
    "explain": ("ackwright explain -f pipeline.yaml",),
    "check": ("ackwright check --bootstrap-servers kafka-0:9092", "ackwright check -f pipeline.yaml --secrets secrets"),
    "diff": ("ackwright diff -f pipeline.yaml",),
    "run": ("ackwright run -f pipeline.yaml --embedded", "ackwright run -f pipeline.yaml --dry-run"),
    "audit": ("ackwright audit flights -n ops", "ackwright audit -f pipeline.yaml -o json"),
    "status": ("ackwright status", "ackwright status flights -n ops --watch", "ackwright status -A -o wide"),
    "top": ("ackwright top", "ackwright top --sort restarts --watch", "ackwright top -n ops -o json"),
    "console": ("ackwright console -A --open", "ackwright console --state state.json"),
    "logs": ("ackwright logs flights -n ops --follow",),
    "suspend": ("ackwright suspend flights -n ops",),
    "resume": ("ackwright resume flights -n ops",),
    "accept-topic": ("ackwright accept-topic flights delayed-flights -n ops",),
    "accept-positions": ("ackwright accept-positions flights -n ops",),
    "accept-state-loss": ("ackwright accept-state-loss flights-per-minute -n ops",),
    "support-bundle": ("ackwright support-bundle flights -n ops -o flights.tar.gz",),
    "operator": ("ackwright operator --namespace ops",),
    "demo": ("ackwright demo", "ackwright demo --sink postgres --records 50000", "ackwright demo --pipeline counts"),
    "completion": ("ackwright completion bash",),
}


def epilog(command: str) -> str:
    """The last paragraph of a command's help."""
    examples = EXAMPLES[command]
    title = "Example:" if len(examples) == 1 else "Examples:"
    # \b keeps click from joining the lines.
    return "\n".join(("\b", title, *(f"  {example}" for example in examples)))
