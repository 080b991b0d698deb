"""A real REST catalog on this machine: Iceberg's own, from Maven, on a JDBC catalog.

Its tables are in a directory or in a bucket. Hadoop's classes, which it needs, come with PySpark.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark

from ackwright.local import jars
from ackwright.local.ports import free_ports
from integration.support.s3_server import BUCKET, KEY, SECRET, S3Server
from server_starts import starting
from waiting import ANSWER, wait_until

_START_S = 300.0  # 4 s on an idle machine


class RestCatalogServer:
    """One server. It can be suspended and killed. A context manager."""

    def __init__(
        self, directory: Path, host: str = "127.0.0.1", s3: S3Server | None = None, *, durable: bool = False
    ) -> None:
        """host: the address of this machine in `uri`. s3: where its tables are; None: in the directory.

        durable: whether it has its tables after it was killed and started again, in a file of SQLite; else in memory.
        """
        self.warehouse, self._s3 = directory / "warehouse", s3
        self._database = f"jdbc:sqlite:{directory / 'catalog.db'}" if durable else "jdbc:sqlite::memory:"
        self._log = directory / "catalog.log"
        (self.port,) = free_ports(1)
        self.uri = f"http://{host}:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> RestCatalogServer:
        self.warehouse.mkdir(parents=True)
        self._start()
        return self

    @contextmanager
    def killed(self) -> Iterator[None]:
        """While it is open, the server is not there. Afterwards it runs again."""
        self._kill()
        try:
            yield
        finally:
            self._start()

    @starting("REST catalog of Iceberg")
    def _start(self) -> None:
        of_spark = Path(pyspark.__file__).parent / "jars"
        hadoop = [str(path) for path in of_spark.glob("hadoop-client-*.jar")]
        own = [str(jars.directory(kind) / "*") for kind in ("iceberg", *(("iceberg-aws",) if self._s3 else ()))]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *("java", "-Xmx256m", "-XX:TieredStopAtLevel=1"),
                    *("-cp", os.pathsep.join([*own, *hadoop])),
                    "org.apache.iceberg.rest.RESTCatalogServer",
                ],
                env={
                    **{k: v for k, v in os.environ.items() if k != "JDK_JAVA_OPTIONS"},
                    "CATALOG_REST_PORT": str(self.port),
                    "CATALOG_WAREHOUSE": str(self.warehouse),
                    "CATALOG_URI": self._database,
                    # One connection: each connection to a database in memory has another database.
                    "CATALOG_CLIENTS": "1",
                    **(_in_bucket(self._s3) if self._s3 else {}),
                },
                stdout=log,
                stderr=log,
            )
        wait_until(self._answers, "the REST catalog answers", _START_S, 0.2)

    def __exit__(self, *_: object) -> None:
        self._kill()

    def _kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait(ANSWER)

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

    def metadata_or_none(self, namespace: str, table: str) -> Any:
        """The same; None if there is no such table."""
        try:
            return self.metadata(namespace, table)
        except urllib.error.HTTPError as e:
            if e.code != 404:
                raise
            return None

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


def _in_bucket(s3: S3Server) -> dict[str, str]:
    """Settings of the server: "__" stands for "-", and "_" for "."."""
    return {
        "CATALOG_WAREHOUSE": f"s3://{BUCKET}/warehouse",
        "CATALOG_IO__IMPL": "org.apache.iceberg.aws.s3.S3FileIO",
        "CATALOG_S3_ENDPOINT": s3.endpoint,
        "CATALOG_S3_PATH__STYLE__ACCESS": "true",
        "CATALOG_S3_ACCESS__KEY__ID": KEY,
        "CATALOG_S3_SECRET__ACCESS__KEY": SECRET,
        "CATALOG_CLIENT_REGION": "us-east-1",
    }
