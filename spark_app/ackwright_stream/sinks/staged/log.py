"""The versions of a table, as far as a sink needs them. Each kind of table has its own log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeVar

from pyspark.sql.types import StructType

from ackwright_stream.errors import JobError
from ackwright_stream.sinks.staged import positions as store
from ackwright_stream.sinks.staged.table import Table


class Version(Protocol):
    """A version of the table, as far as a commit needs it."""

    @property
    def table(self) -> Table:
        """What it is like."""
        ...

    @property
    def lookup(self) -> store.Lookup:
        """The pipelines' numbers in it."""
        ...


class DataFile(Protocol):
    """A file that a task has written."""

    @property
    def nulls(self) -> Mapping[str, int]:
        """The number of nulls by column."""
        ...


V = TypeVar("V", bound=Version)
F = TypeVar("F", bound=DataFile)
F_contra = TypeVar("F_contra", bound=DataFile, contravariant=True)


class Log(Protocol[V, F_contra]):
    """The versions of one table. Every method raises JobError."""

    refusal: str  # why the last append() that returned False did

    def read(self) -> V | None:
        """The latest version; None if there is no table. The login is read again: a Secret may have changed."""
        ...

    def update(self, version: V) -> V:
        """The latest version. version: one that was read before, which may make it faster."""
        ...

    def append(
        self, version: V, numbers: store.Numbers, added: Sequence[F_contra] = (), note: Mapping[str, str] | None = None
    ) -> bool:
        """Whether the version after this one could be created, with these numbers and files.

        note: texts for the audit, by their names, which a log may leave out.

        False if it exists already, perhaps by this very commit, if the table takes a file only once. After an error it
        may be there, or come late.
        """
        ...

    def require_conditional(self, version: V) -> None:
        """Raises JobError(TABLE_UNSUITABLE) if the version that append() has created after this one can be replaced."""
        ...

    def following(self, version: V, numbers: store.Numbers) -> V | None:
        """The version that append() has created with these numbers; None if it has to be read."""
        ...

    def create(self, schema: StructType) -> None:
        """Creates the table with these columns. If another driver creates it at the same time, its table stays."""
        ...

    def require_files(self, version: V, added: Sequence[F_contra]) -> None:
        """Raises JobError(TABLE_UNSUITABLE) if a commit after this version must not add these files."""
        ...

    def problems(self, version: V) -> Sequence[JobError]:
        """Why nothing can be written, as far as that is known without a request."""
        ...

    def require_permission(self, version: V | None) -> None:
        """Raises JobError if the job may not write, as far as a request tells that changes nothing."""
        ...

    def maintain(self, version: V) -> None:
        """What has to be done from time to time after a commit. Raises nothing."""
        ...
