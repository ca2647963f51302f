"""Strategies that allocate queues to members, with RocketMQ's results where it has the strategy."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, cast

import pytest

from pointsman_client.core.allocation import (
    STRATEGIES,
    AllocationStrategy,
    Averagely,
    AveragelyByCircle,
    ByConfig,
    ConsistentHash,
    MachineRoom,
    MachineRoomNearby,
    Pinned,
    RoomByNameOrZone,
    Zones,
    room_in_name,
    to_strategy,
)
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.errors import AllocationError, InvalidOptionError
from tests.kit.client.queues import queues, request, shares, short


def texts(strategy: Averagely | AveragelyByCircle, members: list[str], **counts: int) -> list[str]:
    return [short(share) for share in shares(strategy, members, queues(**counts)).values()]


def test_w2_averagely_gives_consecutive_queues() -> None:
    assert texts(Averagely(), ["x", "y", "z"], q=8) == ["q:0 q:1 q:2", "q:3 q:4 q:5", "q:6 q:7"]


def test_w3_by_circle_gives_every_third_queue() -> None:
    assert texts(AveragelyByCircle(), ["x", "y", "z"], q=8) == ["q:0 q:3 q:6", "q:1 q:4 q:7", "q:2 q:5"]


def test_w4_averagely_over_three_brokers_and_four_consumers() -> None:
    members = ["192.168.0.6@15956", "192.168.0.7@15957", "192.168.0.8@15958", "192.168.0.9@15959"]
    assert texts(Averagely(), members, a=3, b=3, c=3) == ["a:0 a:1 a:2", "b:0 b:1", "b:2 c:0", "c:1 c:2"]


def test_a_client_id_listed_twice_gets_the_share_of_its_first_place_and_the_second_is_lost() -> None:
    members = ["a", "a", "b"]
    assert short(Averagely().allocate(request("a", members, queues(q=5)))) == "q:0 q:1"
    assert short(Averagely().allocate(request("b", members, queues(q=5)))) == "q:4"


@pytest.mark.parametrize(("strategy", "name"), [(Averagely(), "AVG"), (AveragelyByCircle(), "AVG_BY_CIRCLE")])
def test_the_names_are_rocketmqs(strategy: Averagely | AveragelyByCircle, name: str) -> None:
    assert strategy.name == name


def test_the_list_is_returned_for_any_request() -> None:
    listed = (*queues(b=1), *queues("payments", a=2))
    strategy = ByConfig(listed)
    assert strategy.allocate(request("", [], ())) == listed
    assert strategy.allocate(request("no-member", ["x"], queues(c=3))) == listed


def test_without_a_list_there_is_nothing() -> None:
    assert ByConfig().allocate(request("x", ["x"], queues(a=3))) == ()
    assert ByConfig().name == "CONFIG"


@pytest.mark.parametrize(
    ("name", "options", "made"),
    [
        ("averagely", {}, "AVG"),
        ("averagely_by_circle", {}, "AVG_BY_CIRCLE"),
        ("by_config", {"queues": ()}, "CONFIG"),
        ("machine_room", {"rooms": ["r1"]}, "MACHINE_ROOM"),
        ("machine_room_nearby", {"inner": "consistent_hash"}, "MACHINE_ROOM_NEARBY-CONSISTENT_HASH"),
        ("consistent_hash", {"virtual_nodes": 100}, "CONSISTENT_HASH"),
    ],
)
def test_the_librarys_name_and_rocketmqs_name_make_the_same_strategy(
    name: str, options: dict[str, object], made: str
) -> None:
    assert name in STRATEGIES
    assert to_strategy(name, **options).name == made
    assert to_strategy(made.partition("-")[0], **options).name == made


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidOptionError, match="'pinned' must be one of averagely, averagely_by_circle, by_config"):
        to_strategy("pinned")
    with pytest.raises(InvalidOptionError, match=r"has invalid arguments: .*rooms"):
        to_strategy("machine_room")
    with pytest.raises(AllocationError, match="illegal virtualNodeCnt :-2"):
        to_strategy("consistent_hash", virtual_nodes=-2)


def point(text: str) -> int:
    digest = hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()
    return int(digest[:8], 16)


def owner(queue: MessageQueue, members: list[str], virtual_nodes: int = 10) -> str:
    """By definition: the member of the first point at or after the queue's, wrapping."""
    ring = {point(f"{member}-{k}"): member for member in members for k in range(virtual_nodes)}
    key = point(f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]")
    return ring[min((p for p in ring if p >= key), default=min(ring))]


@pytest.mark.parametrize("virtual_nodes", [1, 10, 100])
def test_every_queue_goes_to_the_next_point_of_the_ring(virtual_nodes: int) -> None:
    members = [f"192.168.0.{i}@1595{i}" for i in range(6, 10)]
    of = queues("TopicTest", **{"broker-a": 16, "broker-b": 16})
    given = shares(ConsistentHash(virtual_nodes), members, of)
    assert {q: m for m, share in given.items() for q in share} == {q: owner(q, members, virtual_nodes) for q in of}
    assert all(share == tuple(sorted(share)) for share in given.values())


