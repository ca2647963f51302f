"""When a rebalance is due, what it takes and gives back, and who stays without queues."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman_client.core.allocation import (
    AllocationRequest,
    AllocationStrategy,
    Averagely,
    ByConfig,
    MachineRoomNearby,
    Pinned,
)
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.rebalance import (
    IdleReason,
    Members,
    MessageModel,
    RebalanceTiming,
    RebalanceTrigger,
    Share,
    idle_reason,
    idle_warning,
    is_balanced,
    plan_topic,
    queues_of_other_topics,
    share_of_topic,
)
from pointsman_client.errors import AllocationError
from tests.kit.client.queues import queues, request, short

FOUR = queues(q=4)
OTHER = queues("payments", q=2)
TWO_MEMBERS = Members(("a@1", "b@1"))


def share(
    of: Iterable[MessageQueue] | None,
    members: Members | None,
    *,
    client_id: str = "a@1",
    model: MessageModel = MessageModel.CLUSTERING,
    strategy: AllocationStrategy | None = None,
) -> Share | None:
    return share_of_topic(
        "orders",
        model=model,
        group="G",
        client_id=client_id,
        queues=None if of is None else tuple(of),
        members=members,
        strategy=strategy or Averagely(),
        zones={("c1", "q"): "east"},
    )


def test_members_share_a_topic_by_the_strategy_for_any_order_of_queues_and_members() -> None:
    assert share(FOUR[::-1], TWO_MEMBERS) == Share(frozenset(FOUR[:2]))
    assert share(FOUR[::-1], Members(("b@1", "a@1")), client_id="b@1") == Share(frozenset(FOUR[2:]))


def test_queue_10_comes_after_queue_9() -> None:
    assert share(queues(q=12)[::-1], TWO_MEMBERS, client_id="b@1") == Share(frozenset(queues(q=12)[6:]))


def test_each_member_of_a_broadcasting_group_holds_everything_and_needs_no_list_of_members() -> None:
    assert share(FOUR, None, model=MessageModel.BROADCASTING) == Share(frozenset(FOUR))


@pytest.mark.parametrize("model", MessageModel)
def test_a_route_that_is_not_known_changes_nothing_and_one_without_queues_leaves_none(model: MessageModel) -> None:
    assert share(None, TWO_MEMBERS, model=model) is None
    assert share((), TWO_MEMBERS, model=model) == Share(frozenset())


def test_without_a_list_of_members_nothing_changes() -> None:
    assert share(FOUR, None) is None


def test_a_client_that_is_not_in_the_list_holds_nothing() -> None:
    assert share(FOUR, TWO_MEMBERS, client_id="c@1") == Share(frozenset())


def test_the_only_member_holds_nothing_when_its_client_id_is_taken_over() -> None:
    assert share(FOUR, Members(())) == Share(frozenset())


def test_w13_a_pin_of_the_agents_gives_everything_to_one_and_it_ends_by_itself() -> None:
    pinned = Members(("a@1", "b@1"), pinned=("b@1",))
    assert share(FOUR, pinned) == Share(frozenset(), IdleReason.PINNED_ELSEWHERE)
    assert share(FOUR, pinned, client_id="b@1") == Share(frozenset(FOUR))
    assert share(FOUR, TWO_MEMBERS) == Share(frozenset(FOUR[:2]))


def test_a_pin_leaves_configured_queues_with_their_members_which_alone_know_them() -> None:
    pinned = Members(("a@1", "b@1"), pinned=("b@1",))
    assert share(FOUR, pinned, strategy=ByConfig(FOUR[:2])) == Share(frozenset(FOUR[:2]))
    assert share(FOUR, pinned, client_id="b@1", strategy=ByConfig(FOUR[2:])) == Share(frozenset(FOUR[2:]))
    assert share(FOUR, pinned, strategy=ByConfig()) == Share(frozenset(), IdleReason.STRATEGY)


def test_w15_a_member_beyond_the_number_of_queues_gets_a_reason_for_being_idle() -> None:
    many = Members(tuple(f"{name}@1" for name in "abcde"))
    assert share(FOUR, many, client_id="e@1") == Share(frozenset(), IdleReason.MORE_MEMBERS_THAN_QUEUES)


def test_the_error_of_a_strategy_is_raised() -> None:
    with pytest.raises(AllocationError, match="Machine room is null for consumer id a@1"):
        share(FOUR, TWO_MEMBERS, strategy=MachineRoomNearby())


def test_the_zones_of_the_route_reach_the_strategy() -> None:
    members = Members(("a@1@east", "b@1@west"))
    assert share(FOUR, members, client_id="a@1@east", strategy=MachineRoomNearby()) == Share(frozenset(FOUR))


def test_a_configured_list_counts_for_the_topic_that_is_shared_out() -> None:
    assert share(FOUR, TWO_MEMBERS, strategy=ByConfig((*OTHER, FOUR[3]))) == Share(frozenset(FOUR[3:]))


def test_a_strategy_of_ones_own_is_a_class_with_a_name_and_a_method() -> None:
    class FirstTakesAll:
        name = "FIRST"

        def allocate(self, request: AllocationRequest) -> tuple[MessageQueue, ...]:
            return request.queues if request.client_id == request.client_ids[0] else ()

    assert share(FOUR, TWO_MEMBERS, strategy=FirstTakesAll()) == Share(frozenset(FOUR))
    other = share(FOUR, TWO_MEMBERS, client_id="b@1", strategy=FirstTakesAll())
    assert other == Share(frozenset(), IdleReason.STRATEGY)


def test_new_queues_are_added_missing_ones_dropped_and_the_others_kept() -> None:
    plan = plan_topic("orders", target=FOUR[1:], held=(*FOUR[:2], *OTHER))
    assert [short(each) for each in (plan.keep, plan.drop, plan.add, plan.wait)] == ["q:1", "q:0", "q:2 q:3", ""]
    assert plan.has_changes


def test_a_queue_whose_pull_expired_is_dropped_and_taken_up_again_in_one_pass() -> None:
    plan = plan_topic("orders", target=FOUR[:2], held=FOUR[:3], pull_expired=FOUR[1:])
    assert [short(each) for each in (plan.keep, plan.drop, plan.add)] == ["q:0", "q:1 q:2", "q:1"]


def test_a_queue_in_release_is_not_dropped_twice_and_waits_if_it_returns() -> None:
    plan = plan_topic("orders", target=FOUR[:2], held=FOUR[:3], dropping=FOUR[1:3], pull_expired=FOUR[1:2])
    assert [short(each) for each in (plan.keep, plan.drop, plan.add, plan.wait)] == ["q:0", "", "", "q:1"]
    assert not plan.has_changes
    assert not is_balanced(target=FOUR[:2], held=FOUR[:3], dropping=FOUR[1:3])


def test_balanced_is_to_work_on_exactly_the_target() -> None:
    assert is_balanced(target=FOUR[:2], held=FOUR[1::-1])
    assert is_balanced(target=FOUR[:2], held=FOUR, dropping=FOUR[2:])
    assert not is_balanced(target=FOUR[:2], held=FOUR[:3])
    assert not is_balanced(target=FOUR[:2], held=FOUR[:1])


SOME = st.frozensets(st.sampled_from((*queues(q=5), *OTHER)))


@given(target=SOME, held=SOME, dropping=SOME, expired=SOME)
def test_carrying_out_a_plan_leads_to_the_target_but_for_what_must_wait(
    target: frozenset[MessageQueue],
    held: frozenset[MessageQueue],
    dropping: frozenset[MessageQueue],
    expired: frozenset[MessageQueue],
) -> None:
    plan = plan_topic("orders", target=target, held=held | dropping, dropping=dropping, pull_expired=expired)

    working = held - dropping
    mine = {queue for queue in working if queue.topic == "orders"}
    wanted = {queue for queue in target if queue.topic == "orders"}
    assert set(plan.drop) <= mine
    assert not set(plan.add) & dropping
    assert not set(plan.keep) & expired
    assert (mine - set(plan.drop)) | set(plan.add) | set(plan.wait) == wanted
    assert set(plan.wait) == wanted & dropping
    after = (working - set(plan.drop)) | set(plan.add)
    assert after - mine - wanted == working - mine - wanted


def test_queues_of_topics_no_longer_subscribed_are_found() -> None:
    assert queues_of_other_topics({"orders"}, (*OTHER[::-1], *FOUR)) == OTHER


def ran(timing: RebalanceTiming, *, now: float, balanced: bool = True) -> RebalanceTrigger:
    trigger = timing.begin()
    timing.end(balanced=balanced, now=now)
    return trigger


def test_the_first_rebalance_is_immediate_with_reason_start() -> None:
    timing = RebalanceTiming()
    timing.wake(RebalanceTrigger.ROUTE)
    assert timing.delay(now=5.0) == 0
    assert ran(timing, now=5.0) is RebalanceTrigger.START


def test_without_events_it_is_due_every_20_seconds() -> None:
    timing = RebalanceTiming()
    ran(timing, now=5.0)
    assert [timing.delay(now=now) for now in (5.0, 24.0, 25.0, 60.0)] == [20.0, 1.0, 0.0, 0.0]
    assert ran(timing, now=25.0) is RebalanceTrigger.PERIOD
    assert timing.delay(now=25.0) == 20.0


def test_the_members_are_queried_once_per_interval_for_any_trigger() -> None:
    timing = RebalanceTiming()
    assert [timing.is_refresh_due(now=now) for now in (5.0, 6.0, 24.9, 25.0, 26.0, 46.0)] == [
        True,
        False,
        False,
        True,
        False,
        True,
    ]


@pytest.mark.parametrize("trigger", [RebalanceTrigger.MEMBERS, RebalanceTrigger.ROUTE, RebalanceTrigger.SUBSCRIPTION])
def test_w12_an_event_makes_it_due_immediately_but_not_within_a_second_of_the_last(trigger: RebalanceTrigger) -> None:
    timing = RebalanceTiming()
    ran(timing, now=5.0)
    timing.wake(trigger)
    assert [timing.delay(now=now) for now in (5.0, 5.25, 6.0, 17.0)] == [1.0, 0.75, 0.0, 0.0]
    assert ran(timing, now=17.0) is trigger
    assert timing.delay(now=17.0) == 20.0


def test_the_first_of_several_reasons_is_reported_and_one_run_covers_all() -> None:
    timing = RebalanceTiming()
    ran(timing, now=5.0)
    timing.wake(RebalanceTrigger.MEMBERS)
    timing.wake(RebalanceTrigger.ROUTE)
    assert ran(timing, now=9.0) is RebalanceTrigger.MEMBERS
    assert timing.delay(now=9.0) == 20.0


def test_an_event_during_a_run_is_due_after_it() -> None:
    timing = RebalanceTiming()
    timing.begin()
    timing.wake(RebalanceTrigger.MEMBERS)
    timing.end(balanced=True, now=7.0)
    assert timing.delay(now=7.5) == 0.5
    assert timing.begin() is RebalanceTrigger.MEMBERS


def test_a_member_that_is_not_balanced_tries_again_after_a_second() -> None:
    timing = RebalanceTiming()
    ran(timing, now=5.0, balanced=False)
    assert timing.delay(now=5.0) == 1.0
    assert ran(timing, now=6.0, balanced=False) is RebalanceTrigger.RETRY
    assert ran(timing, now=7.0) is RebalanceTrigger.RETRY
    assert timing.delay(now=7.0) == 20.0


def test_the_intervals_are_settings() -> None:
    timing = RebalanceTiming(wait_interval_seconds=3.0, min_interval_seconds=0.5)
    ran(timing, now=0.0)
    assert timing.delay(now=0.0) == 3.0
    timing.wake(RebalanceTrigger.ROUTE)
    assert timing.delay(now=0.0) == 0.5


def test_w15_members_beyond_the_number_of_queues_idle_with_a_warning() -> None:
    asked = [request(member, "abcde", queues(q=3)) for member in "abcde"]
    reasons = [idle_reason(each, Averagely().allocate(each)) for each in asked]
    assert reasons == [None, None, None, IdleReason.MORE_MEMBERS_THAN_QUEUES, IdleReason.MORE_MEMBERS_THAN_QUEUES]
    assert idle_warning(asked[4], IdleReason.MORE_MEMBERS_THAN_QUEUES) == (
        "e of group G has no queue of topic orders: more members than queues (5 members, 3 queues); "
        "stop members or add queues"
    )


@pytest.mark.parametrize(
    ("client_id", "pinned", "reason"),
    [
        pytest.param("a", ["b"], IdleReason.PINNED_ELSEWHERE, id="pinned-to-another"),
        pytest.param("b", ["b"], None, id="pinned-to-it"),
        pytest.param("e", list("bcde"), IdleReason.MORE_MEMBERS_THAN_QUEUES, id="surplus-of-the-pinned"),
        pytest.param("e", ["z"], IdleReason.MORE_MEMBERS_THAN_QUEUES, id="pin-of-an-absent-member"),
        pytest.param("z", [], None, id="no-member"),
    ],
)
def test_a_pin_is_distinguished_from_a_surplus(client_id: str, pinned: list[str], reason: IdleReason | None) -> None:
    asked = request(client_id, "abcde", queues(q=3))
    assert idle_reason(asked, Pinned(Averagely(), pinned).allocate(asked), pinned=pinned) is reason


def pinned_to(*pins: tuple[int, str], members: str = "ab", pinned: tuple[str, ...] = ()) -> Members:
    """Members whose queues of these numbers are pinned."""
    queue_pins = tuple((FOUR[number], owner) for number, owner in pins)
    return Members(tuple(f"{each}@1" for each in members), pinned, queue_pins=queue_pins)


def numbers(members: Members, *, of: Iterable[MessageQueue] = FOUR) -> dict[str, list[int]]:
    """The numbers of each member's queues."""
    shares = {each: share(of, members, client_id=each) for each in members.client_ids}
    return {each: sorted(queue.queue_id for queue in found.queues) for each, found in shares.items() if found}


