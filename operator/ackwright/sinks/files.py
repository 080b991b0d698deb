"""The sink files: Parquet files in a directory or a bucket, which are also the positions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from ackwright.api.checks import Broken, Cel, Check, Validation, unchangeable
from ackwright.api.fields import About
from ackwright.api.secret_fields import S3
from ackwright.api.storage_fields import S3_OF_BUCKET, S3_SCHEME, StoragePath, s3_settings
from ackwright.planning.guarantees import TRANSACTION_TIMEOUT_MS, Setting, Settings, values
from ackwright.sinks import table_state
from ackwright.sinks.base import Link, OutputSummary, SecretFile, Section, SinkContext, SinkSettings
from ackwright.sinks.letter_topic import SinkWithLetterTopic
from ackwright_stream import jobspec
from ackwright_stream.jobspec import Guarantee

_PATH = "spec.sink.files"
_HIDDEN = ("_", ".")  # with which names begin that readers of Parquet ignore
_COMMIT: Settings = (
    Setting(
        "timeout.ms",
        str(TRANSACTION_TIMEOUT_MS),
        "the creation of a file whose answer takes longer has an unknown outcome; the next attempt reads the position",
    ),
)
_BATCH = "batches/<number>.parquet"
_GENERATION = Setting("generation", "_ackwright/state", "a driver that joins raises it, which stops others")
_COST = {
    Guarantee.AT_MOST_ONCE: "two files per partition and micro-batch, one without rows; what a task was writing when "
    "it died is lost",
    Guarantee.AT_LEAST_ONCE: "a file per partition with rows and an entry of the driver per micro-batch; the batch "
    "that a crash interrupts is written again",
    Guarantee.EXACTLY_ONCE: "a file per partition and micro-batch, in one request",
}


class FilesSink(SinkWithLetterTopic):
    """spec.sink.files."""

    NAME = "files"
    TAKES_DECISIONS = True
    COST_WITH_STATE = "one file per micro-batch, also without rows; its rows become visible together"

    path: Annotated[
        StoragePath,
        About(
            "Where the files are: s3://bucket/prefix, or a directory (/path or file:///path) that the driver and its "
            "executors share. For this pipeline alone. Cannot be changed."
        ),
        unchangeable(
            "the files are the positions, and another path has none",
            "write the old path, or create another pipeline",
        ),
    ]
    s3: Annotated[S3 | None, About("How to reach the bucket of an s3:// path.")] = None

    @classmethod
    def checks(cls) -> tuple[Check[Any], ...]:
        return (S3_OF_BUCKET,)

    @classmethod
    def validations(cls) -> tuple[Validation[SinkContext[Any]], ...]:
        return (_VISIBLE, *super().validations(), *table_state.validations(cls.NAME))

    def data(self) -> Settings:
        return (
            Setting("sink.path", self.path, f"{_PATH}.path"),
            *(Setting(f"sink.s3.{name}", value, f"{_PATH}.s3.{name}") for name, value in s3_settings(self.s3)),
        )

    def settings(self, guarantee: Guarantee, largest_message: int) -> SinkSettings:
        return SinkSettings()

    def sections(self, group: str) -> tuple[Section, ...]:
        return (Section("commit", "Creation of files", _COMMIT), *super().sections(group))

    def link(self, guarantee: Guarantee, settings: SinkSettings) -> Link:
        caveat, weakness = self._caveat(guarantee)
        return Link("sink files", self.path, _COMMIT, caveat, weakness)

    def secrets(self) -> tuple[SecretFile, ...]:
        credentials = self.s3.credentials_secret if self.s3 else None
        return (SecretFile("credentials", credentials.name),) if credentials else ()

    def commit(self, group: str) -> Settings:
        return (
            Setting("positions", "<topic>-<partition>.<topic id>/<from>.parquet", "a file with rows is the position"),
            Setting("compare-and-set", "created if absent", "of the files that begin at one offset, one can be there"),
            _GENERATION,
        )

    def commit_with_state(self, group: str) -> Settings:
        return (
            Setting("positions", _BATCH, "the file with the rows of a micro-batch has the positions of all partitions"),
            Setting("decisions", _BATCH, "and its decision"),
            Setting("compare-and-set", "created if absent", "of the files behind one micro-batch, one can be there"),
            _GENERATION,
        )

    def reader(self, guarantee: Guarantee) -> Link:
        return Link("downstream reader", "application that reads the files", ())

    def summary(self, guarantee: Guarantee) -> OutputSummary:
        reader = "deduplicate" if guarantee is Guarantee.AT_LEAST_ONCE else "nothing"
        return OutputSummary(f"Parquet files in {self.path}", reader, _COST[guarantee], "file")

    def to_job(self, group: str) -> jobspec.FilesSink:
        s3 = self.s3 or S3()
        return jobspec.FilesSink(
            path=self.path.removeprefix("file://"),
            endpoint=s3.endpoint,
            region=s3.region,
            credentials=None,  # the path of the Secret; see secrets()
            commit=values(_COMMIT),
            dead_letters=self.letters_of_job,
        )

    def _caveat(self, guarantee: Guarantee) -> tuple[str | None, int]:
        """What the sink leaves open under a guarantee, and how much that matters."""
        if guarantee is Guarantee.AT_LEAST_ONCE:
            return "a row may be there twice", 4
        if not self.path.startswith(S3_SCHEME):
            return "a directory has one copy, unless its file system keeps more", 3
        return None, 0


def _hidden(context: SinkContext[FilesSink]) -> Iterator[Broken]:
    for i, topic in enumerate(context.source_topics):
        if topic.startswith(_HIDDEN):
            yield Broken(f"spec.source.topics[{i}]", topic)


_VISIBLE = Validation[SinkContext[FilesSink]](
    "names the directory of its files, and readers of Parquet ignore names that begin with '_' or '.'",
    "use another sink, or copy the records to a topic with another name",
    ("spec.source.topics", _PATH),
    _hidden,
    cel=(
        Cel(
            "!has(self.sink.files) || self.source.topics.all(t, !t.startsWith('_') && !t.startsWith('.'))",
            on="spec",
            at=".source.topics",
        ),
    ),
)