def test_the_cluster_is_not_hashed() -> None:
    members = ["a@1", "b@1", "c@1"]
    one, two = (shares(ConsistentHash(), members, queues("orders", name, q=16)) for name in ("c1", "c2"))
    assert {m: short(share) for m, share in one.items()} == {m: short(share) for m, share in two.items()}


def test_without_virtual_nodes_no_member_gets_a_queue() -> None:
    assert shares(ConsistentHash(0), ["a", "b"], queues(q=8)) == {"a": (), "b": ()}


def test_a_negative_number_of_virtual_nodes_is_refused() -> None:
    with pytest.raises(AllocationError) as caught:
        ConsistentHash(-1)
    assert str(caught.value) == "illegal virtualNodeCnt :-1"
    assert ConsistentHash().name == "CONSISTENT_HASH"


def test_a_client_id_listed_twice_is_one_member() -> None:
    of = queues(q=16)
    twice = ConsistentHash().allocate(request("a", ["a", "a", "b"], of))
    assert twice == ConsistentHash().allocate(request("a", ["a", "b"], of))


@pytest.mark.parametrize(("members", "bound"), [(4, 1.6), (16, 2.1), (100, 2.8)])
def test_shares_of_many_queues_are_uneven_within_bounds(members: int, bound: float) -> None:
    of = queues(a=512, b=512)
    given = shares(ConsistentHash(), sorted(f"10.0.0.{i}@1" for i in range(members)), of)
    assert max(map(len, given.values())) / (1024 / members) < bound


def by_member(given: Mapping[str, tuple[MessageQueue, ...]]) -> dict[str, str]:
    return {member: short(share) for member, share in given.items()}


@pytest.mark.parametrize(
    ("broker_name", "room"),
    [
        ("r1@a", "r1"),
        ("r1@a@", "r1"),
        ("r1@a@b", ""),
        ("a", ""),
        ("r1@", ""),
        ("@a", ""),
        ("@r1@a", ""),
        ("r1@@a", ""),
        ("@", ""),
    ],
)
def test_a_name_has_a_room_if_it_has_exactly_two_parts_as_java_splits_it(broker_name: str, room: str) -> None:
    assert room_in_name(broker_name) == room


def test_only_queues_of_the_rooms_are_shared_out_and_the_surplus_comes_from_the_end() -> None:
    of = queues(**{"r1@a": 5, "r2@b": 3, "c": 2, "r3@d": 4, "r1@x@y": 1})
    assert by_member(shares(MachineRoom({"r1", "r2"}), ["x", "y", "z"], of)) == {
        "x": "r1@a:0 r1@a:1 r2@b:1",
        "y": "r1@a:2 r1@a:3 r2@b:2",
        "z": "r1@a:4 r2@b:0",
    }


def test_a_brokers_zone_is_its_room_where_its_name_has_none() -> None:
    zones = {("c1", "a"): "r1", ("c1", "b"): "r2", ("c1", "r2@c"): "r1", ("c2", "d"): "r1"}
    of = queues(**{"a": 2, "b": 2, "r2@c": 1, "d": 1})
    assert by_member(shares(MachineRoom({"r1"}), ["x", "y"], of, zones=zones)) == {"x": "a:0", "y": "a:1"}


@pytest.mark.parametrize("rooms", [None, "r1"])
def test_rooms_that_are_no_set_are_refused(rooms: object) -> None:
    with pytest.raises(InvalidOptionError, match=r"rooms = .* must be a set of rooms"):
        MachineRoom(cast("Any", rooms))


def test_nearby_queues_stay_in_their_room_and_those_of_a_room_without_members_are_for_all() -> None:
    of = queues(**{"r1@a": 3, "r2@b": 2, "r3@c": 2, "r4@d": 3})
    members = ["h1@1@r1", "h2@1@r1", "h3@1@r2"]
    assert by_member(shares(MachineRoomNearby(), members, of)) == {
        "h1@1@r1": "r1@a:0 r1@a:1 r3@c:0 r4@d:0",
        "h2@1@r1": "r1@a:2 r3@c:1 r4@d:1",
        "h3@1@r2": "r2@b:0 r2@b:1 r4@d:2",
    }


def test_nearby_with_an_inner_strategy_of_another_kind() -> None:
    of = queues(**{"r1@a": 4})
    strategy = MachineRoomNearby(AveragelyByCircle())
    assert strategy.name == "MACHINE_ROOM_NEARBY-AVG_BY_CIRCLE"
    assert MachineRoomNearby().name == "MACHINE_ROOM_NEARBY-AVG"
    assert by_member(shares(strategy, ["h1@1@r1", "h2@1@r1"], of)) == {
        "h1@1@r1": "r1@a:0 r1@a:2",
        "h2@1@r1": "r1@a:1 r1@a:3",
    }


