"""Members with any settings: by one list of an agent, over the wire, each queue is read by exactly one of them."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from hypothesis import given
from hypothesis import strategies as st

from pointsman.manual_clock import ManualClock
from pointsman.v1 import consumer_group_service_pb2 as wire
from pointsman_agent.core.group_agreement import agree
from pointsman_agent.core.group_membership import MembershipBeat
from pointsman_agent.core.group_rules import GroupRules, NoticeRules
from pointsman_agent.core.groups import Groups
from pointsman_agent.core.queue_pins import PinnedQueue, QueuePin, QueuePins
from pointsman_agent.groups import group_codec
from pointsman_client.core.allocation import (
    AllocationRequest,
    AllocationStrategy,
    Averagely,
    AveragelyByCircle,
    ByConfig,
    ConsistentHash,
    MachineRoom,
    MachineRoomNearby,
)
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.rebalance import Members, MessageModel, StrategyInForce, share_of_topic
from pointsman_client.pointsman_grpc.agents.group_settings import own_settings, to_members

QUEUES = tuple(MessageQueue("orders", "c1", broker, queue) for broker in ("a", "b") for queue in range(5))
ZONES = {("c1", "a"): "z1", ("c1", "b"): "z2"}


class Mine:
    """An application's own class."""

    name = "MINE"

    def allocate(self, request: AllocationRequest) -> tuple[MessageQueue, ...]:
        return AveragelyByCircle().allocate(request)


DIVIDING: tuple[AllocationStrategy, ...] = (
    Averagely(),
    AveragelyByCircle(),
    ConsistentHash(),
    ConsistentHash(40),
    MachineRoomNearby(),
    MachineRoomNearby(ConsistentHash(3)),
    Mine(),
)
STRATEGIES: tuple[AllocationStrategy, ...] = (*DIVIDING, MachineRoom({"z1"}), ByConfig(QUEUES[:3]))


@dataclass(frozen=True)
class Joiner:
    client_id: str
    strategy: AllocationStrategy
    is_ordered: bool
    topics: tuple[str, ...]
    is_pull: bool
    is_broadcasting: bool
    started_at: int
    follows_queue_pins: bool = True

    def heartbeat(self, clock: ManualClock) -> wire.KeepMembershipRequest:
        settings = own_settings(self.strategy, is_ordered=self.is_ordered, started_at=clock.utc_now())
        settings.started_at.FromSeconds(self.started_at)
        settings.follows_queue_pins = self.follows_queue_pins
        group = wire.GroupSubscription(
            group="g",
            consume_type=wire.CONSUME_TYPE_PULL if self.is_pull else wire.CONSUME_TYPE_PUSH,
            message_model=wire.MESSAGE_MODEL_BROADCASTING if self.is_broadcasting else wire.MESSAGE_MODEL_CLUSTERING,
            subscriptions=[wire.Subscription(topic=topic, expression="*") for topic in self.topics],
            settings=settings,
        )
        return wire.KeepMembershipRequest(client_id=self.client_id, groups=[group])

    def share(self, members: Members) -> frozenset[MessageQueue]:
        share = share_of_topic(
            "orders",
            model=MessageModel.BROADCASTING if self.is_broadcasting else MessageModel.CLUSTERING,
            group="g",
            client_id=self.client_id,
            queues=QUEUES,
            members=members,
            strategy=StrategyInForce(self.strategy).given(members),
            zones=ZONES,
        )
        assert share is not None
        return share.queues


def rarely(value: bool) -> st.SearchStrategy[bool]:
    return st.sampled_from([not value] * 5 + [value])


@st.composite
def joiners(draw: st.DrawFn) -> list[Joiner]:
    return [
        Joiner(
            f"10.0.0.{number}@1{draw(st.sampled_from(['', '@z1', '@z2', '@z2']))}",
            draw(st.sampled_from(STRATEGIES)),
            draw(rarely(value=True)),
            ("orders", "refunds") if draw(rarely(value=True)) else ("orders",),
            draw(rarely(value=True)),
            draw(rarely(value=True)),
            draw(st.integers(1, 4)),
        )
        for number in range(draw(st.integers(1, 6)))
    ]


def joined(members: list[Joiner], *, clock: ManualClock, hold_down: float = 0.0) -> Groups:
    rules = GroupRules(warm_up=0.0, notices=NoticeRules(hold_down=hold_down))
    groups = Groups(rules, boot=1, now=clock.monotonic())
    groups.advance(now=clock.monotonic())
    for number, each in enumerate(members, 1):
        groups.beat(group_codec.beat(each.heartbeat(clock)), stream=number, peer="h:1", now=clock.monotonic())
    groups.check_invariants()
    return groups


def sent_list(groups: Groups, *, clock: ManualClock) -> Members:
    message = group_codec.membership(groups.membership("g"), boot=1, wall=group_codec.WallTime(clock))
    return to_members(wire.GroupMembership.FromString(message.SerializeToString()))


