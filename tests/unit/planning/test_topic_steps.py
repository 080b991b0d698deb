"""From actual to planned topics: writers are never blocked, wherever the operator is killed.

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
)
from ackwright.planning.topic_work import combined_work, needs_moves, topic_work
from ackwright.planning.topics import MIN_INSYNC, UNCLEAN, TopicPlan
from unit.observed import topic
from unit.planning.drawn_topics import EVENTS, THEIRS, Event, Planner, World, planned, plans_for, simulate, worlds

Observed = Mapping[str, ObservedTopic]
RECONCILE: Event = ("reconcile",)
CONFIG = {MIN_INSYNC: "2", UNCLEAN: "false"}


def world(*layout: tuple[int, ...], least: int = 1, brokers: int = 3, unclean: str = "false") -> World:
    return World(dict.fromkeys(range(1, brokers + 1))).has("t", layout, least, unclean)


def todo(state: World, *plans: TopicPlan) -> TopicWork:
    return combined_work(plans, state.observed(), state.brokers())


@settings(max_examples=150, deadline=None)
@given(st.data(), worlds(), EVENTS)
def test_whoever_dies_on_the_way_writers_write_and_in_the_end_all_is_as_planned(
    data: st.DataObject, state: World, events: list[Event]
) -> None:
    simulate(state, data.draw(plans_for(state)), events)


# -- planners that are wrong, each caught by the same checks ------------------------------------------------


def minimum_first(plans: Sequence[TopicPlan], observed: Observed, brokers: Brokers) -> TopicWork:
    wrong = tuple(Configure(p.name, ((MIN_INSYNC, str(p.config[0].value)),)) for p in plans)
    state = combined_work(plans, observed, brokers)
    return replace(state, steps=wrong + state.steps)


def shrinking_without_a_look(plans: Sequence[TopicPlan], observed: Observed, brokers: Brokers) -> TopicWork:
    steps = []
    for p in plans:
        moves = [Move(q.number, q.replicas, q.replicas[: p.replication_factor]) for q in observed[p.name].layout]
        steps += [Reassign(p.name, tuple(m for m in moves if m.before != m.after))]
    return TopicWork(tuple(s for s in steps if s.moves))


def weaker_replicas_before_the_minimum(plans: Sequence[TopicPlan], observed: Observed, brokers: Brokers) -> TopicWork:
    state = combined_work(plans, observed, brokers)
    return replace(state, steps=shrinking_without_a_look(plans, observed, brokers).steps + state.steps)


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
    return replace(state, steps=state.steps + tuple(Unthrottle(t, given) for t, given in brokers.throttled.items()))


def over_their_rates(plans: Sequence[TopicPlan], observed: Observed, brokers: Brokers) -> TopicWork:
    return combined_work(plans, observed, replace(brokers, rated=frozenset()))


def idle(plans: Sequence[TopicPlan], observed: Observed, brokers: Brokers) -> TopicWork:
    return TopicWork()


LAGS: tuple[Event, ...] = (("die", 2), RECONCILE)
TO_THREE, TO_TWO, TO_ONE = planned(), planned(factor=2), planned(factor=1, least=1)


@pytest.mark.parametrize(
    ("wrong", "start", "plan", "events", "caught_by"),
    [
        (minimum_first, lambda: world((1,)), TO_THREE, (), "cut off by setting"),
        (shrinking_without_a_look, lambda: world((1, 2, 3), least=2), TO_TWO, LAGS, "cut off by moving"),
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
def test_a_wrong_planner_is_caught_by_where_the_right_one_passes(
    wrong: Planner, start: Callable[[], World], plan: TopicPlan, events: tuple[Event, ...], caught_by: str
) -> None:
    simulate(start(), [plan], events)
    with pytest.raises(AssertionError, match=caught_by):
        simulate(start(), [plan], events, wrong)


# -- the order -------------------------------------------------------------------------------------------------


def test_replicas_come_before_the_minimum_even_where_enough_are_in_sync_already() -> None:
    state = world((1, 2))
    assert [type(s) for s in todo(state, TO_THREE).steps] == [Reassign]
    state.reconcile([TO_THREE])
    assert todo(state, TO_THREE).steps == ()
    state.catch_up("t", 0)
    assert todo(state, TO_THREE).steps == (Configure("t", ((MIN_INSYNC, "2"),)), Unthrottle("t", (1, 2, 3)))


def test_what_strengthens_comes_first_and_what_weakens_last() -> None:
    state = world((1, 2, 3, 4), least=3, brokers=4, unclean="true")
    steps = todo(state, planned(partitions=2)).steps
    assert steps == (
        Configure("t", ((UNCLEAN, "false"),)),
        AddPartitions("t", 1, 2),
        Configure("t", ((MIN_INSYNC, "2"),)),
        Reassign("t", (Move(0, (1, 2, 3, 4), (1, 3, 4)),)),
    )


def test_the_minimum_waits_for_replicas_in_sync_and_says_so() -> None:
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
    assert not any(isinstance(s, Configure) for s in todo(waits, planned(least=1)).steps)


def test_replicas_are_given_up_only_when_enough_of_those_that_stay_are_in_sync() -> None:
    state = world((1, 2, 3), least=2)
    state.parts["t"][0].in_sync = {1}
    assert todo(state, TO_TWO) == TopicWork(
        waiting=("topic t: surplus replicas of 1 partition are removed once 2 of those that remain are in sync",)
    )
    state.parts["t"][0].in_sync = {1, 3}
    assert todo(state, TO_TWO).steps == (Reassign("t", (Move(0, (1, 2, 3), (1, 3)),)),)


def test_partitions_are_added_with_the_word_that_keys_move() -> None:
    (step,) = todo(world((1, 2, 3), least=2), planned(partitions=4)).steps
    assert str(step) == "increase topic t from 1 to 4 partitions; keys move to other partitions"


def test_every_step_says_what_it_does() -> None:
    moves = (Move(0, (1,), (1, 2)), Move(1, (1,), (1, 2, 3)))
    message = [
        CreateTopics((planned("a"), planned("b"))),
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


def test_all_problems_are_told_at_once_each_with_cause_and_remedy() -> None:
    state = world((1, 2), (2, 3), (3, 1), brokers=4)
    state.die(4)
    todo_ = todo(state, planned(partitions=2, factor=4, config=(Setting("retention.msec", "1", "why"),)))
    assert [str(p) for p in todo_.problems] == [
        "topic t has 3 partitions, the spec declares 2, and Kafka cannot remove partitions; "
        "declare partitions: 3, or recreate the topic",
        "topic t needs 4 brokers for 4 replicas, but only 3 are up; add brokers, bring the missing ones back, or lower "
        "tolerate.brokerFailures",
        "topic t: the brokers do not know the setting retention.msec; correct or remove it under spec.topics[].config",
    ]
    assert [p.reason for p in todo_.problems] == ["TopicsUnfit", "BrokersTooFew", "TopicsUnfit"]
    assert todo_ == TopicWork(problems=todo_.problems)
    assert not todo_.idle


def test_the_reason_of_several_problems() -> None:
    """A missing permission comes first, since moves are unknown without it; too few brokers come last."""
    few, unfit, denied = (TopicProblem(r, "x") for r in ("BrokersTooFew", "TopicsUnfit", "AuthorizationFailed"))
    assert TopicWork(problems=(few, few)).reason == "BrokersTooFew"
    assert TopicWork(problems=(few, unfit)).reason == "TopicsUnfit"
    assert TopicWork(problems=(few, unfit, denied)).reason == "AuthorizationFailed"


def test_a_problem_of_one_topic_holds_up_all() -> None:
    state = world((1,), (1,)).has("u", [(1,)])
    assert todo(state, planned(partitions=1), planned("u"), planned("new")).steps == ()
    assert len(todo(state, planned(partitions=1), planned("u"), planned("new")).problems) == 1
    assert len(todo(state, planned(partitions=2), planned("u"), planned("new")).steps) == 3


def test_a_topic_is_not_made_where_brokers_are_too_few_and_nothing_else_is_done_either() -> None:
    state = todo(world((1,)), planned(), planned("new", factor=5), planned("newer", factor=4))
    assert state.steps == ()
    assert [p.cause.split(" for ")[0] for p in state.problems] == [
        "topic new needs 5 brokers",
        "topic newer needs 4 brokers",
    ]


def test_a_broker_that_is_down_is_no_problem_where_there_are_replicas_enough() -> None:
    state = world((1, 2, 3), least=2)
    state.die(3)
    assert todo(state, TO_THREE).idle


def test_settings_that_mean_the_same_are_left_alone_and_others_are_not_looked_at() -> None:
    config = CONFIG | {"cleanup.policy": "compact,delete", UNCLEAN: "False", "retention.ms": "7"}
    plan = planned(config=(Setting("cleanup.policy", "delete, compact", "why"),))
    assert topic_work(plan, topic("t", config=config), Brokers(dict.fromkeys(range(3)))).idle


# -- topics that pipelines share -------------------------------------------------------------------------------


def test_a_topic_of_the_operators_own_is_only_made_stronger() -> None:
    state = world((1, 2, 3, 4), least=3, brokers=4)
    assert todo(state, planned(internal=True)).idle
    assert not needs_moves(planned(internal=True), state.observed()["t"])
    assert needs_moves(planned(), state.observed()["t"])
    steps = todo(world((1,), (1, 2)), planned(internal=True)).steps
    assert steps == (Reassign("t", (Move(0, (1,), (1, 3, 2)), Move(1, (1, 2), (1, 2, 3))), (1, 2, 3)),)


# -- moves and throttles ---------------------------------------------------------------------------------------


def test_a_move_to_a_broker_that_died_is_begun_anew_elsewhere_and_the_others_keep_their_throttle() -> None:
    state = world((1,), (2,), brokers=4)
    state.reconcile([planned(partitions=2, factor=2)])
    assert [p.adding for p in state.parts["t"]] == [(3,), (4,)]
    state.die(3)
    assert todo(state, planned(partitions=2, factor=2)).steps == (
        Reassign("t", (Move(0, (1,), (1, 4)), Move(1, (2,), (2, 4))), (1, 2, 4)),
    )
    simulate(state, [planned(partitions=2, factor=2)], [RECONCILE, ("catch_up", "t", 0), RECONCILE])


def test_without_room_elsewhere_the_broker_that_died_is_named() -> None:
    state = world((1,))
    state.reconcile([TO_THREE])
    state.die(3)
    message = "topic t: replicas of 1 of 1 partition are being moved; target broker 3 is down: bring it back"
    assert todo(state, TO_THREE) == TopicWork(waiting=(message,))


def test_a_move_in_vain_that_is_not_wanted_any_more_is_given_up_without_losing_a_replica() -> None:
    state = world((1, 2), least=2)
    state.reconcile([TO_THREE])
    state.die(3)
    (step,) = todo(state, TO_ONE).steps
    assert isinstance(step, Reassign)
    assert step.moves == (Move(0, (1, 2), (1, 2)),)


def test_somebody_elses_move_of_our_topic_is_waited_for() -> None:
    state = world((1, 2, 3, 4), brokers=4)
    state.parts["t"][0].adding, state.parts["t"][0].removing = (4,), (3,)
    state.die(4)
    assert todo(state, TO_THREE).steps == ()


def test_somebody_elses_move_of_another_topic_is_waited_for_and_what_only_strengthens_is_done() -> None:
    state = world((1,), unclean="true")
    state.move_of_somebody_else(True)
    message = "topic t: waits until the reassignment of topic somebody's, which the operator did not start, has ended"
    assert todo(state, TO_THREE) == TopicWork((Configure("t", ((UNCLEAN, "false"),)),), (message,))
    ours = topic_work(TO_THREE, state.observed()["t"], state.brokers(), own=["somebody's"])
    assert any(isinstance(s, Reassign) for s in ours.steps)


def test_somebodys_own_rate_is_neither_written_over_nor_taken_away() -> None:
    state = replace(world((1,)), rates={2: THEIRS})
    state.reconcile([TO_THREE])
    assert (state.record, state.rates) == ({"t": (1, 3)}, {1: "1", 2: THEIRS, 3: "1"})
    simulate(state, [TO_THREE], [])


def test_topics_share_the_throttle_and_the_last_ends_it() -> None:
    plans = [planned("t"), planned("u")]
    state = world((1,)).has("u", [(1,)])
    state.reconcile(plans, budget=5)  # killed when the first topic moves: its list, three brokers, the move
    assert [bool(state.parts[t][0].adding) for t in ("t", "u")] == [True, False]
    state.reconcile(plans)
    state.catch_up("t", 0)
    assert not any(isinstance(s, Unthrottle) for s in todo(state, *plans).steps)
    state.catch_up("u", 0)
    assert [s for s in todo(state, *plans).steps if isinstance(s, Unthrottle)] == [
        Unthrottle(t, (1, 2, 3)) for t in ("t", "u")
    ]


def test_a_throttle_is_not_ended_in_the_look_that_begins_a_move() -> None:
    state = world((1, 2, 3), least=2).has("u", [(1,)])
    state.record, state.rates = {"t": (1, 2, 3)}, dict.fromkeys((1, 2, 3), "1")
    steps = todo(state, planned("t"), planned("u")).steps
    assert [type(s) for s in steps] == [Reassign]
    assert steps[0] == Reassign(
        "u", (Move(0, (1,), (1, 2, 3)),), (1, 2, 3)
    )  # with rates of its own, not only with those of the other


def test_a_throttle_ends_when_nothing_moves_and_that_of_a_broker_that_is_down_when_it_is_back() -> None:
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
    assert todo(state, TO_THREE).idle, "it may never come back"
    state.come_back(3)
    assert todo(state, TO_THREE).steps == (Unthrottle("t", (3,)),)


def test_moves_are_told_by_how_many_partitions_they_concern() -> None:
    state = topic("t", partitions=3, factor=3, config=CONFIG)
    brokers = Brokers(dict.fromkeys(range(3)), {("t", 0): Reassignment((2,), ()), ("t", 1): Reassignment((0,), ())})
    assert topic_work(planned(partitions=3), state, brokers).waiting == (
        "topic t: replicas of 2 of 3 partitions are being moved",
    )
