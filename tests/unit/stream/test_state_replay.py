"""Which batches run again from an older copy of the state, and the message if none can."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from ackwright_stream.decisions import Decision, StateIds, offsets_of
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason
from ackwright_stream.positions import Lane
from ackwright_stream.state_replay import Replay, plan, prepare, record
from unit.stream.decided import FIRST, SECOND
from unit.stream.decided_chain import FIRST_OFFSETS, LOST, decision, earlier, files_with
from unit.stream.memory_files import Memory


def plan_of(
    files: Memory, texts: list[str], last: Decision | None = None, first: Mapping[Lane, int] = FIRST_OFFSETS
) -> Replay:
    return plan(files, last or decision(5), texts, first, LOST, is_processor=False)


def refused(files: Memory, texts: list[str], **changes: Mapping[Lane, int]) -> str:
    with pytest.raises(JobError) as caught:
        plan_of(files, texts, **changes)  # type: ignore[arg-type]
    assert (caught.value.reason, caught.value.fingerprint) == (Reason.STATE_LOST, "abc")
    return caught.value.cause


def test_the_batches_behind_the_newest_complete_state_run_again() -> None:
    replay = plan_of(files_with(1, 2), earlier(0, 1, 2, 3, 4))
    assert replay.base == decision(2)
    assert [Decision.of_json(text).batch for text in replay.decisions] == [3, 4, 5]


def test_state_of_which_a_partition_is_missing_does_not_count() -> None:
    files = files_with(1, 2, 3)
    del files.texts["d1/state/0/1/4_b3.changelog"]
    assert plan_of(files, earlier(0, 1, 2, 3, 4)).base == decision(2)


def test_decisions_further_back_are_not_read() -> None:
    read = iter(earlier(0, 1, 2, 3, 4))
    plan(files_with(3), decision(5), read, FIRST_OFFSETS, LOST, is_processor=False)
    assert Decision.of_json(next(read)).batch == 2


@pytest.mark.parametrize(
    ("texts", "problem"),
    [
        ([], "state of the batches from 5 on, and the decision of the batch before them is not stored any more"),
        (earlier(1, 2, 4), "of the batches from 4 on"),  # compacted
        ([*earlier(4), "{}"], "of the batches from 4 on"),
        ([*earlier(4), decision(3, directory="d0").to_json()], "of the batches from 4 on"),
        ([*earlier(4), decision(3, query="q0").to_json()], "of the batches from 4 on"),
        ([*earlier(4), decision(3, offsets="other").to_json()], "of the batches from 4 on"),
        ([*earlier(4), decision(3, positions={FIRST: 7, SECOND: 9}).to_json()], "of the batches from 4 on"),
    ],
)
def test_decisions_have_to_follow_each_other(texts: list[str], problem: str) -> None:
    assert problem in refused(files_with(1), texts)


def test_without_any_state_the_first_batch_does_not_run_again() -> None:
    assert "no complete state of an earlier batch, either" in refused(files_with(), earlier(0, 1, 2, 3, 4))


def test_expired_records_are_named() -> None:
    files, texts = files_with(1), earlier(0, 1, 2, 3, 4)
    assert plan_of(files, texts, first={FIRST: 4, SECOND: 9}).base == decision(1)
    cause = refused(files, texts, first={FIRST: 5, SECOND: 9})
    assert cause == (
        f"{LOST.cause}, and batch 2 cannot run again from older state, because records of in-0 from offset 4 on have "
        "expired: the first that is left is 5"
    )
    assert plan_of(files_with(2), texts, first={FIRST: 5, SECOND: 99}).base == decision(2), "a lane without records"


def test_state_of_a_batch_that_has_run_again_counts_for_its_decision_alone() -> None:
    again: StateIds = {0: (("x",), ("y",))}
    files = files_with(2)
    files.texts |= files_with(4, ids=again).texts
    record(files, decision(4), again)
    texts = earlier(0, 1, 2, 3, 4)
    replay = plan_of(files, texts)
    assert replay.base == decision(4, state=again)
    assert len(replay.decisions) == 1
    assert plan_of(files, texts[1:], decision(4)) == Replay(decision(4, state=again), ())
    other = [decision(4, driver=9).to_json(), *texts[1:]]
    assert plan_of(files, other).base == decision(2)
    del files.texts["d1/state/0/0/5_x.changelog"]
    assert plan_of(files, texts).base == decision(2)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"batch":4,"of":"","state":{"0":5}}'])
def test_a_damaged_record_is_none(text: str) -> None:
    files = files_with(2)
    files.texts["d1/replayed.json"] = text
    assert plan_of(files, earlier(0, 1, 2, 3, 4)).base == decision(2)


def test_the_logs_plan_the_batch_with_its_records() -> None:
    files = files_with(2)
    files.texts |= {f"d1/{log}/{n}": "of a driver before" for log in ("offsets", "commits") for n in (2, 3, 4, 5)}
    again: StateIds = {0: (("x",), ("y",))}
    base, added = decision(2, state=again), Lane("in", 7)
    starts = {**decision(3).starts, added: 3}
    prepare(files, "/state", base, decision(3, starts=starts))
    assert files.names("d1/commits") == ["2"]
    assert files.names("d1/offsets") == ["1", "2", "3"]
    assert files.read("d1/commits/2") == base.commit
    assert files.read("d1/offsets/3") == decision(3).offsets
    assert offsets_of(files.read("d1/offsets/2") or "") == {**base.positions, added: 3}
