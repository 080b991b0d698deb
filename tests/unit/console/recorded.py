"""The recorded state of the console's tests: pipelines in every state that the operator writes, with their details.

The resources are those of deploy/argocd/testdata, which a test compares with the operator. `python -m
unit.console.recorded FILE` writes the state, for the tests in a browser.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from ackwright.console.views import Details
from ackwright_stream.audit_report import Report
from ackwright_stream.jobspec import Guarantee
from ackwright_stream.reports import ProgressReport, State

ROOT = Path(__file__).parents[3]
_TESTDATA = ROOT / "deploy" / "argocd" / "testdata"
AT = "2026-11-21T12:01:20Z"

# By name: namespace, guarantee, source topic, sink topic, and the state in testdata.
PIPELINES = {
    "delayed-flights": ("ops", "exactly-once", "flights", "delayed-flights", "delivering"),
    "ledger": ("finance", "exactly-once", "payments", "ledger", "guarantee-not-met"),
    "stock": ("shop", "at-least-once", "orders", "stock-changes", "stalled"),
    "sensor-metrics": ("iot", "at-most-once", "readings", "metrics", "starting"),
    "access-log": ("web", "at-least-once", "requests", "access-log", "suspended"),
    "invoices": ("finance", "exactly-once", "orders", "invoices", "invalid"),
    "returns": ("shop", "exactly-once", "parcels", "returns", "never-valid"),
    "daily-export": ("ops", "exactly-once", "events", "export", "completed"),
    "fraud-signals": ("finance", "exactly-once", "payments", "signals", "draining"),
    "new-arrivals": ("ops", "at-least-once", "arrivals", "boards", "without-status"),
}


def resource(name: str) -> dict[str, Any]:
    """The resource of one pipeline."""
    namespace, guarantee, source, sink, state = PIPELINES[name]
    text = json.dumps(yaml.safe_load((_TESTDATA / f"{state}.yaml").read_text()))
    for old, new in (
        ('"in"', f'"{source}"'),
        ('"out"', f'"{sink}"'),
        ("topic in ", f"topic {source} "),
        ("topic in:", f"topic {source}:"),
        ("topic out ", f"topic {sink} "),
        ("topic out:", f"topic {sink}:"),
        ('"ops.p"', f'"{namespace}.{name}"'),
        ("p-0", f"{name}-0"),
        ('"name": "p"', f'"name": "{name}"'),
        ('"namespace": "ops"', f'"namespace": "{namespace}"'),
        ("k:9092", "kafka-0.kafka:9092"),
        ("SELECT * FROM source", "SELECT key, value FROM source WHERE value IS NOT NULL"),
        ("exactly-once", guarantee),
    ):
        text = text.replace(old, new)
    read: dict[str, Any] = json.loads(text)
    return read


def progress(namespace: str, name: str, topic: str) -> ProgressReport:
    """The report of a driver in the middle of its work."""
    return ProgressReport(
        pipeline=f"{namespace}/{name}",
        guarantee="exactly-once",
        state=State.RUNNING,
        driver=7,
        batch_id=1841,
        batch_seconds=0.412,
        last_batch_at=1_795_262_479.2,
        positions={topic: {str(p): 1_204_118 - 31 * p for p in range(6)}},
        ends={topic: {str(p): 1_204_118 + 123 * p for p in range(6)}},
        lag=2_310,
        records=7_224_033,
        batches=1842,
        restarts=1,
        abandoned_records=0,
        expired_records=0,
        malformed_records=0,
        dead_letters=3,
        skipped_lanes=0,
        records_per_second=5_204.5,
    )


def report() -> Report:
    """An audit that a guarantee has held in."""
    return Report(
        guarantee=Guarantee.EXACTLY_ONCE,
        sent=7_224_120,
        counted=7_224_120,
        expected=1_310_882,
        delivered=1_310_882,
        lost=0,
        missing=0,
        duplicated=0,
        unexpected=0,
        misplaced=0,
        out_of_order=0,
        malformed=3,
        dead_letters=3,
        unjudged=0,
        lanes={},
        unjudged_lanes=(),
        offending=(),
        doubts=(),
        notes=(),
    )


def pod(name: str, role: str, *, restarts: int = 0, ready: bool = True) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "uid": f"uid-{name}", "labels": {"ackwright.io/role": role}},
        "spec": {"nodeName": "node-2"},
        "status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": str(ready)}],
            "containerStatuses": [{"name": role, "restartCount": restarts, "state": {"running": {}}}],
        },
    }


def event(at: str, kind: str, reason: str, message: str, name: str) -> dict[str, Any]:
    return {
        "metadata": {"name": f"{name}.{reason}", "creationTimestamp": at},
        "lastTimestamp": at,
        "type": kind,
        "reason": reason,
        "message": message,
        "count": 1,
        "involvedObject": {"kind": "DeliveryPipeline", "name": name},
    }


def _details(name: str) -> Details:
    namespace, _, source, _, state = PIPELINES[name]
    if state == "delivering":
        held = report().document()
        audits = [
            {"name": f"{name}-audit-a1", "at": "2026-11-21T11:48:02Z", "verdict": "held"}
            | {key: held[key] for key in ("sent", "expected", "delivered", "lost", "duplicated", "notes")},
            {"name": f"{name}-audit-b2", "at": "2026-11-21T11:20:40Z", "verdict": "failed"}
            | {"why": "BrokersUnreachable: no broker answers at kafka-0.kafka:9092; check the network"},
        ]
        return Details(
            pods=[pod(f"{name}-0", "driver", restarts=1), pod(f"{name}-exec-1", "executor")],
            events=[
                event("2026-11-21T11:31:10Z", "Warning", "NoProgress", "the driver was killed", name),
                event("2026-11-21T11:31:52Z", "Normal", "Delivering", "records are delivered again", name),
            ],
            progress=progress(namespace, name, source).as_json(),
            audits=audits,
        )
    if state == "guarantee-not-met":
        halted = replace(progress(namespace, name, source), lag=48_120, records_per_second=0.0)
        why = "topic ledger accepts no records: 1 replica in sync, min.insync.replicas = 2"
        return Details(
            pods=[pod(f"{name}-0", "driver", ready=False)],
            events=[event(AT, "Warning", "NotEnoughReplicas", why, name)],
            progress=halted.as_json(),
        )
    refusal = 'pods "x" is forbidden: User "reader" cannot get resource "pods/proxy" in API group ""'
    return Details(missing=[f"the driver's progress: KubernetesRefused: {refusal}"])


def state() -> dict[str, Any]:
    """The recorded state."""
    return {
        "title": "a cluster of the tests",
        "at": AT,
        "resources": [resource(name) for name in PIPELINES],
        "details": {f"{row[0]}/{name}": _details(name).as_json() for name, row in PIPELINES.items()},
    }


def write(directory: Path) -> Path:
    """Writes the state into a directory, and returns the file."""
    file = directory / "state.json"
    file.write_text(json.dumps(state()))
    return file


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(state()))
