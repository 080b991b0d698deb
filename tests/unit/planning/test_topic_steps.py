"""Steps from observed to planned topics never block writers, wherever the operator is killed.

With the brokers of drawn_topics.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ackwright.planning.comparison import ObservedTopic
from ackwright.planning.guarantees import Setting
from ackwright.planning.replicas import Reassignment
from ackwright.planning.topic_steps import (
    AddPartitions,
    Brokers,
    Configure,
    CreateTopics,
    Move,
    Reassign,
    TopicProblem,
    TopicWork,
    Unthrottle,
    topics_in_creations,
)
from ackwright.planning.topic_work import combined_work, needs_moves, topic_work
from ackwright.planning.topics import MIN_INSYNC, UNCLEAN, TopicPlan
from ackwright.reasons import ConditionReason
from ackwright_stream.reasons import Reason
from unit.observed import topic
from unit.planning.drawn_topics import EVENTS, THEIRS, Event, Planner, World, plans_for, simulate, topic_plan, worlds

Observed = Mapping[str, ObservedTopic]
RECONCILE: Event = ("reconcile",)
CONFIG = {MIN_INSYNC: "2", UNCLEAN: "false"}


def world(*layout: tuple[int, ...], least: int = 1, brokers: int = 3, unclean: str = "false") -> World:
    return World(dict.fromkeys(range(1, brokers + 1))).has("t", layout, least, unclean)


def todo(state: World, *plans: TopicPlan) -> TopicWork:
    return combined_work(plans, state.observed(), state.brokers())


@settings(max_examples=150)
@given(st.data(), worlds(), EVENTS)
def test_writers_are_never_blocked_and_topics_reach_their_plan_whatever_fails_on_the_way(
    data: st.DataObject, state: World, events: list[Event]
) -> None:
    simulate(state, data.draw(plans_for(state)), events)


# -- wrong planners, each rejected by the same checks -------------------------------------------------------


def minimum_first(plans: Sequence[TopicPlan], observed: Observed, brokers: Brokers) -> TopicWork:
    wrong = tuple(Configure(p.name, ((MIN_INSYNC, str(p.config[0].value)),)) for p in plans)
    state = combined_work(plans, observed, brokers)
    return replace(state, steps=wrong + state.steps)


def shrinking_without_a_check(plans: Sequence[TopicPlan], observed: Observed, brokers: Brokers) -> TopicWork:
    steps = []
    for p in plans:
        moves = [Move(q.number, q.replicas, q.replicas[: p.replication_factor]) for q in observed[p.name].layout]
        steps += [Reassign(p.name, tuple(m for m in moves if m.before != m.after))]
    return TopicWork(tuple(s for s in steps if s.moves))


def weaker_replicas_before_the_minimum(plans: Sequence[TopicPlan], observed: Observed, brokers: Brokers) -> TopicWork:
    state = combined_work(plans, observed, brokers)
    return replace(state, steps=shrinking_without_a_check(plans, observed, brokers).steps + state.steps)


def without_throttle(plans: Sequence[TopicPlan], observed: Observed, brokers: Brokers) -> TopicWork:
    state = combined_work(plans, observed, brokers)
    return replace(state, steps=tuple(replace(s, throttled=()) if isinstance(s, Reassign) else s for s in state.steps))


def without_yielding(plans: Sequence[TopicPlan], observed: Observed, brokers: Brokers) -> TopicWork:
    ours = {at: move for at, move in brokers.moving.items() if at[0] in observed}
    return combined_work(plans, observed, replace(brokers, moving=ours))


def without_an_end(plans: Sequence[TopicPlan], observed: Observed, brokers: Brokers) -> TopicWork:
    state = combined_work(plans, observed, brokers)
    return replace(state, steps=tuple(s for s in state.steps if not isinstance(s, Unthrottle)))


def ending_at_once(plans: Sequence[TopicPlan], observed: Observed, brokers: Brokers) -> TopicWork:
    state = combined_work(plans, observed, brokers)
    return replace(state, steps=state.steps + tuple(Unthrottle(t, ids) for t, ids in brokers.throttled.items()))


def over_their_rates(plans: Sequence[TopicPlan], observed: Observed, brokers: Brokers) -> TopicWork:
    return combined_work(plans, observed, replace(brokers, rated=frozenset()))


def idle(plans: Sequence[TopicPlan], observed: Observed, brokers: Brokers) -> TopicWork:
    return TopicWork()


LAGS: tuple[Event, ...] = (("die", 2), RECONCILE)
TO_THREE, TO_TWO, TO_ONE = topic_plan(), topic_plan(factor=2), topic_plan(factor=1, least=1)


@pytest.mark.parametrize(
    ("wrong", "start", "plan", "events", "caught_by"),
    [
        (minimum_first, lambda: world((1,)), TO_THREE, (), "cut off by setting"),
        (shrinking_without_a_check, lambda: world((1, 2, 3), least=2), TO_TWO, LAGS, "cut off by moving"),
        (weaker_replicas_before_the_minimum, lambda: world((1, 2, 3), least=2), TO_ONE, (), "cut off by moving"),
        (without_throttle, lambda: world((1,)), TO_THREE, (), "without a throttle"),
        (
            without_yielding,
            lambda: world((1,)),
            TO_THREE,
            (("move_of_somebody_else", True), RECONCILE),
            "somebody else's",
        ),
        (
            without_yielding,
            lambda: world((1, 2, 3)),
            TO_TWO,
            (("move_of_somebody_else", True), RECONCILE),
            "somebody else's",
        ),
        (without_an_end, lambda: world((1,)), TO_THREE, (), "never done|throttles are left"),
        (ending_at_once, lambda: world((1,)), TO_THREE, (RECONCILE, RECONCILE), "ended while replicas are copied"),
        (
            over_their_rates,
            lambda: replace(world((1,)), rates={1: THEIRS}),
            TO_THREE,
            (),
            "somebody else gave broker 1",
        ),
        (idle, lambda: world((1,)), TO_THREE, (), "not as many replicas as planned"),
    ],
)
def test_the_checks_reject_a_wrong_planner_where_the_right_one_passes(
    wrong: Planner, start: Callable[[], World], plan: TopicPlan, events: tuple[Event, ...], caught_by: str
) -> None:
    simulate(start(), [plan], events)
    with pytest.raises(AssertionError, match=caught_by):
        simulate(start(), [plan], events, wrong)


# -- the order -------------------------------------------------------------------------------------------------


def test_replicas_are_added_before_the_minimum_is_raised_even_if_enough_are_in_sync() -> None:
    state = world((1, 2))
    assert [type(s) for s in todo(state, TO_THREE).steps] == [Reassign]
    state.reconcile([TO_THREE])
    assert todo(state, TO_THREE).steps == ()
    state.catch_up("t", 0)
    assert todo(state, TO_THREE).steps == (Configure("t", ((MIN_INSYNC, "2"),)), Unthrottle("t", (1, 2, 3)))


def test_strengthening_steps_come_first_and_weakening_ones_last() -> None:
    state = world((1, 2, 3, 4), least=3, brokers=4, unclean="true")
    steps = todo(state, topic_plan(partitions=2)).steps
    assert steps == (
        Configure("t", ((UNCLEAN, "false"),)),
        AddPartitions("t", 1, 2),
        Configure("t", ((MIN_INSYNC, "2"),)),
        Reassign("t", (Move(0, (1, 2, 3, 4), (1, 3, 4)),)),
    )


def test_raising_the_minimum_waits_for_in_sync_replicas_and_reports_it() -> None:
    state = world((1, 2, 3))
    state.die(2)
    state.die(3)
    assert todo(state, TO_THREE) == TopicWork(
        waiting=("topic t: min.insync.replicas is raised to 2 once each partition has 2 replicas in sync (now: 1)",)
    )
    state.come_back(2)
    state.catch_up("t", 0)
    assert todo(state, TO_THREE).steps == (Configure("t", ((MIN_INSYNC, "2"),)),)


def test_the_minimum_of_a_topic_whose_writers_are_cut_off_is_lowered_at_once() -> None:
    state = world((1,), least=3, brokers=4)
    assert todo(state, TO_THREE).steps == (
        Reassign("t", (Move(0, (1,), (1, 2, 3)),), (1, 2, 3)),
        Configure("t", ((MIN_INSYNC, "2"),)),
    )
    waits = world((1, 2), least=2)
    assert not any(isinstance(s, Configure) for s in todo(waits, topic_plan(least=1)).steps)


def test_surplus_replicas_are_removed_only_when_enough_of_the_others_are_in_sync() -> None:
    state = world((1, 2, 3), least=2)
    state.parts["t"][0].in_sync = {1}
    assert todo(state, TO_TWO) == TopicWork(
        waiting=("topic t: surplus replicas of 1 partition are removed once 2 of those that remain are in sync",)
    )
    state.parts["t"][0].in_sync = {1, 3}
    assert todo(state, TO_TWO).steps == (Reassign("t", (Move(0, (1, 2, 3), (1, 3)),)),)


def test_the_step_that_adds_partitions_warns_that_keys_move() -> None:
    (step,) = todo(world((1, 2, 3), least=2), topic_plan(partitions=4)).steps
    assert str(step) == "increase topic t from 1 to 4 partitions; keys move to other partitions"


def test_every_step_describes_itself() -> None:
    moves = (Move(0, (1,), (1, 2)), Move(1, (1,), (1, 2, 3)))
    message = [
        CreateTopics((topic_plan("a"), topic_plan("b"))),
        Configure("t", (("a", "1"), ("b", "2"))),
        Reassign("t", moves),
        Reassign("t", (Move(0, (1, 2), (1,)),)),
        Unthrottle("t", (1,)),
    ]
    assert [str(s) for s in message] == [
        "create topics a, b",
        "set a=1, b=2 of topic t",
        "reassign 2 partitions of topic t to 2 or 3 replicas",
        "reassign 1 partition of topic t to 1 replica",
        "remove the replication throttle of topic t",
    ]


# -- problems --------------------------------------------------------------------------------------------------


def test_a_source_of_a_stateful_pipeline_gets_no_further_partitions() -> None:
    """Control: a topic that feeds no state gets them."""
    target, present = topic_plan(partitions=3, factor=2), world((1, 2), (2, 1), least=2)
    work = todo(present, replace(target, feeds_state=True))
    [problem] = work.problems
    assert "topic t has 2 partitions, the spec declares 3" in problem.cause
    assert "remove the topic from spec.topics, and then declare it with partitions: 2" in problem.remedy
    assert "kafka-topics --alter --topic t --partitions 3" in problem.remedy
    assert not work.steps
    assert todo(present, target).steps == (AddPartitions("t", 2, 3),)
    grown = world((1, 2), (2, 1), (1, 2))
    assert not todo(grown, replace(target, feeds_state=True)).problems
    assert not todo(world((1, 2), (2, 1)), target).problems


def test_a_source_that_gets_no_partitions_delays_no_other_step() -> None:
    """Control: too many partitions block the steps of every topic."""
    feeding, new = replace(topic_plan(partitions=3, factor=2), feeds_state=True), topic_plan("new")
    small = todo(world((1, 2), (2, 1)), feeding, new)
    assert small.steps == (CreateTopics((new,)), Configure("t", ((MIN_INSYNC, "2"),)))
    assert small.reason == "TopicsUnfit"
    large = todo(world((1, 2), (2, 1), (1, 2), (2, 1)), feeding, new)
    assert (large.steps, large.reason) == ((), "TopicsUnfit")


def test_all_problems_are_reported_at_once_each_with_cause_and_remedy() -> None:
    state = world((1, 2), (2, 3), (3, 1), brokers=4)
    state.die(4)
    todo_ = todo(state, topic_plan(partitions=2, factor=4, config=(Setting("retention.msec", "1", "why"),)))
    assert [str(p) for p in todo_.problems] == [
        "topic t needs 4 brokers for 4 replicas, but only 3 are up; add brokers, bring the missing ones back, or lower "
        "tolerate.brokerFailures, replicationFactor or min.insync.replicas",
        "topic t has 3 partitions, the spec declares 2, and Kafka cannot remove partitions; "
        "declare partitions: 3, or recreate the topic",
        "topic t: the brokers do not know the setting retention.msec; correct or remove it under spec.topics[].config",
    ]
    assert [p.reason for p in todo_.problems] == ["BrokersTooFew", "TopicsUnfit", "TopicsUnfit"]
    assert todo_ == TopicWork(problems=todo_.problems)
    assert not todo_.idle


def test_of_several_problems_the_most_severe_reason_is_reported() -> None:
    """A missing permission comes first, because reassignments are unknown without it; too few brokers come last."""
    few, unfit, denied = (
        TopicProblem(reason, "x")
        for reason in (Reason.BROKERS_TOO_FEW, ConditionReason.TOPICS_UNFIT, Reason.AUTHORIZATION_FAILED)
    )
    assert TopicWork(problems=(few, few)).reason == "BrokersTooFew"
    assert TopicWork(problems=(few, unfit)).reason == "TopicsUnfit"
    assert TopicWork(problems=(few, unfit, denied)).reason == "AuthorizationFailed"


def test_too_few_brokers_for_several_topics_are_one_problem_with_the_value_that_they_allow() -> None:
    state = world((1, 2), (2, 3), (3, 1))
    derived = [topic_plan(name, partitions=3, factor=5, broker_failures=2) for name in ("t", "new", "newer")]
    assert [str(p) for p in todo(state, *derived, topic_plan("declared", factor=4)).problems] == [
        "topics t, new, newer need 5 brokers for 5 replicas each, but only 3 are up; add brokers, bring the missing "
        "ones back, or lower tolerate.brokerFailures from 2 to 1",
        "topic declared needs 4 brokers for 4 replicas, but only 3 are up; add brokers, bring the missing ones back, "
        "or lower tolerate.brokerFailures, replicationFactor or min.insync.replicas",
    ]
    (two,) = todo(world((1, 2), (2, 1), brokers=2), topic_plan("new", factor=3, broker_failures=1)).problems
    assert two.remedy.endswith("lower tolerate.brokerFailures from 1 to 0")


def test_an_own_topic_that_has_more_replicas_than_planned_is_reported_as_well() -> None:
    state = world((1, 2, 3, 4), (1, 2, 3), brokers=4)
    state.die(4)
    (problem,) = todo(state, topic_plan(partitions=2, factor=3, internal=True, broker_failures=1)).problems
    assert str(problem).startswith("topic t needs 4 brokers for 4 replicas, but only 3 are up; ")
    assert problem.remedy.endswith("tolerate.brokerFailures, replicationFactor or min.insync.replicas")


def test_a_problem_of_one_topic_blocks_the_steps_of_all() -> None:
    state = world((1,), (1,)).has("u", [(1,)])
    assert todo(state, topic_plan(partitions=1), topic_plan("u"), topic_plan("new")).steps == ()
    assert len(todo(state, topic_plan(partitions=1), topic_plan("u"), topic_plan("new")).problems) == 1
    assert len(todo(state, topic_plan(partitions=2), topic_plan("u"), topic_plan("new")).steps) == 3


def test_with_too_few_brokers_no_topic_is_created_and_no_other_step_is_taken() -> None:
    state = todo(world((1,)), topic_plan(), topic_plan("new", factor=5), topic_plan("newer", factor=4))
    assert state.steps == ()
    assert [p.cause.split(" for ")[0] for p in state.problems] == [
        "topic new needs 5 brokers",
        "topic newer needs 4 brokers",
    ]


def test_a_broker_that_is_down_is_no_problem_if_enough_replicas_exist() -> None:
    state = world((1, 2, 3), least=2)
    state.die(3)
    assert todo(state, TO_THREE).idle


def test_equivalent_settings_are_no_difference_and_undeclared_settings_are_ignored() -> None:
    config = CONFIG | {"cleanup.policy": "compact,delete", UNCLEAN: "False", "retention.ms": "7"}
    plan = topic_plan(config=(Setting("cleanup.policy", "delete, compact", "why"),))
    assert topic_work(plan, topic("t", config=config), Brokers(dict.fromkeys(range(3)))).idle


# -- topics that pipelines share -------------------------------------------------------------------------------


def test_an_internal_topic_is_only_strengthened() -> None:
    state = world((1, 2, 3, 4), least=3, brokers=4)
    assert todo(state, topic_plan(internal=True)).idle
    assert not needs_moves(topic_plan(internal=True), state.observed()["t"])
    assert needs_moves(topic_plan(), state.observed()["t"])
    steps = todo(world((1,), (1, 2)), topic_plan(internal=True)).steps
    assert steps == (Reassign("t", (Move(0, (1,), (1, 3, 2)), Move(1, (1, 2), (1, 2, 3))), (1, 2, 3)),)


# -- moves and throttles ---------------------------------------------------------------------------------------


def test_a_move_to_a_broker_that_is_down_is_redirected_and_the_others_keep_their_throttle() -> None:
    state = world((1,), (2,), brokers=4)
    state.reconcile([topic_plan(partitions=2, factor=2)])
    assert [p.adding for p in state.parts["t"]] == [(3,), (4,)]
    state.die(3)
    assert todo(state, topic_plan(partitions=2, factor=2)).steps == (
        Reassign("t", (Move(0, (1,), (1, 4)), Move(1, (2,), (2, 4))), (1, 2, 4)),
    )
    simulate(state, [topic_plan(partitions=2, factor=2)], [RECONCILE, ("catch_up", "t", 0), RECONCILE])


def test_without_another_broker_the_one_that_is_down_is_named() -> None:
    state = world((1,))
    state.reconcile([TO_THREE])
    state.die(3)
    message = "topic t: replicas of 1 of 1 partition are being moved; target broker 3 is down: bring it back"
    assert todo(state, TO_THREE) == TopicWork(waiting=(message,))


def test_a_stuck_move_that_is_no_longer_needed_is_cancelled_without_losing_a_replica() -> None:
    state = world((1, 2), least=2)
    state.reconcile([TO_THREE])
    state.die(3)
    (step,) = todo(state, TO_ONE).steps
    assert isinstance(step, Reassign)
    assert step.moves == (Move(0, (1, 2), (1, 2)),)


def test_a_foreign_reassignment_of_a_planned_topic_is_awaited() -> None:
    state = world((1, 2, 3, 4), brokers=4)
    state.parts["t"][0].adding, state.parts["t"][0].removing = (4,), (3,)
    state.die(4)
    assert todo(state, TO_THREE).steps == ()


def test_during_a_foreign_reassignment_of_another_topic_only_strengthening_settings_change() -> None:
    state = world((1,), unclean="true")
    state.move_of_somebody_else(True)
    message = "topic t: waits until the reassignment of topic somebody's, which the operator did not start, has ended"
    assert todo(state, TO_THREE) == TopicWork((Configure("t", ((UNCLEAN, "false"),)),), (message,))
    ours = topic_work(TO_THREE, state.observed()["t"], state.brokers(), own=["somebody's"])
    assert any(isinstance(s, Reassign) for s in ours.steps)


def test_a_foreign_replication_rate_is_neither_overwritten_nor_removed() -> None:
    state = replace(world((1,)), rates={2: THEIRS})
    state.reconcile([TO_THREE])
    assert (state.record, state.rates) == ({"t": (1, 3)}, {1: "1", 2: THEIRS, 3: "1"})
    simulate(state, [TO_THREE], [])


def test_topics_share_the_throttle_and_the_last_one_removes_it() -> None:
    plans = [topic_plan("t"), topic_plan("u")]
    state = world((1,)).has("u", [(1,)])
    state.reconcile(plans, budget=5)  # killed after five writes: throttled replicas, three rates, the reassignment
    assert [bool(state.parts[t][0].adding) for t in ("t", "u")] == [True, False]
    state.reconcile(plans)
    state.catch_up("t", 0)
    assert not any(isinstance(s, Unthrottle) for s in todo(state, *plans).steps)
    state.catch_up("u", 0)
    assert [s for s in todo(state, *plans).steps if isinstance(s, Unthrottle)] == [
        Unthrottle(t, (1, 2, 3)) for t in ("t", "u")
    ]


def test_a_throttle_is_not_removed_in_the_reconcile_that_starts_a_move() -> None:
    state = world((1, 2, 3), least=2).has("u", [(1,)])
    state.record, state.rates = {"t": (1, 2, 3)}, dict.fromkeys((1, 2, 3), "1")
    steps = todo(state, topic_plan("t"), topic_plan("u")).steps
    assert [type(s) for s in steps] == [Reassign]
    # With separate rates, not only with those of the other topic.
    assert steps[0] == Reassign("u", (Move(0, (1,), (1, 2, 3)),), (1, 2, 3))


def test_a_throttle_is_removed_when_no_replica_moves_and_its_broker_is_up() -> None:
    state = world((1, 2, 3), least=2)
    state.record, state.rates = {"t": (1, 3)}, dict.fromkeys((1, 3), "1")
    state.move_of_somebody_else(True)
    assert todo(state, TO_THREE) == TopicWork(
        waiting=("topic t: its replication throttle is removed when no replicas are being moved",)
    )
    state.move_of_somebody_else(False)
    state.die(3)
    assert todo(state, TO_THREE) == TopicWork((Unthrottle("t", (1,)),))
    state.reconcile([TO_THREE])
    assert todo(state, TO_THREE).idle, "the broker may never come back"
    state.come_back(3)
    assert todo(state, TO_THREE).steps == (Unthrottle("t", (3,)),)


def test_the_message_on_moves_counts_their_partitions() -> None:
    state = topic("t", partitions=3, factor=3, config=CONFIG)
    brokers = Brokers(dict.fromkeys(range(3)), {("t", 0): Reassignment((2,), ()), ("t", 1): Reassignment((0,), ())})
    assert topic_work(topic_plan(partitions=3), state, brokers).waiting == (
        "topic t: replicas of 2 of 3 partitions are being moved",
    )


def test_the_topics_of_a_creation_are_read_from_its_text() -> None:
    actions = [str(CreateTopics((topic_plan("a.b-c"),))), str(CreateTopics((topic_plan("d"), topic_plan("e_f"))))]
    others = [str(AddPartitions("g", 1, 2)), str(Unthrottle("h", (1,)))]
    assert topics_in_creations([*actions, *others], limit=512) == {"a.b-c", "d", "e_f"}


def test_a_name_that_may_be_cut_is_no_topic_of_a_creation() -> None:
    action = str(CreateTopics((topic_plan("first"), topic_plan("second"))))
    assert topics_in_creations([action[:-1]], limit=len(action) - 1) == {"first"}
