"""Where a query of a stateful pipeline begins: behind the last decision, with its state or one that is as good."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from ackwright_stream import processors, state_bucket
from ackwright_stream.decisions import Decision, fingerprint
from ackwright_stream.errors import JobError
from ackwright_stream.failures import cause
from ackwright_stream.jobspec import JobSpec, StateSettings
from ackwright_stream.ownership import Ownership
from ackwright_stream.positions import Lane
from ackwright_stream.progress import Progress
from ackwright_stream.replay import Replay, ReplayStopped
from ackwright_stream.spark_internals.session import set_hadoop
from ackwright_stream.spark_internals.state import CheckpointFiles
from ackwright_stream.state_log import StateChain, open_directory


@dataclass(frozen=True)
class StateStart:
    """What a query continues from."""

    chain: StateChain
    recovered: Decision | None  # the last decision with state that was computed again; None: the state was there


def start_of(
    spark: SparkSession,
    job: JobSpec,
    owned: Ownership,
    progress: Progress,
    stop: threading.Event,
    *,
    settings: StateSettings,
    positions: Mapping[Lane, int],  # of the query, which the chain shares
    output: DataFrame,
    unread: str | None,  # loss_of() state that Spark could not load before
) -> StateStart:
    """Opens the directory of the state, and computes state again from an older copy if the newest is lost.

    Raises JobError as open_directory() and Replay.recover(), and ReplayStopped.
    """
    last, identifier = owned.decision, fingerprint(job, settings)
    recovered: list[Decision] = []
    set_hadoop(spark, state_bucket.login_settings(settings))
    try:
        files, now_ms = CheckpointFiles(spark, settings.checkpoint), int(time.time() * 1000)
        processor = processors.processor_of(output)

        def recover(lost: JobError) -> Decision:
            if last is None:
                raise lost
            replay = Replay(spark, job, owned, progress, stop, settings=settings, files=files, columns=output)
            recovered.append(replay.recover(last, lost, is_processor=processor is not None))
            return recovered[0]

        directory = open_directory(
            job,
            files,
            identifier,
            last,
            positions,
            now_ms=now_ms,
            processor=processor,
            unread=unread,
            recover=recover,
        )
    except ReplayStopped:
        raise
    except Exception as e:
        raise cause(e) from e
    again = recovered[0] if recovered else None
    decision = again or last
    if decision and directory.name == decision.directory:
        return StateStart(StateChain(directory, identifier, decision, decision.accepted_loss, positions), again)
    # The state begins empty: the first one, or in place of a state whose loss was accepted. Of a decision that is
    # there, the directory shows the loss; without it, the positions did.
    accepted = job.accepted_state_loss if decision else owned.accepted_loss
    return StateStart(StateChain(directory, identifier, None, accepted, positions), again)