def test_nearby_a_member_whose_room_has_no_queues_gets_only_its_part_of_rooms_without_members() -> None:
    of = queues(**{"r1@a": 2, "r3@c": 2})
    assert by_member(shares(MachineRoomNearby(), ["h1@1@r1", "h2@1@r2"], of)) == {
        "h1@1@r1": "r1@a:0 r1@a:1 r3@c:0",
        "h2@1@r2": "r3@c:1",
    }


def test_a_room_is_the_zone_of_the_route_or_of_the_client_id() -> None:
    resolver = RoomByNameOrZone()
    zones = {("c1", "a"): "east", ("c1", "r1@a"): "east"}
    assert resolver.broker_deploy_in(MessageQueue("T", "c1", "a", 0), zones) == "east"
    assert resolver.broker_deploy_in(MessageQueue("T", "c2", "a", 0), zones) == ""
    assert resolver.broker_deploy_in(MessageQueue("T", "c1", "r1@a", 0), zones) == "r1"
    assert resolver.consumer_deploy_in("10.0.0.1@123@east") == "east"
    assert resolver.consumer_deploy_in("10.0.0.1@123@east@2") == "east@2"
    assert resolver.consumer_deploy_in("10.0.0.1@123") == ""


def test_a_queue_or_a_client_without_a_room_is_refused_with_rocketmqs_message() -> None:
    with pytest.raises(AllocationError) as caught:
        MachineRoomNearby().allocate(request("h1@1", ["h1@1"], queues(a=1)))
    assert str(caught.value) == "Machine room is null for mq MessageQueue [topic=orders, brokerName=a, queueId=0]"
    with pytest.raises(AllocationError) as caught:
        MachineRoomNearby().allocate(request("h1@1@r1", ["h1@1@r1", "h2@1"], queues(**{"r1@a": 1})))
    assert str(caught.value) == "Machine room is null for consumer id h2@1"


def test_a_resolver_of_ones_own_decides() -> None:
    class ByFirstLetter:
        def broker_deploy_in(self, queue: MessageQueue, zones: Zones) -> str:
            assert zones == {}
            return queue.broker_name[0]

        def consumer_deploy_in(self, client_id: str) -> str:
            return client_id[0]

    strategy = MachineRoomNearby(Averagely(), resolver=ByFirstLetter())
    assert by_member(shares(strategy, ["a@1", "b@1"], queues(ax=1, bx=2))) == {"a@1": "ax:0", "b@1": "bx:0 bx:1"}


MEMBERS = ["10.0.0.1@7", "10.0.0.2@7", "10.0.0.3@7"]


def pinned_to(*pinned: str) -> list[str]:
    return [short(share) for share in shares(Pinned(Averagely(), pinned), MEMBERS, queues(q=4)).values()]


def test_w13_one_pinned_machine_consumes_everything_and_afterwards_all_share_again() -> None:
    assert pinned_to("10.0.0.2@7") == ["", "q:0 q:1 q:2 q:3", ""]
    assert pinned_to() == ["q:0 q:1", "q:2", "q:3"]


def test_several_pinned_members_share_by_the_inner_strategy() -> None:
    assert pinned_to("10.0.0.3@7", "10.0.0.1@7") == ["q:0 q:1", "", "q:2 q:3"]


def test_the_name_has_both_parts() -> None:
    assert Pinned(Averagely(), ()).name == "PINNED-AVG"


EACH = [
    Averagely(),
    AveragelyByCircle(),
    ConsistentHash(),
    MachineRoom({"r"}),
    MachineRoomNearby(),
    Pinned(Averagely(), ["b@1"]),
]


@pytest.mark.parametrize("strategy", EACH, ids=lambda each: each.name)
@pytest.mark.parametrize(
    ("client_id", "client_ids", "count", "text"),
    [
        pytest.param("", [], 0, "currentCID is empty", id="all-three-faults"),
        pytest.param("", ["b@1"], 4, "currentCID is empty", id="no-client-id"),
        pytest.param("a@1", [], 0, "mqAll is null or mqAll empty", id="no-queues-and-no-members"),
        pytest.param("a@1", ["b@1"], 0, "mqAll is null or mqAll empty", id="no-queues"),
        pytest.param("a@1", [], 4, "cidAll is null or cidAll empty", id="no-members"),
    ],
)
def test_errors_are_found_in_this_order(
    strategy: AllocationStrategy, client_id: str, client_ids: list[str], count: int, text: str
) -> None:
    with pytest.raises(AllocationError) as caught:
        strategy.allocate(request(client_id, client_ids, queues(a=count)))
    assert str(caught.value) == text


@pytest.mark.parametrize("strategy", EACH, ids=lambda each: each.name)
def test_a_client_that_is_not_a_member_gets_nothing(strategy: AllocationStrategy) -> None:
    assert strategy.allocate(request("a@1", ["b@1", "c@1"], queues(a=4))) == ()
