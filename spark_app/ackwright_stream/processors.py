"""Which stateful processors a pipeline can have: transformWithState as its last step with state, with timers.

See docs/stateful.md#a-processor-in-python.
"""

from __future__ import annotations

from collections.abc import Collection

from pyspark.sql import DataFrame

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason, StateSettings
from ackwright_stream.spark_internals import join_steps, processor_steps
from ackwright_stream.spark_internals.processor_steps import Processor


def check_processor(output: DataFrame, state: StateSettings, others: Collection[str]) -> None:
    """Raises JobError(INVALID_TRANSFORM) unless the transform's processor is one that a stateful pipeline can have.

    output: of a transform with a processor, as a stream or a batch. others: what else keeps state in the transform
    apart from deduplication before the processor, in the words of SQL. What depends on the watermark is judged of a
    stream alone, because Spark gives a batch none.
    """
    processors = processor_steps.processors(output)
    if len(processors) > 1:
        raise _refused("has several stateful processors", "let another pipeline read the output of the first one")
    [processor] = processors
    name = processor.name
    if others:
        what = ", ".join(sorted(others))
        raise _refused(f"uses {name} together with {what}", "let another pipeline read the output of this one")
    if processor.initial_state:
        raise _refused(
            f"gives {name} an initialState, whose rows are no records of the source, so no position says that they "
            "were counted",
            "send these rows to the source",
        )
    if not processor.grouped:
        raise _refused(f"uses {name} on all records in one group", "name columns in groupBy")
    if processor.output_mode != state.output_mode:
        raise _refused(
            f"has {name} with outputMode {processor.output_mode}, and the pipeline state.outputMode "
            f"{state.output_mode}",
            "write the same in both places",
        )
    if output.isStreaming and processor.by_event_time and not join_steps.watermarks(output):
        raise _refused(f"has {name} with timers of event time, and no watermark", "declare source.eventTime")


def check_ends(output: DataFrame) -> None:
    """Raises JobError(INVALID_TRANSFORM) if a bounded run of the stream would not end."""
    for processor in processor_steps.processors(output):
        if processor.by_clock:
            raise _refused(
                f"has {processor.name} with processing time in a bounded run, which would not end: a timer may always "
                "come",
                "use event time, or remove trigger.availableNow",
            )


def processor_of(output: DataFrame) -> Processor | None:
    """The processor of a transform that check_processor() has accepted; None if it has none."""
    return next(iter(processor_steps.processors(output)), None)


def _refused(problem: str, remedy: str) -> JobError:
    return JobError(Reason.INVALID_TRANSFORM, f"the transform {problem}; {remedy}")
