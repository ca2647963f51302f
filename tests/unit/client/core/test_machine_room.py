"""Machine rooms: only some, or nearest first; by name or by zone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import pytest

from pointsman_client.core.allocation import (
    Averagely,
    AveragelyByCircle,
    MachineRoom,
    MachineRoomNearby,
    RoomByNameOrZone,
    Zones,
    room_in_name,
)
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.errors import AllocationError, InvalidOptionError
from tests.kit.client.queues import queues, request, shares, short


def texts(given: Mapping[str, tuple[MessageQueue, ...]]) -> dict[str, str]:
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
    assert texts(shares(MachineRoom({"r1", "r2"}), ["x", "y", "z"], of)) == {
        "x": "r1@a:0 r1@a:1 r2@b:1",
        "y": "r1@a:2 r1@a:3 r2@b:2",
        "z": "r1@a:4 r2@b:0",
    }


def test_a_brokers_zone_is_its_room_where_its_name_has_none() -> None:
    zones = {("c1", "a"): "r1", ("c1", "b"): "r2", ("c1", "r2@c"): "r1", ("c2", "d"): "r1"}
    of = queues(**{"a": 2, "b": 2, "r2@c": 1, "d": 1})
    assert texts(shares(MachineRoom({"r1"}), ["x", "y"], of, zones=zones)) == {"x": "a:0", "y": "a:1"}


def test_without_a_room_no_member_gets_a_queue() -> None:
    assert texts(shares(MachineRoom(()), ["x"], queues(**{"r1@a": 3}))) == {"x": ""}


@pytest.mark.parametrize("rooms", [None, "r1"])
def test_rooms_that_are_no_set_are_refused(rooms: object) -> None:
    with pytest.raises(InvalidOptionError, match=r"rooms = .* must be a set of rooms"):
        MachineRoom(cast("Any", rooms))


def test_nearby_queues_stay_in_their_room_and_those_of_a_room_without_members_are_for_all() -> None:
    of = queues(**{"r1@a": 3, "r2@b": 2, "r3@c": 2, "r4@d": 3})
    members = ["h1@1@r1", "h2@1@r1", "h3@1@r2"]
    assert texts(shares(MachineRoomNearby(), members, of)) == {
        "h1@1@r1": "r1@a:0 r1@a:1 r3@c:0 r4@d:0",
        "h2@1@r1": "r1@a:2 r3@c:1 r4@d:1",
        "h3@1@r2": "r2@b:0 r2@b:1 r4@d:2",
    }


def test_nearby_with_an_inner_strategy_of_another_kind() -> None:
    of = queues(**{"r1@a": 4})
    strategy = MachineRoomNearby(AveragelyByCircle())
    assert strategy.name == "MACHINE_ROOM_NEARBY-AVG_BY_CIRCLE"
    assert MachineRoomNearby().name == "MACHINE_ROOM_NEARBY-AVG"
    assert texts(shares(strategy, ["h1@1@r1", "h2@1@r1"], of)) == {
        "h1@1@r1": "r1@a:0 r1@a:2",
        "h2@1@r1": "r1@a:1 r1@a:3",
    }


def test_nearby_a_member_whose_room_has_no_queues_gets_only_its_part_of_rooms_without_members() -> None:
    of = queues(**{"r1@a": 2, "r3@c": 2})
    assert texts(shares(MachineRoomNearby(), ["h1@1@r1", "h2@1@r2"], of)) == {
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
    assert texts(shares(strategy, ["a@1", "b@1"], queues(ax=1, bx=2))) == {"a@1": "ax:0", "b@1": "bx:0 bx:1"}
