"""Where stateful pipelines of end-to-end tests have their state, and what they count."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from e2e.pipelines import Installation
from integration.support.s3_server import BUCKET, KEY, SECRET, S3Server
from lab.network import MACHINE

SQL = "SELECT origin AS key, CONCAT_WS(' ', origin, COUNT(*)) AS value FROM source GROUP BY origin"


@contextmanager
def on_a_volume(installed: Installation, directory: Path) -> Iterator[dict[str, Any]]:
    """The value of spec.checkpoint, with a directory of this machine, which all nodes of the lab share."""
    directory.chmod(0o777)  # the driver is not root
    name = f"state-{uuid.uuid4().hex[:6]}"
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": name,
        "hostPath": {"path": str(directory)},
    }
    installed.apply({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec})
    try:
        yield {"volume": {"size": "1Gi", "storageClassName": name}}
    finally:
        installed.kubectl("delete", "persistentvolume", name, "--wait=false")


@contextmanager
def in_s3(installed: Installation, directory: Path) -> Iterator[dict[str, Any]]:
    """The value of spec.checkpoint, with a bucket of a server on this machine."""
    with S3Server(directory / "server", MACHINE) as server:
        login = installed.create_secret("state-login", username=KEY, password=SECRET)
        s3 = {"endpoint": server.endpoint, "credentialsSecret": {"name": login}}
        yield {"uri": f"s3a://{BUCKET}/{uuid.uuid4().hex[:6]}", "s3": s3}
