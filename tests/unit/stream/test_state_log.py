"""The directory of state: each start rebuilds Spark's logs from the decision, and deletes no state."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from ackwright_stream.decisions import Decision, loss_of, offsets_of, offsets_of_next
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import JobSpec, Reason
from ackwright_stream.positions import Lane
from ackwright_stream.spark_internals.processor_steps import Processor
from ackwright_stream.state_log import StateDirectory, open_directory
from minimal_job import minimal_job
from unit.stream.decided import DECISION
from unit.stream.memory_files import Memory

JOB = minimal_job()
POSITIONS = DECISION.positions
NOW = 1_700_000_000_000  # milliseconds since 1970


@pytest.fixture
def files() -> Memory:
    """Those of the decided state, without logs."""
    states = [("0/0/4_a.changelog", ""), ("0/1/4_b.zip", ""), ("1/0/left-keyToNumValues/4_c.changelog", "")]
    states += [("1/0/left-keyWithIndexToValue/4_d.changelog", ""), ("1/1/x/4_e.changelog", ""), ("1/1/y/4_f.zip", "")]
    return Memory({f"d1/state/{name}": text for name, text in states})


def test_without_a_decision_each_start_has_a_new_directory(files: Memory) -> None:
    before = dict(files.texts)
    first, second = (open_directory(JOB, files, "q1", None, POSITIONS, now_ms=NOW).name for _ in range(2))
    assert len({first, second, "d1"}) == 3
    assert files.texts.items() >= before.items()


def test_logs_are_rebuilt_and_later_entries_are_deleted(files: Memory) -> None:
    state = dict(files.texts)
    stale = {f"d1/{log}/{n}": "of a driver that was replaced" for log in ("offsets", "commits") for n in (2, 3, 4, 12)}
    files.texts |= {**stale, "d1/metadata": "damaged"}
    directory = open_directory(JOB, files, "q1", DECISION, POSITIONS, now_ms=NOW)
    assert directory.offsets(3) == DECISION.offsets
    logs = {path: text for path, text in files.texts.items() if "/offsets/" in path or "/commits/" in path}
    assert logs == {
        "d1/offsets/2": "before",
        "d1/offsets/3": DECISION.offsets,
        "d1/commits/2": stale["d1/commits/2"],  # Spark reads the last entry alone
        "d1/commits/3": DECISION.commit,
        "d1/offsets/4": offsets_of_next(DECISION.offsets, DECISION.watermark_ms, NOW),
    }
    assert files.texts.items() >= state.items()
    assert files.read("d1/metadata") is None


def test_no_batch_is_planned_unless_the_watermark_has_moved(files: Memory) -> None:
    open_directory(JOB, files, "q1", replace(DECISION, watermark_ms=0), POSITIONS, now_ms=NOW)
    assert files.names("d1/offsets") == ["2", "3"]


def test_for_timers_of_the_clock_a_batch_is_always_planned(files: Memory) -> None:
    unmoved = replace(DECISION, watermark_ms=0)
    files.texts["d1/state/0/_metadata/v2/0"] = 'v2\n{"stateStoreInfo":[]}'
    clock = Processor("p", True, "update", by_clock=True, by_event_time=False, initial_state=False)
    directory = open_directory(JOB, files, "q1", unmoved, POSITIONS, now_ms=NOW, processor=clock)
    text_behind = directory.offsets(4)
    assert text_behind is not None
    assert offsets_of(text_behind) == POSITIONS
    before = json.loads(DECISION.offsets.splitlines()[1])["batchWatermarkMs"]
    assert json.loads(text_behind.splitlines()[1]) == {"batchWatermarkMs": before, "batchTimestampMs": NOW, "conf": {}}


def test_a_processors_state_without_its_description_is_lost(files: Memory) -> None:
    processor = Processor("p", True, "update", by_clock=False, by_event_time=False, initial_state=False)
    with pytest.raises(JobError, match="lacks _metadata/v2 of the processor") as e:
        open_directory(JOB, files, "q1", DECISION, POSITIONS, now_ms=NOW, processor=processor)
    assert e.value.reason is Reason.STATE_LOST


def test_the_planned_batch_has_the_next_watermark_and_no_records(files: Memory) -> None:
    directory = open_directory(JOB, files, "q1", DECISION, POSITIONS, now_ms=NOW)
    text_behind = directory.offsets(4)
    assert text_behind is not None
    assert offsets_of(text_behind) == POSITIONS
    assert json.loads(text_behind.splitlines()[1]) == {"batchWatermarkMs": 1_000, "batchTimestampMs": NOW, "conf": {}}


def test_state_that_was_computed_again_is_in_place_of_the_missing_one(files: Memory) -> None:
    files.texts = {name: text for name, text in files.texts.items() if "4_a" not in name}
    again = replace(DECISION, state={**DECISION.state, 0: (("x",), ("y",))})
    lost: list[JobError] = []

    def recover(error: JobError) -> Decision:
        lost.append(error)
        return again

    loss = loss_of(DECISION.to_json(), POSITIONS)
    directory = open_directory(JOB, files, "q1", DECISION, POSITIONS, now_ms=NOW, recover=recover)
    assert [(error.reason, error.fingerprint) for error in lost] == [(Reason.STATE_LOST, loss)]
    assert directory.name == "d1"
    assert files.read("d1/commits/3") == again.commit
    accepted = replace(JOB, accepted_state_loss=loss)
    assert open_directory(accepted, files, "q1", DECISION, POSITIONS, now_ms=NOW, recover=recover).name != "d1"
    files.texts["d1/state/0/0/4_a.changelog"] = ""
    open_directory(JOB, files, "q1", DECISION, POSITIONS, now_ms=NOW, recover=recover)
    assert files.read("d1/commits/3") == DECISION.commit
    assert len(lost) == 1


WRITTEN = 'v1\n{"batchWatermarkMs":1000,"conf":{}}\n{"in":{"0":12},"in-2":{"1":9}}'


def test_a_batch_whose_output_was_written_is_planned_again_with_the_same_records(files: Memory) -> None:
    directory = open_directory(JOB, files, "q1", DECISION, POSITIONS, now_ms=NOW)
    directory.record_written(4, WRITTEN)
    files.write("d1/offsets/4", "of a driver that was replaced")
    assert open_directory(JOB, files, "q1", DECISION, POSITIONS, now_ms=NOW).offsets(4) == WRITTEN


FIRST_BATCH = 'v1\n{"batchWatermarkMs":0,"conf":{}}\n{"in":{"0":12},"in-2":{"1":9}}'


def test_the_first_batch_whose_output_was_written_is_planned_again_with_the_same_records(files: Memory) -> None:
    """Also if the driver may have smaller batches by then: it would write other rows for the same groups."""
    first = open_directory(JOB, files, "q1", None, POSITIONS, now_ms=NOW)
    assert first.offsets(0) is None
    first.record_written(0, FIRST_BATCH)
    again = open_directory(JOB, files, "q1", None, POSITIONS, now_ms=NOW)
    assert again.name != first.name, "its state is that of no decision"
    assert again.offsets(0) == FIRST_BATCH


def test_the_first_batch_of_state_in_place_of_a_lost_one_is_planned_again(files: Memory) -> None:
    files.delete("d1/state/0/0/4_a.changelog")
    accepting = replace(JOB, accepted_state_loss=loss_of(DECISION.to_json(), POSITIONS))
    open_directory(accepting, files, "q1", DECISION, POSITIONS, now_ms=NOW).record_written(0, FIRST_BATCH)
    assert open_directory(accepting, files, "q1", DECISION, POSITIONS, now_ms=NOW).offsets(0) == FIRST_BATCH


@pytest.mark.parametrize(
    ("batch", "text"),
    [
        (1, FIRST_BATCH),
        (0, WRITTEN),  # with a watermark
        (0, FIRST_BATCH.replace('"0":12', '"0":6')),  # in front of the position
        (0, FIRST_BATCH.replace('"1":9', '"1":9,"2":0')),
        (0, "no entry of Spark's log"),
    ],
)
def test_a_range_that_does_not_begin_at_the_positions_is_not_planned(files: Memory, batch: int, text: str) -> None:
    open_directory(JOB, files, "q1", None, POSITIONS, now_ms=NOW).record_written(batch, text)
    assert open_directory(JOB, files, "q1", None, POSITIONS, now_ms=NOW).offsets(0) is None
    assert open_directory(JOB, files, "q1", None, POSITIONS, now_ms=NOW).offsets(1) is None


def test_a_range_of_a_topic_that_was_recreated_since_is_not_planned(files: Memory) -> None:
    open_directory(JOB, files, "q1", None, POSITIONS, now_ms=NOW).record_written(0, FIRST_BATCH)
    accepting = replace(JOB, accepted_losses={"in": "the id of the old topic"})
    assert open_directory(accepting, files, "q1", None, POSITIONS, now_ms=NOW).offsets(0) is None


def test_the_range_of_the_state_before_is_not_planned_behind_a_decision(files: Memory) -> None:
    other = StateDirectory(files, "d0")
    other.record_written(4, WRITTEN)
    text = open_directory(JOB, files, "q1", DECISION, POSITIONS, now_ms=NOW).offsets(4)
    assert text is not None
    assert text != WRITTEN


def test_a_batch_whose_output_was_written_has_no_records_of_lanes_that_were_added_since(files: Memory) -> None:
    added = {Lane("in", 1): 40}
    open_directory(JOB, files, "q1", DECISION, POSITIONS, now_ms=NOW).record_written(4, WRITTEN)
    text = open_directory(JOB, files, "q1", DECISION, {**POSITIONS, **added}, now_ms=NOW).offsets(4)
    assert text is not None
    assert offsets_of(text) == {**offsets_of(WRITTEN), **added}


@pytest.mark.parametrize(
    ("batch", "text"),
    [
        (3, WRITTEN),  # decided
        (5, WRITTEN),
        (4, WRITTEN.replace("1000", "999")),  # other records would be late
        (4, WRITTEN.replace('"0":12', '"0":6')),  # in front of the position
        (4, WRITTEN.replace(',"in-2":{"1":9}', "")),
        (4, WRITTEN.replace('"1":9', '"1":9,"2":0')),
        (4, "no entry of Spark's log"),
    ],
)
def test_a_range_that_does_not_continue_the_decision_is_not_planned(files: Memory, batch: int, text: str) -> None:
    directory = open_directory(JOB, files, "q1", DECISION, POSITIONS, now_ms=NOW)
    next_text = directory.offsets(4)
    directory.record_written(batch, text)
    assert open_directory(JOB, files, "q1", DECISION, POSITIONS, now_ms=NOW).offsets(4) == next_text
    files.write("written.json", "damaged")
    assert open_directory(JOB, files, "q1", DECISION, POSITIONS, now_ms=NOW).offsets(4) == next_text


def test_lanes_that_were_added_begin_at_their_positions(files: Memory) -> None:
    added = {Lane("in", 1): 40, Lane("new", 0): 5}
    directory = open_directory(JOB, files, "q1", DECISION, {**POSITIONS, **added}, now_ms=NOW)
    text = directory.offsets(3)
    assert text is not None
    assert offsets_of(text) == {**POSITIONS, **added}
    assert text.splitlines()[:2] == DECISION.offsets.splitlines()[:2]
    text_behind = directory.offsets(4)
    assert text_behind is not None
    assert offsets_of(text_behind) == {**POSITIONS, **added}


@pytest.mark.parametrize("file", ["0/0/4_a.changelog", "1/1/y/4_f.zip"])
def test_missing_state_halts(files: Memory, file: str) -> None:
    files.delete(f"d1/state/{file}")
    with pytest.raises(JobError, match="has no file of the state") as e:
        open_directory(JOB, files, "q1", DECISION, POSITIONS, now_ms=NOW)
    assert e.value.reason is Reason.STATE_LOST


def test_an_accepted_loss_begins_a_new_directory_as_long_as_the_state_is_missing(files: Memory) -> None:
    files.delete("d1/state/0/0/4_a.changelog")
    with pytest.raises(JobError) as e:
        open_directory(replace(JOB, accepted_state_loss="0123456789ab"), files, "q1", DECISION, POSITIONS, now_ms=NOW)
    accepting = replace(JOB, accepted_state_loss=e.value.fingerprint)
    assert open_directory(accepting, files, "q1", DECISION, POSITIONS, now_ms=NOW).name != "d1"
    files.write("d1/state/0/0/4_a.changelog", "")  # a person has restored the volume after all
    assert open_directory(accepting, files, "q1", DECISION, POSITIONS, now_ms=NOW).name == "d1"


def test_an_accepted_loss_of_damaged_state_begins_a_new_directory_once_it_could_not_be_read(files: Memory) -> None:
    loss = loss_of(DECISION.to_json(), DECISION.positions)
    accepting = replace(JOB, accepted_state_loss=loss)

    def name(job: JobSpec, unread: str | None) -> str:
        return open_directory(job, files, "q1", DECISION, POSITIONS, now_ms=NOW, unread=unread).name

    assert name(accepting, None) == "d1"  # a person has restored it after all
    assert name(accepting, "0123456789ab") == "d1"
    assert name(JOB, loss) == "d1"  # it is read again
    assert name(accepting, loss) != "d1"


def test_state_of_another_query_is_refused(files: Memory) -> None:
    with pytest.raises(JobError, match="the state behind batch 3 is of another query") as e:
        open_directory(JOB, files, "q2", DECISION, POSITIONS, now_ms=NOW)
    assert e.value.reason is Reason.INVALID_TRANSFORM


@pytest.mark.parametrize("last", [None, DECISION], ids=["new", "decided"])
def test_the_directory_of_another_pipeline_is_refused(files: Memory, last: Decision | None) -> None:
    """Also if its state is not there and its loss was accepted: it would begin in the other one's directory."""
    open_directory(JOB, files, "q1", None, POSITIONS, now_ms=NOW)
    files.delete("d1/state/0/0/4_a.changelog")
    before = dict(files.texts)
    other = replace(JOB, name="other", accepted_state_loss=loss_of(DECISION.to_json(), DECISION.positions))
    with pytest.raises(JobError, match="the state is of another pipeline") as e:
        open_directory(other, files, "q1", last, POSITIONS, now_ms=NOW)
    assert e.value.reason is Reason.INVALID_SPEC
    assert files.texts == before


def test_a_damaged_owner_is_named(files: Memory) -> None:
    files.write("owner.json", "")
    with pytest.raises(JobError, match=r"owner\.json in the directory of the state is damaged; .* write \{") as e:
        open_directory(JOB, files, "q1", DECISION, POSITIONS, now_ms=NOW)
    assert e.value.reason is Reason.INVALID_SPEC
