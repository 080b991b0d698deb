"""Rules of the protocol that the job's source keeps in every line; docs/protocol.md."""

from __future__ import annotations

import ast

from unit.documents import ROOT

# Where the job calls a method named commit; each ends a transaction, in Kafka or in the sink's database.
COMMITS = {
    "lanes.py": {"transaction.commit"},
    "sinks/kafka/sink.py": {"self._transactions.commit"},
    "sinks/kafka/driver_transactions.py": {"self._transactions.commit"},
    "sinks/kafka/decisions.py": {"sink.transactions.commit"},
    "sinks/kafka/lag_mirror.py": {"consumer.commit"},  # of another group, on the source's cluster
    "sinks/postgres/sink.py": {"connection.commit"},
    "sinks/postgres/decisions.py": {"self._transaction.commit"},
    "sinks/staged/store.py": {"self._sink.commit"},  # of a version of the table
    "sinks/staged/decisions.py": {"self._sink.commit"},  # the same
    "sinks/iceberg/log.py": {"files.commit"},  # of manifests; the transaction sends them
}
_AT_SINK = "sink.brokers(job.cluster)"
# With the settings of a jobspec, which refuses another enable.auto.commit.
CONSUMERS = {
    f"Consumer(settings({_AT_SINK}, sink.positions.member))",
    f"Consumer(settings({_AT_SINK}, job.topic_consumer, _FETCH))",
    f"Consumer(settings({_AT_SINK}, job.topic_consumer, uncommitted, _FETCH))",
    "Consumer(settings(self.spec.brokers(self.job.cluster), self.job.positions_consumer, unstable))",
    "Consumer(settings(cluster or job.cluster, job.positions_consumer))",
    "Consumer({**lag_settings, 'on_commit': self._answered})",  # of another group
    # The audit's:
    "Consumer(settings(self._job.cluster, self._job.positions_consumer))",
    "Consumer(settings(self._job.cluster, self._job.topic_consumer))",
    "Consumer(settings(self._job.cluster, self._job.topic_consumer, {'isolation.level': isolation}))",
}
JOB = ROOT / "spark_app" / "ackwright_stream"
JOB_SOURCES = sorted(JOB.rglob("*.py"))


def test_rule_01_no_line_of_the_job_commits_plainly() -> None:
    joins_or_stores = {"subscribe", "store_offsets", "alter_consumer_group_offsets"}
    # The member assigns itself no partition, so it has nothing to commit.
    allowed = {"membership.py": ["self._consumer.subscribe"]}
    all_consumers: set[str] = set()
    for file in JOB_SOURCES:
        text = file.read_text()
        calls = [
            n.func for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)
        ]
        assert [ast.unparse(c) for c in calls if c.attr in joins_or_stores] == allowed.get(file.name, []), file.name
        committing = {ast.unparse(c) for c in calls if c.attr == "commit"}
        assert committing <= COMMITS.get(file.relative_to(JOB).as_posix(), set()), file.name
        consumers = {
            ast.unparse(c)
            for c in ast.walk(ast.parse(text))
            if isinstance(c, ast.Call) and ast.unparse(c.func) == "Consumer"
        }
        assert consumers <= CONSUMERS, file.name
        all_consumers |= consumers
    assert all_consumers == CONSUMERS


def test_rule_02_no_line_of_the_job_aborts_a_transaction() -> None:
    for file in JOB_SOURCES:
        assert "abort_transaction(" not in file.read_text(), file.name
