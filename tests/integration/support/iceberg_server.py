"""A real REST catalog on this machine: Iceberg's own, from Maven, on a JDBC catalog in memory.

Its tables are in a directory. Hadoop's classes, which it needs, come with PySpark.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pyspark

from ackwright.local import jars
from ackwright.local.ports import free_ports
from waiting import wait_until

_START_S = 300.0  # 4 s on an idle machine


class RestCatalogServer:
    """One server, without tables after each start. It can be suspended and killed. A context manager."""

    def __init__(self, directory: Path) -> None:
        self.warehouse = directory / "warehouse"
        self._log = directory / "catalog.log"
        (self.port,) = free_ports(1)
        self.uri = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> RestCatalogServer:
        self.warehouse.mkdir(parents=True)
        of_spark = Path(pyspark.__file__).parent / "jars"
        hadoop = [str(path) for path in of_spark.glob("hadoop-client-*.jar")]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *("java", "-Xmx256m", "-XX:TieredStopAtLevel=1"),
                    *("-cp", os.pathsep.join([str(jars.directory("iceberg") / "*"), *hadoop])),
                    "org.apache.iceberg.rest.RESTCatalogServer",
                ],
                env={
                    **{k: v for k, v in os.environ.items() if k != "JDK_JAVA_OPTIONS"},
                    "CATALOG_REST_PORT": str(self.port),
                    "CATALOG_WAREHOUSE": str(self.warehouse),
                    # One connection: each connection to a database in memory has another database.
                    "CATALOG_CLIENTS": "1",
                },
                stdout=log,
                stderr=log,
            )
        wait_until(self._answers, "the REST catalog answers", _START_S, 0.2)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait(30)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def suspend(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def metadata(self, namespace: str, table: str) -> Any:
        """The latest metadata of a table."""
        return self.request("GET", f"/v1/namespaces/{namespace}/tables/{table}")["metadata"]

    def drop(self, namespace: str, table: str) -> None:
        """Removes a table from the catalog, if there is one."""
        try:
            self.request("DELETE", f"/v1/namespaces/{namespace}/tables/{table}")
        except urllib.error.HTTPError as e:
            if e.code != 404:
                raise

    def request(self, method: str, path: str) -> Any:
        request = urllib.request.Request(self.uri + path, method=method)  # noqa: S310
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
            return json.loads(answer.read() or b"null")

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self._log.read_text()[-3000:]
        try:
            return "endpoints" in self.request("GET", "/v1/config")
        except OSError:
            return False
