"""Stateful pipelines into a table of PostgreSQL, and whether what was written there is the output of one run.

The transform is that of stateful_pipelines.py. A trigger records each write, so that an upsert hides no earlier one; it
fires after the write, because one before it also fires for the INSERT that becomes an UPDATE.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from ackwright.local.kafka import EmbeddedKafka
from ackwright_stream.decisions import Decision
from integration.support.pipelines import create_topics, document, job_of
from integration.support.postgres import Database
from integration.support.stateful_pipelines import (
    PARTITIONS,
    Counted,
    StatefulPipeline,
    judge_counts,
    with_state,
)
from sql_texts import COUNTS_WITH_MARKS

TABLE = """
CREATE TABLE counts (key text PRIMARY KEY, value text);
CREATE TABLE writes (id bigserial, key text, value text);
CREATE FUNCTION record_write() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO writes (key, value) VALUES (NEW.key, NEW.value);
    RETURN NEW;
END $$;
CREATE TRIGGER writes AFTER INSERT OR UPDATE ON counts FOR EACH ROW EXECUTE FUNCTION record_write()
"""


# Without marks, so that the audit can judge it: the key of a record is that of its partition.
COUNTS = "SELECT CAST(key AS STRING) AS key, CAST(count(*) AS STRING) AS value FROM source GROUP BY key"


@dataclass
class StatefulTable(StatefulPipeline):
    """One pipeline into the table `counts`, over several runs of its driver."""

    database: Database

    def last_decision(self) -> Decision:
        [[text]] = self.database.sql("SELECT decision FROM ackwright.decisions ORDER BY batch DESC LIMIT 1")
        return Decision.of_json(text)

    def totals(self) -> set[int]:
        """The counts in the table, of COUNTS."""
        return {int(value) for (value,) in self.database.sql("SELECT value FROM counts")}

    def counted(self) -> Counted:
        """Compares what was written with the input. The table has the last write of each key."""
        writes: dict[str, list[tuple[int, str]]] = {}
        for key, value in self.database.sql("SELECT key, value FROM writes ORDER BY id"):
            count, _, mark = value.partition(" ")
            writes.setdefault(key, []).append((int(count), mark))
        last = {key: f"{of_key[-1][0]} {of_key[-1][1]}" for key, of_key in writes.items()}
        assert last == {row[0]: row[1] for row in self.database.sql("SELECT key, value FROM counts")}
        return judge_counts(writes, self.partitions, self.fed)


@contextmanager
def stateful_table(
    kafka: EmbeddedKafka, database: Database, directory: Path, name: str, limit: int = 700
) -> Iterator[StatefulTable]:
    """A pipeline with its topic and its table. limit: offsets of a batch."""
    servers, source = kafka.bootstrap_servers, f"{name}-in"
    create_topics(servers, source, partitions=PARTITIONS)
    database.sql(TABLE)
    stateless = document(servers, name, "exactly-once", source, "not-used")
    stateless["spec"]["source"]["maxOffsetsPerTrigger"] = limit
    stateless["spec"]["sink"] = database.spec("counts", mode="upsert", key=["key"])
    job = job_of(stateless, directory, secrets=str(database.secrets))
    job = replace(job, transform=replace(job.transform, sql=COUNTS_WITH_MARKS))
    state = directory / "state"
    created = StatefulTable(servers, directory, with_state(job, state), PARTITIONS, state=state, database=database)
    created.feed()
    yield created