def test_a_pinned_queue_moves_to_its_member_and_no_other_queue_moves() -> None:
    assert numbers(pinned_to()) == {"a@1": [0, 1], "b@1": [2, 3]}
    assert numbers(pinned_to((0, "b@1"))) == {"a@1": [1], "b@1": [0, 2, 3]}
    assert numbers(pinned_to((0, "a@1"))) == {"a@1": [0, 1], "b@1": [2, 3]}


def test_the_pin_of_a_queue_has_no_effect_without_its_member_or_its_queue() -> None:
    assert numbers(pinned_to((0, "z@1"))) == numbers(pinned_to())
    # The topic shrinks, or the broker of the pinned queue is gone.
    assert numbers(pinned_to((3, "a@1")), of=FOUR[:2]) == {"a@1": [0], "b@1": [1]}
    elsewhere = Members(("a@1", "b@1"), queue_pins=((MessageQueue("orders", "c1", "gone", 0), "a@1"),))
    assert numbers(elsewhere) == numbers(pinned_to())


def test_beside_a_pin_of_the_group_only_its_members_are_given_pinned_queues() -> None:
    both = pinned_to((0, "c@1"), (3, "b@1"), members="abc", pinned=("b@1", "c@1"))
    assert numbers(both) == {"a@1": [], "b@1": [1, 3], "c@1": [0, 2]}
    assert numbers(pinned_to((0, "a@1"), members="abc", pinned=("b@1",))) == {"a@1": [], "b@1": [0, 1, 2, 3], "c@1": []}


def test_configured_queues_stay_with_their_members_beside_pins_of_queues() -> None:
    configured = ByConfig(FOUR[:2])
    assert share(FOUR, pinned_to((0, "b@1"), (3, "a@1")), strategy=configured) == Share(frozenset(FOUR[:2]))


def test_a_member_is_idle_because_of_pins_of_queues_only_if_it_had_a_queue_without_them() -> None:
    away = share(FOUR[:2], pinned_to((0, "b@1")))
    assert away == Share(frozenset(), IdleReason.PINNED_ELSEWHERE)
    surplus = pinned_to((0, "b@1"), members="abc")
    assert share(FOUR[:2], surplus, client_id="c@1") == Share(frozenset(), IdleReason.MORE_MEMBERS_THAN_QUEUES)
    only = pinned_to((0, "c@1"), members="abc")
    assert share(FOUR[:2], only, client_id="c@1") == Share(frozenset(FOUR[:1]))


def test_an_uneven_strategy_is_distinguished_from_a_surplus() -> None:
    assert idle_reason(request("a", "ab", queues(q=2)), ()) is IdleReason.STRATEGY
