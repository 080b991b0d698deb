"""One pipeline over several lives of its driver."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ackwright_stream.jobspec import JobSpec
from integration.support.pipelines import Running, feed, running


@dataclass
class DriverLives:
    """A pipeline, what its source was fed, and its drivers, which run one after the other."""

    servers: str
    directory: Path
    spec: JobSpec
    partitions: int  # of the source
    fed: int = field(default=0, init=False)  # records of each partition
    lives: int = field(default=0, init=False)
    environment: dict[str, str] = field(default_factory=dict, init=False)  # further variables of its drivers

    @property
    def source(self) -> str:
        return self.spec.source.topics[0]

    def feed(self, count: int = 500) -> None:
        """Sends so many further records to each partition."""
        feed(self.servers, self.source, self.partitions, self.fed, count)
        self.fed += count

    @contextmanager
    def life(self) -> Iterator[Running]:
        """The next driver, in a separate directory."""
        self.lives += 1
        with running(self.spec, self.directory / str(self.lives), self.environment) as job:
            yield job
