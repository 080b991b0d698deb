"""The server of the demo and the tests: it survives kill(), ends with the process that started it, and is readable."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from ackwright.local.demo.positions import TablePositions
from ackwright.local.ports import is_free
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason
from ackwright_stream.positions import Range
from ackwright_stream.sinks.postgres import sink as module
from ackwright_stream.sinks.postgres.sink import PostgresStore
from integration.support.postgres import Database, Postgres
from integration.support.postgres_stores import TABLE, A, B, Driver, job, rows
from integration.support.processes import naming
from waiting import ANSWER, wait_until

START = """
import time
from ackwright.local.postgres import EmbeddedPostgres
with EmbeddedPostgres() as server:
    print(server.directory, server.port, flush=True)
    time.sleep(600)
"""


def test_it_ends_and_leaves_nothing_when_its_process_is_killed() -> None:
    process = subprocess.Popen([sys.executable, "-c", START], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        directory, port = process.stdout.readline().split()
        assert naming(Path(directory))
        assert not is_free(int(port))
    finally:
        process.kill()
        process.wait(ANSWER)
    wait_until(lambda: not Path(directory).exists() and not naming(Path(directory)), "nothing is left")
    assert is_free(int(port))


def test_positions_are_read_until_the_server_is_killed_and_after_it_has_started_again(
    fragile_postgres: Postgres, tmp_path: Path
) -> None:
    database = Database(fragile_postgres, tmp_path)
    database.sql(TABLE)
    spec = job(tmp_path, database)
    reader = TablePositions(spec, replace(database.sink(), tls=True, ca=str(fragile_postgres.ca)))
    assert reader.read() == {}, "there is no table of positions yet"
    Driver(spec, (A, B)).task().advance(0, [Range(A, 0, 10), Range(B, 0, 5)], rows(A, 0, 10))
    positions = {A.partition: 10, B.partition: 5}
    assert reader.read() == positions
    fragile_postgres.kill()
    assert reader.read() is None
    fragile_postgres.start()
    assert reader.read() == positions


def test_a_server_that_is_too_old_is_refused(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.sql(TABLE)
    store = PostgresStore(job(tmp_path, database))
    store.check()
    monkeypatch.setattr(module, "_OLDEST_SERVER", 99_00_00)
    with pytest.raises(JobError, match=r"has the version \d\d, and this sink needs 99 or newer") as caught:
        store.check()
    assert caught.value.reason is Reason.TABLE_UNSUITABLE
