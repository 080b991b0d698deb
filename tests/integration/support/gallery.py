"""The examples with a README: what it tells a reader to type, what it shows, and how a test runs it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ackwright_stream.jobspec import ExitCode
from command import ACKWRIGHT
from unit.documents import ROOT, blocks
from waiting import ANSWER, WAIT, wait_until


@dataclass(frozen=True)
class Example:
    """A directory of examples."""

    name: str

    @property
    def readme(self) -> Path:
        return ROOT / "examples" / self.name / "README.md"

    def commands(self, *beginning: str) -> list[list[str]]:
        """The words of its commands that begin so, in order."""
        lines = [shlex.split(line) for block in blocks(self.readme, "sh") for line in block.splitlines()]
        return [words for words in lines if words[: len(beginning)] == list(beginning)]

    @property
    def files(self) -> list[str]:
        """The pipelines that it runs, by their paths in the repository."""
        return [words[words.index("-f") + 1] for words in self.commands("ackwright", "run")]

    @property
    def query(self) -> str:
        """The SELECT that it shows."""
        [query] = re.findall(r"`(SELECT [^`]+)`", self.readme.read_text())
        return str(query)

    @property
    def output(self) -> list[str]:
        """The lines that it shows."""
        return [line for block in blocks(self.readme, "text") for line in block.splitlines()]


@dataclass(frozen=True)
class Servers:
    """Where an example runs: what a reader writes into the file, and the options of its commands."""

    kafka: str
    sink_kafka: str = ""  # of two clusters
    secrets: Path | None = None
    spec: Mapping[str, Any] | None = None  # merged into the file's spec; None removes a field

    @property
    def options(self) -> list[str]:
        sink = ["--sink-bootstrap-servers", self.sink_kafka] if self.sink_kafka else []
        secrets = ["--secrets", str(self.secrets)] if self.secrets else []
        return ["--bootstrap-servers", self.kafka, *sink, *secrets]


class Run:
    """The pipelines of an example while they run."""

    def __init__(self, example: Example, servers: Servers, directory: Path) -> None:
        self._example, self._servers = example, servers
        self._files = {file: _placed(file, servers, directory) for file in example.files}

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Every pipeline runs. At the end each one drains, and ends with 0."""
        with contextlib.ExitStack() as stack:
            processes = [stack.enter_context(self._started(file)) for file in self._files.values()]
            yield
            for process in processes:
                process.send_signal(signal.SIGTERM)
            assert [process.wait(WAIT) for process in processes] == [0] * len(processes)

    @contextlib.contextmanager
    def _started(self, file: Path) -> Iterator[subprocess.Popen[bytes]]:
        output = file.with_suffix(".output")
        directory = str(file.with_suffix(".data"))
        command = [*ACKWRIGHT, "run", "-f", str(file), *self._servers.options, "--dir", directory, "-o", "json"]
        with output.open("wb") as out:
            process = subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=subprocess.STDOUT)
        try:
            wait_until(
                lambda: '"state": "running"' in output.read_text() or process.poll() is not None, f"{file} runs", WAIT
            )
            assert process.poll() is None, output.read_text()
            yield process
        finally:
            process.kill()
            process.wait(ANSWER)

    def feed(self) -> None:
        """Sends the records as the README says."""
        for words in self._example.commands("python", "examples/records.py", "feed"):
            self._records(words, self._servers.kafka)

    def read(self) -> list[str]:
        """What the README's commands print that read topics."""
        commands = self._example.commands("python", "examples/records.py", "read")
        kafka = self._servers.sink_kafka or self._servers.kafka
        return [line for words in commands for line in self._records(words, kafka).splitlines()]

    def _records(self, words: Sequence[str], kafka: str) -> str:
        done = subprocess.run(
            [sys.executable, *words[1:]],
            cwd=ROOT,
            env={**os.environ, "KAFKA": kafka},
            capture_output=True,
            text=True,
            timeout=WAIT * 2,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def audit(self) -> list[tuple[int, str]]:
        """The exit code and the output of each audit of the README."""
        endings = []
        for words in self._example.commands("ackwright", "audit"):
            file = self._files[words[words.index("-f") + 1]]
            done = subprocess.run(
                [*ACKWRIGHT, "audit", "-f", str(file), *self._servers.options, "-o", "json"],
                cwd=ROOT,
                capture_output=True,
                text=True,
                timeout=WAIT * 2,
                check=False,
            )
            endings.append((done.returncode, done.stdout + done.stderr))
        return endings

    def assert_held(self) -> None:
        """Every audit of the README proves the guarantee."""
        endings = self.audit()
        assert endings
        assert [(code, output) for code, output in endings if code != ExitCode.OK] == []


def _placed(file: str, servers: Servers, directory: Path) -> Path:
    """The file with the addresses of the servers."""
    document = yaml.safe_load((ROOT / file).read_text())
    document["spec"] = merged(document["spec"], servers.spec or {})
    placed = directory / file.replace("/", "-")
    placed.write_text(json.dumps(document))
    return placed


def merged(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """`one` with the fields of `other`, recursively; None removes a field."""
    result = {**one, **other}
    for name in one.keys() & other.keys():
        if isinstance(one[name], Mapping) and isinstance(other[name], Mapping):
            result[name] = merged(one[name], other[name])
    return {name: value for name, value in result.items() if value is not None}
