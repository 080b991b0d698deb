"""Stateful pipelines with their state in a bucket of a real server of S3. A client that shares no code with the job
reads and changes what is there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow.fs as pafs

from ackwright.local.kafka import EmbeddedKafka
from ackwright.planning.guarantees import values
from ackwright.planning.state import spark_settings
from ackwright_stream.jobspec import JobSpec
from integration.support.s3_server import BUCKET, KEY, SECRET, S3Server
from integration.support.stateful_pipelines import PARTITIONS, StatefulPipeline, stateful_pipeline


def login(directory: Path, key: str = KEY, secret: str = SECRET) -> str:
    """A directory as a mounted Secret."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "username").write_text(f"{key}\n")
    (directory / "password").write_text(f"{secret}\n")
    return str(directory)


def in_bucket(job: JobSpec, server: S3Server, prefix: str, credentials: str) -> JobSpec:
    """The same job with its state below a prefix of the server's bucket."""
    assert job.state is not None
    uri = f"s3a://{BUCKET}/{prefix}"
    state = replace(job.state, checkpoint=uri, endpoint=server.endpoint, credentials=credentials)
    return replace(job, state=state, spark={**job.spark, **values(spark_settings(state, "keys"))})


@dataclass
class BucketPipeline(StatefulPipeline):
    """One pipeline over several runs of its driver."""

    server: S3Server
    prefix: str  # with the bucket

    @property
    def files(self) -> pafs.S3FileSystem:
        return self.server.files()

    def names(self) -> list[str]:
        """The objects of the state, below the prefix."""
        selector = pafs.FileSelector(self.prefix, recursive=True, allow_not_found=True)
        objects = self.files.get_file_info(selector)
        return sorted(i.path.removeprefix(f"{self.prefix}/") for i in objects if i.type is pafs.FileType.File)

    def copy(self, source: str, target: str) -> None:
        """Copies all objects from one prefix of the bucket to another one."""
        for info in self.files.get_file_info(pafs.FileSelector(source, recursive=True)):
            if info.type is pafs.FileType.File:
                self.files.copy_file(info.path, f"{target}{info.path.removeprefix(source)}")

    def stored_last(self) -> dict[int, str]:
        """As of a directory."""
        selector = pafs.FileSelector(self.prefix, recursive=True)
        newest: dict[int, tuple[int, int, str]] = {}
        for info in self.files.get_file_info(selector):
            name = info.base_name
            if name.endswith(".changelog") and name.count("_") == 1:
                version, _, stored = name.removesuffix(".changelog").partition("_")
                partition = int(info.path.split("/")[-2])
                newest[partition] = max(newest.get(partition, (0, 0, "")), (int(version), info.mtime_ns, stored))
        return {partition: stored for partition, (_, _, stored) in newest.items()}

    def write(self, name: str, text: str) -> None:
        """Replaces an object of the state."""
        with self.files.open_output_stream(f"{self.prefix}/{name}") as file:
            file.write(text.encode())


@contextmanager
def bucket_pipeline(
    kafka: EmbeddedKafka, server: S3Server, directory: Path, name: str, partitions: int = PARTITIONS
) -> Iterator[BucketPipeline]:
    """As stateful_pipeline(), with the state in the bucket."""
    with stateful_pipeline(kafka, directory, name, partitions=partitions) as local:
        spec = in_bucket(local.spec, server, f"state/{name}", login(directory / "login"))
        created = BucketPipeline(
            local.servers,
            directory,
            spec,
            partitions,
            state=local.state,
            server=server,
            prefix=f"{BUCKET}/state/{name}",
        )
        created.fed = local.fed
        yield created
