"""What a Python worker keeps from one task to the next. State of jobs and tasks is here and nowhere else.

Other process-wide values depend on no job: the sinks that are registered by name (jobspec, sinks/registry), the loaded
librdkafka (sinks/kafka/librdkafka), admin clients whose close is postponed (admin_client), and decoders and encoders of
schemas, which never change (formats/).
"""

from __future__ import annotations

from ackwright_stream import topic_ids
from ackwright_stream.jobspec import Cluster, JobSpec, to_json
from ackwright_stream.sinks import registry
from ackwright_stream.sinks.base import Sink
from ackwright_stream.spark_internals.worker import TaskInput
from ackwright_stream.topic_ids import TopicIds


class WorkerState:
    """The current task's connection, and the sink of the job that this process works for.

    A worker runs one task at a time, so this is not thread-safe.
    """

    def __init__(self) -> None:
        self.input = TaskInput()  # of the current task
        self._sink: Sink | None = None
        self._sink_key: tuple[str, bool] | None = None  # the job as JSON, and whether the sink is transactional
        self._topic_ids: tuple[Cluster, TopicIds] | None = None

    def sink(self, job: JobSpec, *, transactional: bool) -> Sink:
        """The job's sink, the same one until another job comes: its connections stay warm between batches."""
        key = (to_json(job), transactional)
        if self._sink is None or self._sink_key != key:
            self._sink, self._sink_key = None, None  # the old one's connections end with garbage collection
            self._sink, self._sink_key = registry.for_tasks(job, transactional=transactional), key
        return self._sink

    def topic_ids(self, job: JobSpec) -> TopicIds:
        """Reads the ids of topics from the job's brokers; keeps the connection until a job of other brokers comes."""
        if self._topic_ids is None or self._topic_ids[0] != job.cluster:
            self._topic_ids = (job.cluster, topic_ids.reader(job))
        return self._topic_ids[1]


STATE = WorkerState()  # of this process