@given(members=joiners(), pin=st.integers(0, 8))
def test_by_one_list_no_queue_is_unread_or_read_twice(members: list[Joiner], pin: int) -> None:
    clock = ManualClock()
    groups = joined(members, clock=clock)
    if pin < len(members):
        groups.pin("g", [members[pin].client_id], until=clock.monotonic() + 60.0, now=clock.monotonic())
    listed = sent_list(groups, clock=clock)
    by_id = {each.client_id: each for each in members}
    holder = by_id[listed.holder] if listed.holder else members[0]
    if holder.is_broadcasting:
        assert all(not each.share(listed) for each in members if not each.is_broadcasting)
        return
    assert holder.client_id in listed.client_ids
    has_zones = all(client_id.count("@") == 2 for client_id in listed.client_ids)
    if isinstance(holder.strategy, MachineRoomNearby) and not has_zones:
        return  # No member has the zone that its own strategy needs: all fail, and say so.
    shares = {client_id: each.share(listed) for client_id, each in by_id.items()}
    assert not any(shares[client_id] for client_id in by_id if client_id not in listed.client_ids)
    # Only members that would divide the queues exactly as the holder do so.
    assert {by_id[each].topics for each in listed.client_ids} == {holder.topics}
    assert {by_id[each].is_ordered for each in listed.client_ids} == {holder.is_ordered}
    assert {by_id[each].is_pull for each in listed.client_ids} == {holder.is_pull}
    if holder.strategy in DIVIDING:
        assert sorted(queue for share in shares.values() for queue in share) == sorted(QUEUES)
    for client_id in listed.client_ids if not listed.pinned else ():
        request = AllocationRequest("g", client_id, QUEUES, listed.client_ids, ZONES)
        assert shares[client_id] == frozenset(holder.strategy.allocate(request))


PINS = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 5)), max_size=6)


@given(
    strategy=st.sampled_from(STRATEGIES),
    zones=st.lists(st.sampled_from(["z1", "z2"]), min_size=2, max_size=5),
    pins=PINS,
    group_pin=st.integers(0, 15),
    old=st.integers(0, 30),
)
def test_with_pins_of_queues_each_queue_has_the_pinned_member_or_else_its_usual_one(
    strategy: AllocationStrategy, zones: list[str], pins: list[tuple[int, int]], group_pin: int, old: int
) -> None:
    """The model goes by queues, the client by members. Members beyond the list, and queues, do not exist."""
    clock = ManualClock()
    first = Joiner(
        "", strategy, is_ordered=False, topics=("orders",), is_pull=False, is_broadcasting=False, started_at=1
    )
    members = [
        replace(first, client_id=f"10.0.0.{number}@1@{zone}", follows_queue_pins=number != old)
        for number, zone in enumerate(zones)
    ]
    groups = joined(members, clock=clock)
    until = clock.monotonic() + 60.0
    if group_pin < len(members):
        groups.pin("g", [members[group_pin].client_id], until=until, now=clock.monotonic())
    without = sent_list(groups, clock=clock)
    usual = {each.client_id: each.share(without) for each in members}
    held = QueuePins()
    pinned: dict[MessageQueue, str] = {}
    for number, who in pins:
        queue = QUEUES[number] if number < len(QUEUES) else MessageQueue("orders", "c1", "gone", number)
        pinned[queue] = members[who].client_id if who < len(members) else "10.9.9.9@1"
        place = PinnedQueue(queue.topic, queue.cluster, queue.broker_name, queue.queue_id)
        held = held.with_pin("g", QueuePin(place, pinned[queue], until))
    groups.put_queue_pins(held, now=clock.monotonic())
    listed = sent_list(groups, clock=clock)
    readers = {queue: {each.client_id for each in members if queue in each.share(listed)} for queue in QUEUES}
    takes_part = {*(without.pinned or without.client_ids)}
    has_effect = old >= len(members) and not isinstance(strategy, ByConfig)
    for queue in QUEUES:
        usual_readers = {client_id for client_id, share in usual.items() if queue in share}
        is_moved = has_effect and pinned.get(queue) in takes_part
        assert readers[queue] == ({pinned[queue]} if is_moved else usual_readers)
    assert {queue for each in members for queue in each.share(listed)} <= {*QUEUES}


@given(members=joiners(), seed=st.integers(0, 1_000))
def test_every_agent_states_the_same_whatever_the_order_of_joining(members: list[Joiner], seed: int) -> None:
    clock = ManualClock()
    again = list(members)
    random.Random(seed).shuffle(again)
    assert sent_list(joined(members, clock=clock), clock=clock) == sent_list(joined(again, clock=clock), clock=clock)


@given(members=joiners(), seed=st.integers(0, 1_000), hold_down=st.sampled_from([0.0, 5.0]))
def test_a_revision_has_one_content_and_no_difference_is_missed(
    members: list[Joiner], seed: int, hold_down: float
) -> None:
    """Members change what they state, leave and return, with and without a delay of changes."""
    clock, random_ = ManualClock(), random.Random(seed)
    groups = joined(members, clock=clock, hold_down=hold_down)
    contents: dict[int, Members] = {}
    for number in range(12):
        changed = random_.choice(members)
        if random_.random() < 0.3:
            groups.leave(changed.client_id, now=clock.monotonic())
        elif random_.random() < 0.2:
            groups.advance(now=clock.monotonic() + number)
        else:
            beat = group_codec.beat(random_.choice(members).heartbeat(clock))
            beat = MembershipBeat(changed.client_id, beat.groups)
            answer = groups.beat(beat, stream=100 + number, peer="h:1", now=clock.monotonic() + number)
            differs = changed.client_id in groups.agreement("g").differing
            assert differs == any(each.group == "g" for each in answer.own_differences)
        groups.check_invariants()
        current = {each.client_id: each.subscription for each in groups.members("g")}
        assert groups.agreement("g").differing == agree(current).differing
        listed = sent_list(groups, clock=clock)
        assert contents.setdefault(groups.revision("g"), listed) == listed
