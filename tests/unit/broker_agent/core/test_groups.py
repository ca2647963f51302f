"""Consumer groups by example: streams, silence, hold-downs, pins, bounds; tests/property has any sequence of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from pointsman_agent.core.group_membership import (
    HELD,
    NOTHING,
    TAKEN_OVER,
    AllocationSetting,
    Cause,
    Changes,
    ConsumeType,
    GroupState,
    GroupSubscription,
    MemberSettings,
    MembershipBeat,
    MembershipStatus,
    MessageModel,
    Removal,
    Subscription,
)
from pointsman_agent.core.group_rules import GroupLimitReached, GroupRules, NoticeRules
from pointsman_agent.core.groups import Groups
from pointsman_agent.core.queue_pins import PinnedQueue, QueuePin, QueuePinRefused, QueuePins

START = 1_000.0
A, B, C = "10.0.0.1@a", "10.0.0.2@b", "10.0.0.3@c"


def subscribed(group: str = "g", *topics: str, model: MessageModel = MessageModel.CLUSTERING) -> GroupSubscription:
    return GroupSubscription(
        group, ConsumeType.PUSH, model, tuple(Subscription(topic, "*") for topic in topics or ("orders",))
    )


def beat(client_id: str, *groups: GroupSubscription) -> MembershipBeat:
    return MembershipBeat(client_id, groups or (subscribed(),))


@pytest.fixture
def groups() -> Iterator[Groups]:
    """READY, with the defaults; `slow` has a hold-down of 10 s."""
    rules = GroupRules(warm_up=0.0, notices_of={"slow": NoticeRules(hold_down=10.0)}, max_clients=3, max_groups=3)
    groups = Groups(rules, boot=1, now=START)
    groups.advance(now=START)
    yield groups
    groups.check_invariants()


def join(groups: Groups, client_id: str, *to: GroupSubscription, stream: int = 1, now: float = START) -> Changes:
    return groups.beat(beat(client_id, *to), stream=stream, peer="h:1", now=now).changes


@pytest.mark.parametrize(
    ("silence", "is_out"),
    [pytest.param(120.0, False, id="exactly-the-expiry"), pytest.param(120.001, True, id="longer")],
)
def test_silence_removes_only_past_the_expiry(groups: Groups, silence: float, is_out: bool) -> None:
    join(groups, A)
    changes = groups.advance(now=START + silence)
    removal = Removal(A, Cause.SILENCE, ("g",))
    assert changes == (Changes(frozenset({"g"}), (removal,)) if is_out else Changes())


def test_silence_is_checked_once_per_scan_interval(groups: Groups) -> None:
    join(groups, A, now=START + 9.0)
    groups.advance(now=START + 125.0)
    assert groups.next_due() == START + 135.0
    assert groups.advance(now=START + 130.0) == Changes()
    assert groups.client_count == 1
    groups.advance(now=START + 135.0)
    assert groups.client_count == 0


def test_a_repeated_heartbeat_changes_nothing(groups: Groups) -> None:
    same = beat(A)
    assert groups.beat(same, stream=1, peer="h:1", now=START).changes.groups == {"g"}
    assert groups.beat(same, stream=1, peer="h:1", now=START + 30.0) is HELD
    assert groups.advance(now=START + 130.0).removals == ()


def test_the_end_of_an_older_stream_has_no_effect(groups: Groups) -> None:
    join(groups, A, stream=1)
    assert groups.beat(beat(A), stream=2, peer="h:2", now=START).took_over == ((1, TAKEN_OVER),)
    assert groups.end_stream(A, stream=1, by_us=False, now=START) is NOTHING
    groups.advance(now=START + 5.0)
    assert groups.client_count == 1
    assert groups.beat(beat(A), stream=1, peer="h:1", now=START + 6.0) is TAKEN_OVER
    assert groups.names() == ["g"]


def test_two_streams_of_one_client_in_different_groups_do_not_affect_each_other(groups: Groups) -> None:
    join(groups, A, subscribed("ga"), stream=1)
    answer = groups.beat(beat(A, subscribed("gb")), stream=2, peer="h:1", now=START)
    assert (answer.status, answer.took_over) == (MembershipStatus.OK, ())
    assert groups.beat(beat(A, subscribed("ga")), stream=1, peer="h:1", now=START) is HELD
    assert groups.names() == ["ga", "gb"]
    assert groups.client_count == 1
    groups.pin("gb", [A], until=START + 60.0, now=START)
    assert (groups.membership("ga").pinned_client_ids, groups.membership("gb").pinned_client_ids) == ((), (A,))
    # Each stream is judged by its own silence and end.
    groups.end_stream(A, stream=1, by_us=False, now=START)
    assert groups.advance(now=START + 2.0).removals == (Removal(A, Cause.STREAM_ENDED, ("ga",)),)
    groups.beat(beat(A, subscribed("gc")), stream=3, peer="h:1", now=START + 100.0)
    assert groups.advance(now=START + 130.0).removals == (Removal(A, Cause.SILENCE, ("gb",)),)
    assert groups.names() == ["gc"]


def test_a_client_of_two_streams_leaves_one_group_or_all(groups: Groups) -> None:
    join(groups, A, subscribed("ga"), stream=1)
    join(groups, A, subscribed("gb"), subscribed("gc"), stream=2)
    assert groups.leave(A, ["ga", "gc"], now=START).removals == (Removal(A, Cause.LEFT, ("ga", "gc")),)
    assert groups.names() == ["gb"]
    join(groups, A, subscribed("ga"), stream=1)
    assert groups.leave(A, now=START).groups == {"ga", "gb"}
    assert groups.client_count == 0


def test_the_later_stream_takes_over_only_the_groups_that_it_names(groups: Groups) -> None:
    join(groups, A, subscribed("ga"), subscribed("gb"), stream=1)
    answer = groups.beat(beat(A, subscribed("gb"), subscribed("gc")), stream=2, peer="h:2", now=START)
    assert [(each.stream, each.answer) for each in answer.took_over] == [(1, HELD)]
    lost = groups.beat(beat(A, subscribed("ga"), subscribed("gb")), stream=1, peer="h:1", now=START + 1.0)
    assert (lost.status, lost.taken_over, lost.changes) == (MembershipStatus.OK, ("gb",), NOTHING)
    peers = {name: groups.members(name)[0].peer for name in groups.names()}
    assert peers == {"ga": "h:1", "gb": "h:2", "gc": "h:2"}
    assert (groups.holders(A), groups.holders(A, ["gb"])) == ({"h:1", "h:2"}, {"h:2"})
    # The earlier stream has it again once the later one has left it.
    groups.leave(A, ["gb"], now=START + 2.0)
    assert (
        groups.beat(beat(A, subscribed("ga"), subscribed("gb")), stream=1, peer="h:1", now=START + 3.0).taken_over == ()
    )
    assert groups.members("gb")[0].peer == "h:1"


def test_a_stream_that_names_only_groups_of_a_later_one_leaves_its_other_groups(groups: Groups) -> None:
    join(groups, A, subscribed("ga"), stream=1)
    join(groups, A, subscribed("gb"), stream=2)
    answer = groups.beat(beat(A, subscribed("gb")), stream=1, peer="h:1", now=START)
    assert (answer.status, sorted(answer.changes.groups)) == (MembershipStatus.TAKEN_OVER, ["ga"])
    assert groups.names() == ["gb"]


def test_a_member_taken_over_by_another_stream_keeps_its_place(groups: Groups) -> None:
    join(groups, A, stream=1)
    join(groups, B, subscribed("g", "refunds"), stream=2)
    answer = groups.beat(beat(A), stream=3, peer="h:2", now=START + 5.0)
    assert answer.changes is NOTHING
    assert [(each.joined_at, each.is_conflicting) for each in groups.members("g")] == [(START, False), (START, True)]


def test_a_stream_after_an_ended_one_takes_over_no_groups(groups: Groups) -> None:
    join(groups, A, stream=1)
    groups.end_stream(A, stream=1, by_us=False, now=START)
    answer = groups.beat(beat(A), stream=2, peer="h:2", now=START + 1.9)
    assert (answer.took_over, answer.changes) == ((), NOTHING)
    groups.advance(now=START + 60.0)
    assert groups.client_count == 1


def test_the_end_of_the_current_stream_removes_members_after_the_grace_unless_the_agent_ended_it(
    groups: Groups,
) -> None:
    join(groups, A)
    join(groups, B, stream=2)
    groups.end_stream(A, stream=1, by_us=False, now=START)
    groups.end_stream(B, stream=2, by_us=True, now=START)
    assert groups.next_due() == START + 2.0
    assert groups.advance(now=START + 1.9).removals == ()
    assert groups.advance(now=START + 2.0).removals == (Removal(A, Cause.STREAM_ENDED, ("g",)),)
    assert (groups.holders(A), groups.holders(B)) == (set(), set())
    assert groups.client_count == 1


def test_without_a_grace_the_end_of_a_stream_removes_the_member_immediately() -> None:
    groups = Groups(GroupRules(warm_up=0.0, stream_grace=0.0), boot=1, now=START)
    join(groups, A)
    assert groups.end_stream(A, stream=1, by_us=False, now=START).groups == {"g"}


def test_after_a_pause_of_the_agent_streams_have_a_warm_up_to_return() -> None:
    groups = Groups(GroupRules(warm_up=30.0), boot=1, now=START)
    join(groups, A)
    join(groups, B, stream=2)
    groups.end_stream(A, stream=1, by_us=False, now=START)
    groups.credit_pause(300.0, now=START + 300.0)
    groups.end_stream(B, stream=2, by_us=False, now=START + 300.0)
    assert groups.advance(now=START + 329.9).removals == ()
    # A's grace was 2 s longer than the pause; both ended while the agent could not be reached.
    assert {each.client_id for each in groups.advance(now=START + 330.0).removals} == {A, B}


def test_a_pause_is_credited_at_most_up_to_the_silence(groups: Groups) -> None:
    join(groups, A, now=START + 290.0)
    groups.credit_pause(300.0, now=START + 300.0)
    assert groups.members("g")[0].last_beat_at == START + 300.0


def test_a_client_belongs_to_the_identity_of_its_streams_until_the_last_ends(groups: Groups) -> None:
    assert groups.owner_of("c1") == ""
    groups.beat(beat("c1", subscribed()), stream=1, peer="p", now=START, identity="alice")
    groups.beat(beat("c1", subscribed("h")), stream=2, peer="p", now=START, identity="alice")
    groups.end_stream("c1", stream=1, by_us=False, now=START)
    groups.advance(now=START + 60.0)
    assert groups.owner_of("c1") == "alice"
    groups.end_stream("c1", stream=2, by_us=False, now=START + 60.0)
    groups.advance(now=START + 61.0)
    assert groups.owner_of("c1") == "alice"
    groups.advance(now=START + 120.0)
    assert groups.owner_of("c1") == ""


def test_a_leave_of_some_groups_keeps_the_others(groups: Groups) -> None:
    join(groups, A, subscribed("g"), subscribed("h"))
    assert groups.leave(A, ["h", "unknown"], now=START) == Changes(frozenset({"h"}), (Removal(A, Cause.LEFT, ("h",)),))
    assert groups.leave(A, ["unknown"], now=START) is NOTHING
    assert groups.names() == ["g"]
    assert groups.leave(A, now=START).groups == {"g"}
    assert groups.leave(A, now=START) is NOTHING


def test_a_beat_without_groups_keeps_the_client_and_no_group(groups: Groups) -> None:
    join(groups, A)
    groups.beat(MembershipBeat(A, ()), stream=1, peer="h:1", now=START)
    assert (groups.client_count, groups.names()) == (1, [])


def test_a_hold_down_shows_changes_together_and_with_a_bounded_delay(groups: Groups) -> None:
    slow = subscribed("slow")
    assert join(groups, A, slow).groups == {"slow"}
    assert join(groups, B, slow, stream=2, now=START + 1.0) is NOTHING
    assert join(groups, C, slow, stream=3, now=START + 9.0) is NOTHING
    assert groups.membership("slow").client_ids == (A,)
    assert [each.client_id for each in groups.members("slow")] == [A, B, C]
    assert groups.advance(now=START + 10.9).groups == set()
    assert groups.next_due() == START + 11.0
    assert groups.advance(now=START + 11.0).groups == {"slow"}
    assert groups.membership("slow").client_ids == (A, B, C)
    assert groups.held_count == 0


def test_a_member_that_leaves_and_returns_within_a_hold_down_causes_no_change(groups: Groups) -> None:
    slow = subscribed("slow")
    join(groups, A, slow)
    join(groups, B, slow, stream=2)
    groups.advance(now=START + 10.0)
    counter = groups.revision("slow")
    groups.leave(B, now=START + 20.0)
    join(groups, B, slow, stream=3, now=START + 29.0)
    assert groups.held_count == 0
    # The next change gets the full hold-down again.
    groups.leave(A, now=START + 29.5)
    assert groups.advance(now=START + 39.4).groups == set()
    assert groups.revision("slow") == counter
    assert groups.advance(now=START + 39.5).groups == {"slow"}


def test_a_group_that_all_members_left_is_shown_unchanged_until_the_hold_down_ends(groups: Groups) -> None:
    join(groups, A, subscribed("slow"))
    groups.leave(A, now=START + 1.0)
    held = groups.membership("slow")
    assert (held.client_ids, held.message_model) == ((A,), MessageModel.CLUSTERING)
    assert groups.names() == []
    groups.advance(now=START + 11.0)
    held = groups.membership("slow")
    assert (held.client_ids, held.message_model) == ((), None)


def test_members_that_expire_in_one_scan_leave_a_held_group_as_it_was_shown(groups: Groups) -> None:
    join(groups, A, subscribed("slow"))
    join(groups, B, subscribed("slow", model=MessageModel.BROADCASTING), stream=2)
    groups.advance(now=START + 10.0)
    before = groups.membership("slow")
    changes = groups.advance(now=START + 130.0)
    assert changes == Changes(removals=tuple(Removal(each, Cause.SILENCE, ("slow",)) for each in (A, B)))
    assert groups.membership("slow") == before
    # The hold-down begins with the scan, and shows both removals together.
    assert groups.advance(now=START + 139.9).groups == set()
    assert groups.advance(now=START + 140.0).groups == {"slow"}
    assert groups.membership("slow").message_model is None


def test_a_grace_and_a_silence_that_end_in_one_scan_change_a_group_once(groups: Groups) -> None:
    join(groups, A, subscribed("slow"))
    join(groups, B, subscribed("slow", model=MessageModel.BROADCASTING), stream=2)
    groups.advance(now=START + 10.0)
    before = groups.membership("slow")
    groups.end_stream(A, stream=1, by_us=False, now=START + 128.0)
    changes = groups.advance(now=START + 130.0)
    assert changes.groups == set()
    assert [(each.client_id, each.cause) for each in changes.removals] == [(A, Cause.STREAM_ENDED), (B, Cause.SILENCE)]
    assert groups.membership("slow") == before


def test_each_scan_moves_the_counter_of_a_group_by_one_however_many_it_removes(groups: Groups) -> None:
    for number, client_id in enumerate((A, B, C)):
        join(groups, client_id, stream=number)
    groups.pin("g", [A], until=START + 130.0, now=START)
    before = groups.revision("g")
    assert groups.advance(now=START + 130.0).groups == {"g"}
    assert groups.revision("g") == before + 1


def test_ready_shows_delayed_changes_and_applies_to_every_group() -> None:
    groups = Groups(GroupRules(notices=NoticeRules(hold_down=300.0)), boot=1, now=START)
    join(groups, A)
    join(groups, B, stream=2)
    before = groups.revision("unknown")
    assert groups.membership("g").client_ids == (A,)
    assert groups.advance(now=START + 29.9) == Changes()
    changes = groups.advance(now=START + 30.0)
    assert changes == Changes(frozenset({"g"}), is_state=True)
    assert groups.state is GroupState.READY
    assert groups.membership("g").client_ids == (A, B)
    assert groups.revision("unknown") > before
    groups.check_invariants()


def test_draining_gives_every_group_a_new_revision(groups: Groups) -> None:
    join(groups, A)
    before = groups.revision("g")
    assert groups.drain().is_state
    assert (groups.membership("g").state, groups.revision("g") > before) == (GroupState.DRAINING, True)
    groups.advance(now=START + 60.0)
    assert groups.state is GroupState.DRAINING


def test_the_first_member_defines_the_groups_subscription_until_it_leaves(groups: Groups) -> None:
    join(groups, B, subscribed("g", "orders"))
    answer = groups.beat(beat(A, subscribed("g", "refunds")), stream=2, peer="h:1", now=START)
    assert answer.conflicting == ("g",)
    assert [(each.client_id, each.is_conflicting) for each in groups.members("g")] == [(A, True), (B, False)]
    assert groups.summary("g").topics == ("orders", "refunds")
    # It keeps its place when it changes what it reads; the others differ from it then.
    join(groups, B, subscribed("g", "orders", "more"))
    assert [each.is_conflicting for each in groups.members("g")] == [True, False]
    groups.leave(B, now=START)
    assert [each.is_conflicting for each in groups.members("g")] == [False]
    assert not groups.summary("g").is_conflicting


def test_how_a_group_shares_follows_the_member_that_joined_first(groups: Groups) -> None:
    join(groups, A, subscribed(model=MessageModel.BROADCASTING))
    assert not groups.notices("g").notify
    assert join(groups, B, subscribed(), stream=2).groups == {"g"}
    assert groups.membership("g").message_model is MessageModel.BROADCASTING
    groups.leave(A, now=START)
    assert groups.membership("g").message_model is MessageModel.CLUSTERING
    assert groups.notices("g").notify


def test_a_pin_finds_clients_and_addresses_among_those_that_are_shown(groups: Groups) -> None:
    groups.pin("slow", [A, "10.0.0.2"], until=START + 60.0, now=START)
    assert groups.membership("slow").pinned_client_ids == ()
    join(groups, B, subscribed("slow"))
    join(groups, A, subscribed("slow"), stream=2)
    assert groups.membership("slow").pinned_client_ids == (B,)
    groups.advance(now=START + 10.0)
    assert groups.membership("slow").pinned_client_ids == (A, B)


def test_a_pin_expires_and_removes_an_empty_group(groups: Groups) -> None:
    groups.pin("g", [A], until=START + 60.0, now=START)
    assert groups.next_due() <= START + 60.0
    assert groups.advance(now=START + 59.9).groups == set()
    assert groups.membership("g").pinned_until == START + 60.0
    assert groups.advance(now=START + 60.0).groups == {"g"}
    assert groups.membership("g").pinned_until is None
    assert groups.unpin("g", now=START + 60.0) is NOTHING


def follows(
    client_id: str, *, model: MessageModel = MessageModel.CLUSTERING, strategy: str = "AVG"
) -> GroupSubscription:
    """The subscription of a client that follows pins of queues."""
    setting = AllocationSetting(strategy, "", strategy.encode(), 1, needs_zone=False)
    started_at = int(client_id[7]) if client_id[7:8].isdigit() else 1
    settings = MemberSettings(setting, False, 1, started_at, follows_queue_pins=True)
    return replace(subscribed(model=model), settings=settings)


Q0 = PinnedQueue("orders", "c1", "a", 0)


def pin_queue(groups: Groups, to: str, *, group: str = "g", queue: PinnedQueue = Q0, now: float = START) -> Changes:
    pins = groups.check_queue_pin(group, QueuePin(queue, to, now + 60.0))
    return groups.put_queue_pins(pins, now=now)


def owners(groups: Groups, group: str = "g") -> list[str]:
    held = groups.membership(group)
    return [held.owner_of(each) for each in held.queue_pins]


def test_a_pin_of_a_queue_has_a_revision_and_ends_by_itself(groups: Groups) -> None:
    join(groups, A, follows(A))
    before = groups.revision("g")
    assert pin_queue(groups, A).groups == {"g"}
    pinned = groups.revision("g")
    assert pinned > before
    assert groups.advance(now=START + 59.9).groups == set()
    assert owners(groups) == [A]
    assert groups.advance(now=START + 60.0).groups == {"g"}
    assert (owners(groups), groups.pinned_count) == ([], 0)
    assert groups.revision("g") > pinned


def test_the_pin_of_a_queue_waits_for_a_member_that_left_and_for_a_group_without_members(groups: Groups) -> None:
    before = groups.revision("g")
    assert pin_queue(groups, A).groups == {"g"}
    assert groups.revision("g") > before
    assert owners(groups) == [""]
    for _ in range(2):
        join(groups, A, follows(A))
        assert owners(groups) == [A]
        assert groups.leave(A, now=START).groups == {"g"}
        assert owners(groups) == [""]


def test_a_member_that_does_not_follow_pins_of_queues_suspends_them_while_it_is_shown(groups: Groups) -> None:
    join(groups, A, follows(A))
    pin_queue(groups, A)
    join(groups, B, stream=2)
    held = groups.membership("g")
    assert (owners(groups), held.agreement.not_following_queue_pins) == ([""], (B,))
    with pytest.raises(QueuePinRefused, match=B):
        pin_queue(groups, A)
    # The same client id, upgraded: nothing else of the list changes.
    assert join(groups, B, follows(B), stream=3).groups == {"g"}
    assert owners(groups) == [A]


def test_a_member_that_stands_aside_does_not_suspend_pins_of_queues(groups: Groups) -> None:
    join(groups, A, follows(A))
    other = follows(B, strategy="MINE")
    assert other.settings is not None
    own = replace(other, settings=other.settings._replace(known_strategies=0, follows_queue_pins=False))
    join(groups, B, own, stream=2)
    pin_queue(groups, A)
    assert groups.membership("g").client_ids == (A,)
    assert owners(groups) == [A]


@pytest.mark.parametrize(
    ("member", "problem"),
    [
        pytest.param(follows(A, model=MessageModel.BROADCASTING), "broadcasts", id="broadcasting"),
        pytest.param(follows(A, strategy="CONFIG"), "configured queues", id="configured"),
    ],
)
def test_a_queue_of_a_group_that_divides_none_is_not_pinned(
    groups: Groups, member: GroupSubscription, problem: str
) -> None:
    join(groups, A, member)
    with pytest.raises(QueuePinRefused, match=problem):
        pin_queue(groups, A)
    assert groups.queue_pins == QueuePins()
    groups.put_queue_pins(QueuePins().with_pin("g", QueuePin(Q0, A, START + 60.0)), now=START)
    assert owners(groups) == [""]


def test_pins_of_queues_are_of_one_group_beside_a_pin_of_it(groups: Groups) -> None:
    for client_id, stream in ((A, 1), (B, 2)):
        join(groups, client_id, follows(client_id), replace(follows(client_id), group="h"), stream=stream)
    other = groups.revision("h")
    pin_queue(groups, A)
    groups.pin("g", [B], until=START + 30.0, now=START)
    held = groups.membership("g")
    assert (held.pinned_client_ids, owners(groups)) == ((B,), [A])
    assert (groups.revision("h"), owners(groups, "h")) == (other, [])
    assert [groups.summary(name).is_pinned for name in ("g", "h")] == [True, False]
    groups.unpin("g", now=START)
    assert groups.summary("g").is_pinned
    assert groups.pinned_count == 1


def test_a_bound_refuses_the_newcomer_and_changes_nothing(groups: Groups) -> None:
    for number, client_id in enumerate((A, B, C)):
        join(groups, client_id, stream=number)
    with pytest.raises(GroupLimitReached, match="3 clients"):
        join(groups, "10.0.0.4@d", stream=9)
    with pytest.raises(GroupLimitReached, match="3 groups"):
        join(groups, A, *(subscribed(f"g{i}") for i in range(4)), stream=9)
    assert groups.holders(A) == {"h:1"}
    assert groups.names() == ["g"]
    for i in range(2):
        groups.pin(f"p{i}", [A], until=START + 1.0, now=START)
    with pytest.raises(GroupLimitReached, match="3 groups"):
        groups.pin("p2", [A], until=START + 1.0, now=START)


def warming(lists: dict[str, list[str]] | None, *, with_offsets: tuple[str, ...] = ()) -> Groups:
    groups = Groups(GroupRules(notices_of={"slow": NoticeRules(hold_down=300.0)}), boot=1, now=START)
    assert groups.recall(lists, with_offsets=with_offsets, now=START + 2.0).is_state
    return groups


def test_a_group_is_recovered_once_every_member_from_before_the_start_is_back() -> None:
    groups = warming({"g": [A, B]}, with_offsets=("g",))
    before = groups.revision("g")
    join(groups, A)
    join(groups, C, stream=2)
    assert groups.membership("g").state is GroupState.WARMING
    assert join(groups, B, stream=3).groups == {"g"}
    held = groups.membership("g")
    assert (held.state, held.client_ids, held.counter > before) == (GroupState.RECOVERED, (A, B, C), True)
    assert groups.state is GroupState.WARMING
    # A member that joined and left is removed; the warm-up ends as usual.
    groups.leave(A, now=START + 3.0)
    assert groups.membership("g").state is GroupState.RECOVERED
    groups.advance(now=START + 30.0)
    assert groups.membership("g").state is GroupState.READY
    groups.check_invariants()


def test_no_group_waits_for_a_member_that_left_before_returning() -> None:
    groups = warming({"g": [A, B], "h": [B]})
    join(groups, A)
    assert groups.leave(B, ["g"], now=START).groups == {"g"}
    assert groups.state_of("g") is GroupState.RECOVERED
    assert groups.state_of("h") is GroupState.WARMING
    assert groups.leave(B, now=START).groups == {"h"}
    assert groups.state_of("h") is GroupState.RECOVERED


@pytest.mark.parametrize(
    ("lists", "with_offsets", "state"),
    [
        pytest.param(None, (), GroupState.RECOVERED, id="nothing-from-before"),
        pytest.param(None, ("other",), GroupState.RECOVERED, id="offsets-of-another-group"),
        pytest.param(None, ("g",), GroupState.WARMING, id="offsets-and-no-list"),
        pytest.param({}, ("g",), GroupState.RECOVERED, id="offsets-and-a-list-without-members"),
        pytest.param({"g": [B]}, (), GroupState.WARMING, id="members-without-offsets"),
    ],
)
def test_the_stored_member_lists_decide_whether_a_group_waits(
    lists: dict[str, list[str]] | None, with_offsets: tuple[str, ...], state: GroupState
) -> None:
    groups = warming(lists, with_offsets=with_offsets)
    assert groups.membership("g").state is state
    join(groups, A)
    assert groups.membership("g").state is state
    groups.advance(now=START + 30.0)
    assert groups.membership("g").state is GroupState.READY


def test_members_that_come_or_go_before_the_lists_are_known_count() -> None:
    groups = Groups(GroupRules(), boot=1, now=START)
    join(groups, A)
    groups.leave(B, ["g"], now=START + 1.0)
    assert groups.state_of("g") is GroupState.WARMING
    groups.recall({"g": [A, B]}, with_offsets=(), now=START + 2.0)
    assert groups.state_of("g") is GroupState.RECOVERED


def test_a_recovered_group_shows_changes_delayed_by_a_hold_down() -> None:
    groups = warming({"slow": [A, B]})
    join(groups, A, subscribed("slow"))
    join(groups, B, subscribed("slow"), stream=2)
    assert groups.membership("slow").client_ids == (A, B)


def test_lists_that_arrive_after_the_warm_up_and_after_a_drain_change_nothing() -> None:
    groups = Groups(GroupRules(warm_up=0.0), boot=1, now=START)
    groups.advance(now=START)
    assert groups.recall({"g": [A]}, with_offsets=(), now=START) is NOTHING
    groups = warming({})
    groups.drain()
    assert groups.state_of("g") is GroupState.DRAINING
    groups.resume(now=START + 5.0)
    assert groups.state_of("g") is GroupState.WARMING


def test_the_lists_to_be_kept_hold_members_that_are_missing_until_the_warm_up_is_over() -> None:
    groups = warming({"g": [A, B]})
    version = groups.member_version
    join(groups, A)
    join(groups, C, subscribed("all", model=MessageModel.BROADCASTING), stream=2)
    assert groups.member_lists() == {"g": [A, B]}
    assert groups.member_version > version
    version = groups.member_version
    groups.advance(now=START + 30.0)
    assert (groups.member_lists(), groups.member_version > version) == ({"g": [A]}, True)


TOPICS = ("t1", "t2", "t3", "t4", "t5", "t6")


def bounded(*, clients: int = 10, subscriptions: int = 6) -> Groups:
    rules = GroupRules(
        warm_up=0.0, max_clients=clients, max_subscriptions=subscriptions, max_subscriptions_per_client=5
    )
    return Groups(rules, boot=1, now=START)


def test_a_client_may_have_as_many_subscriptions_as_its_bound_and_not_one_more() -> None:
    groups = bounded(subscriptions=100)
    join(groups, A, subscribed("g", *TOPICS[:3]), subscribed("h", *TOPICS[:2]))
    assert groups.subscription_count == 5
    with pytest.raises(GroupLimitReached) as refused:
        join(groups, A, subscribed("g", *TOPICS[:3]), subscribed("h", *TOPICS[:3]))
    error = refused.value
    assert (error.limit, error.bound, error.field, error.value) == ("subscriptions of one client", 5, "groups", 6)
    assert groups.subscription_count == 5
    groups.check_invariants()


def test_the_agent_accepts_subscriptions_up_to_its_bound_and_not_one_more() -> None:
    groups = bounded()
    join(groups, A, subscribed("g", *TOPICS[:3]), stream=1)
    join(groups, B, subscribed("h", *TOPICS[:3]), stream=2)
    with pytest.raises(GroupLimitReached) as refused:
        join(groups, A, subscribed("g", *TOPICS[:4]), stream=1)
    error = refused.value
    assert (error.limit, error.bound, error.field, error.value) == ("subscriptions", 6, "groups", 7)
    # Released subscriptions free their share, and so do those taken over by another stream of the client.
    join(groups, A, subscribed("g", *TOPICS[:2]), stream=1)
    join(groups, B, subscribed("h", *TOPICS[:4]), stream=3)
    assert groups.subscription_count == 6
    groups.check_invariants()


def test_a_member_without_subscriptions_counts_as_one() -> None:
    groups = bounded(subscriptions=2)
    none = [GroupSubscription(name, ConsumeType.PULL, MessageModel.CLUSTERING, ()) for name in ("g", "h", "i")]
    join(groups, A, *none[:2])
    with pytest.raises(GroupLimitReached):
        join(groups, A, *none)


def test_at_a_bound_the_latest_streams_of_the_largest_peer_are_ended_for_others() -> None:
    groups = bounded()
    for stream, client_id in enumerate((A, B, C), 1):
        join(groups, client_id, subscribed("g", *TOPICS[:2]), stream=stream)
    answer = groups.beat(beat("10.0.0.9@x", subscribed("h", *TOPICS[:3])), stream=9, peer="h:2", now=START)
    assert [(number, reached.limit) for number, reached in answer.refused] == [
        (3, "subscriptions"),
        (2, "subscriptions"),
    ]
    assert [(each.client_id, each.cause) for each in answer.changes.removals] == [(C, Cause.LIMIT), (B, Cause.LIMIT)]
    assert {name: len(groups.members(name)) for name in groups.names()} == {"g": 1, "h": 1}
    # Now the other one holds most, and is refused more.
    with pytest.raises(GroupLimitReached):
        groups.beat(beat("10.0.0.9@x", subscribed("h", *TOPICS[:5])), stream=9, peer="h:2", now=START)
    groups.check_invariants()


def test_a_peer_that_would_hold_as_much_as_the_others_is_refused_and_no_stream_is_ended() -> None:
    groups = bounded()
    join(groups, A, subscribed("g", *TOPICS[:3]), stream=1)
    join(groups, B, subscribed("g", *TOPICS[:3]), stream=2)
    with pytest.raises(GroupLimitReached):
        join(groups, C, subscribed("h", *TOPICS[:3]), stream=3)
    assert groups.client_count == 2
    # Subscriptions taken over by a heartbeat count for its peer: 4 stay with the other one.
    join(groups, A, subscribed("g", *TOPICS[:1]), subscribed("h", *TOPICS[:2]), stream=1)
    with pytest.raises(GroupLimitReached):
        groups.beat(beat(A, subscribed("h", *TOPICS[:4])), stream=4, peer="h:2", now=START)
    answer = groups.beat(beat(A, subscribed("h", *TOPICS[:3])), stream=4, peer="h:2", now=START)
    assert [number for number, _ in answer.refused] == [2]
    assert groups.subscription_count == 4
    groups.check_invariants()


def test_at_the_bound_of_clients_streams_of_the_largest_peer_are_ended() -> None:
    groups = bounded(clients=2, subscriptions=100)
    join(groups, A, stream=1)
    join(groups, B, stream=2)
    # A stream that takes over another one needs no additional share.
    assert groups.beat(beat(A), stream=3, peer="h:1", now=START).status is MembershipStatus.OK
    with pytest.raises(GroupLimitReached, match="2 clients"):
        join(groups, C, stream=4)
    answer = groups.beat(beat(C), stream=5, peer="h:2", now=START)
    assert [(number, reached.limit) for number, reached in answer.refused] == [(3, "clients")]
    groups.check_invariants()


def test_a_group_of_ten_thousand_is_joined_and_left_in_a_moment() -> None:
    """Each change costs the same: with a sort or a walk per change this would last minutes."""
    groups = Groups(GroupRules(warm_up=0.0), boot=1, now=START)
    for i in range(10_000):
        join(groups, f"10.0.0.1@{i}", stream=i)
    assert len(groups.membership("g").client_ids) == 10_000
    for i in range(10_000):
        groups.end_stream(f"10.0.0.1@{i}", stream=i, by_us=False, now=START)
    assert len(groups.advance(now=START + 2.0).removals) == 10_000
    groups.check_invariants()
