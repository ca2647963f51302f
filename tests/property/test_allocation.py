"""Invariants of every strategy for any group and any topic, and naive versions of RocketMQ's rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from hypothesis import assume, given
from hypothesis import strategies as st

from pointsman_client.core.allocation import (
    AllocationStrategy,
    Averagely,
    AveragelyByCircle,
    ConsistentHash,
    MachineRoom,
    MachineRoomNearby,
    Pinned,
)
from pointsman_client.core.message_queue import MessageQueue
from tests.kit.client.queues import shares

ROOMS = ("r1", "r2", "r3")
QUEUES = st.frozensets(
    st.builds(
        MessageQueue,
        st.just("T"),
        st.sampled_from(("c1", "c2")),
        st.sampled_from(("a", "b", "c-1", "r1@d", "r2@e", "r3@f")),
        st.integers(0, 11),
    ),
    min_size=1,
    max_size=40,
).map(lambda found: tuple(sorted(found)))
MEMBERS = st.frozensets(
    st.builds("{}@{}@{}".format, st.integers(1, 9), st.integers(1, 3), st.sampled_from(ROOMS)), min_size=1, max_size=12
).map(lambda found: tuple(sorted(found)))
ZONES: Mapping[tuple[str, str], str] = {
    (cluster, name): room for cluster in ("c1", "c2") for name, room in zip(("a", "b", "c-1"), ROOMS, strict=True)
}
INNER = st.sampled_from((Averagely(), AveragelyByCircle(), ConsistentHash(), ConsistentHash(1)))
ANY = INNER | st.builds(MachineRoomNearby, INNER)


def room_of(queue: MessageQueue) -> str:
    return ZONES.get((queue.cluster, queue.broker_name)) or queue.broker_name.split("@")[0]


def given_times(given_out: Mapping[str, tuple[MessageQueue, ...]]) -> Counter[MessageQueue]:
    return Counter(queue for share in given_out.values() for queue in share)


def is_even(given_out: Mapping[str, Iterable[MessageQueue]]) -> bool:
    sizes = [len(tuple(share)) for share in given_out.values()]
    return max(sizes) - min(sizes) <= 1


@given(strategy=ANY, members=MEMBERS, queues=QUEUES)
def test_every_queue_goes_to_exactly_one_member(
    strategy: AllocationStrategy, members: tuple[str, ...], queues: tuple[MessageQueue, ...]
) -> None:
    assert given_times(shares(strategy, members, queues, zones=ZONES)) == Counter(queues)


@given(members=MEMBERS, queues=QUEUES)
def test_averagely_is_even_and_each_share_is_consecutive(
    members: tuple[str, ...], queues: tuple[MessageQueue, ...]
) -> None:
    given_out = shares(Averagely(), members, queues)
    assert is_even(given_out)
    assert tuple(queue for member in members for queue in given_out[member]) == queues

    for i, member in enumerate(members):
        mod = len(queues) % len(members)
        more = 1 if i < mod else 0
        size = 1 if len(queues) <= len(members) else len(queues) // len(members) + more
        start = i * size if mod > 0 and i < mod else i * size + mod
        assert given_out[member] == queues[start : start + max(0, min(size, len(queues) - start))]


@given(members=MEMBERS, queues=QUEUES)
def test_by_circle_is_even_and_gives_the_queues_in_turn(
    members: tuple[str, ...], queues: tuple[MessageQueue, ...]
) -> None:
    given_out = shares(AveragelyByCircle(), members, queues)
    assert is_even(given_out)
    for number, queue in enumerate(queues):
        assert queue in given_out[members[number % len(members)]]


@given(members=MEMBERS, queues=QUEUES, rooms=st.frozensets(st.sampled_from(ROOMS)))
def test_machine_room_allocates_only_queues_of_its_rooms_and_evenly(
    members: tuple[str, ...], queues: tuple[MessageQueue, ...], rooms: frozenset[str]
) -> None:
    given_out = shares(MachineRoom(rooms), members, queues, zones=ZONES)
    kept = [queue for queue in queues if room_of(queue) in rooms]
    assert given_times(given_out) == Counter(kept)
    assert is_even(given_out)

    q, m = divmod(len(kept), len(members))
    for i, member in enumerate(members):
        positions = [*range(i * q, i * q + q), *([len(members) * q + i] if i < m else [])]
        assert given_out[member] == tuple(kept[position] for position in positions)


@given(inner=INNER, members=MEMBERS, queues=QUEUES)
def test_nearby_gives_no_queue_to_another_room_while_its_room_has_a_member(
    inner: AllocationStrategy, members: tuple[str, ...], queues: tuple[MessageQueue, ...]
) -> None:
    inhabited = {member.split("@")[2] for member in members}
    for member, share in shares(MachineRoomNearby(inner), members, queues, zones=ZONES).items():
        rooms = [room_of(queue) for queue in share]
        own = member.split("@")[2]
        assert all(room == own or room not in inhabited for room in rooms)
        assert own not in rooms[rooms.count(own) :], "its own room's queues come first"
        foreign = rooms[rooms.count(own) :]
        assert foreign == sorted(foreign)


@given(members=MEMBERS, queues=QUEUES)
def test_nearby_is_even_within_each_room(members: tuple[str, ...], queues: tuple[MessageQueue, ...]) -> None:
    given_out = shares(MachineRoomNearby(Averagely()), members, queues, zones=ZONES)
    inhabited = {member.split("@")[2] for member in members}
    for room in {room_of(queue) for queue in queues}:
        entitled = [member for member in members if room not in inhabited or member.split("@")[2] == room]
        assert is_even({member: [q for q in given_out[member] if room_of(q) == room] for member in entitled})


@given(members=MEMBERS, newcomer=st.sampled_from(("5@5@r1", "10.0.0.1@7@r2", "zzz@1@r3")), queues=QUEUES)
def test_with_consistent_hash_only_queues_of_joining_or_leaving_members_move(
    members: tuple[str, ...], newcomer: str, queues: tuple[MessageQueue, ...]
) -> None:
    assume(newcomer not in members)
    without = shares(ConsistentHash(), members, queues)
    with_it = shares(ConsistentHash(), sorted((*members, newcomer)), queues)
    for member in members:
        assert set(with_it[member]) <= set(without[member])
        assert set(without[member]) - set(with_it[member]) <= set(with_it[newcomer])


@given(strategy=ANY, members=MEMBERS, queues=QUEUES, places=st.frozensets(st.integers(0, 14), max_size=4))
def test_pinned_members_get_every_queue_once_and_the_others_none(
    strategy: AllocationStrategy, members: tuple[str, ...], queues: tuple[MessageQueue, ...], places: frozenset[int]
) -> None:
    there = {members[place] for place in places if place < len(members)}
    given_out = shares(Pinned(strategy, {*there, "9.9.9.9@gone"}), members, queues, zones=ZONES)
    assert given_times(given_out) == Counter(queues)
    if there:
        assert not any(given_out[member] for member in members if member not in there)
    else:
        assert given_out == shares(strategy, members, queues, zones=ZONES)
