"""Strategies by value: stated by one member, built by another."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pointsman_client.core.allocation import (
    AllocationRequest,
    AllocationStrategy,
    Averagely,
    AveragelyByCircle,
    ByConfig,
    ConsistentHash,
    MachineRoom,
    MachineRoomNearby,
    RoomByNameOrZone,
    Zones,
)
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.rebalance import Members, StrategyInForce
from pointsman_client.core.stated_strategy import MAX_VIRTUAL_NODES, StatedStrategy, built_from, stated

QUEUES = tuple(MessageQueue("orders", "c1", broker, queue) for broker in ("a", "b") for queue in range(5))
ZONES = {("c1", "a"): "z1", ("c1", "b"): "z2"}
CLIENT_IDS = ("10.0.0.1@1@z1", "10.0.0.2@1@z2", "10.0.0.3@1@z2")
BUILDABLE: dict[str, AllocationStrategy] = {
    "AVG": Averagely(),
    "AVG_BY_CIRCLE": AveragelyByCircle(),
    'CONSISTENT_HASH {"virtual_nodes":20}': ConsistentHash(20),
    'MACHINE_ROOM {"rooms":["z1","z2"]}': MachineRoom({"z2", "z1"}),
    'MACHINE_ROOM_NEARBY {"inner":{"name":"AVG","settings":{}}}': MachineRoomNearby(),
    'MACHINE_ROOM_NEARBY {"inner":{"name":"CONSISTENT_HASH","settings":{"virtual_nodes":3}}}': MachineRoomNearby(
        ConsistentHash(3)
    ),
}


class Mine(Averagely):
    """A subclass may divide queues in another way."""


class Resolver(RoomByNameOrZone):
    def broker_deploy_in(self, queue: MessageQueue, zones: Zones) -> str:  # noqa: ARG002  # the protocol's
        return "z1"


@pytest.mark.parametrize("text", BUILDABLE)
def test_a_built_in_strategy_is_stated_with_its_settings_and_built_by_others(text: str) -> None:
    strategy = BUILDABLE[text]
    setting = stated(strategy)
    built = built_from(setting)
    assert (setting.text, setting.buildable_from) == (text, 1)
    assert built is not None
    assert type(built) is type(strategy)
    for client_id in CLIENT_IDS:
        request = AllocationRequest("g", client_id, QUEUES, CLIENT_IDS, ZONES)
        assert built.allocate(request) == strategy.allocate(request)


@pytest.mark.parametrize(
    ("strategy", "text"),
    [
        (ByConfig(QUEUES), "CONFIG"),
        (Mine(), 'AVG {"class":"tests.unit.client.core.test_stated_strategy.Mine"}'),
        (
            MachineRoomNearby(Mine()),
            (
                'MACHINE_ROOM_NEARBY {"inner":{"name":"AVG","settings":'
                '{"class":"tests.unit.client.core.test_stated_strategy.Mine"}}}'
            ),
        ),
        (
            MachineRoomNearby(resolver=Resolver()),
            (
                'MACHINE_ROOM_NEARBY {"inner":{"name":"AVG","settings":{}},'
                '"resolver":"tests.unit.client.core.test_stated_strategy.Resolver"}'
            ),
        ),
        (ConsistentHash(MAX_VIRTUAL_NODES + 1), 'CONSISTENT_HASH {"virtual_nodes":10001}'),
        (MachineRoom({f"room-{number}" for number in range(100)}), "MACHINE_ROOM"),
    ],
)
def test_a_strategy_of_the_application_a_configured_or_a_large_one_is_built_by_no_other_member(
    strategy: AllocationStrategy, text: str
) -> None:
    setting = stated(strategy)
    assert (setting.text, setting.buildable_from, built_from(setting)) == (text, 0, None)


def test_equal_settings_have_equal_digests_and_others_do_not() -> None:
    assert stated(MachineRoom(["b", "a"])) == stated(MachineRoom({"a", "b"}))
    assert stated(ByConfig(QUEUES)) == stated(ByConfig())
    assert stated(Mine()) == stated(Mine())
    several = [*BUILDABLE.values(), ConsistentHash(), Mine(), ByConfig(), MachineRoomNearby(resolver=Resolver())]
    assert len({stated(each).digest for each in several}) == len(several)


def test_only_nearby_with_the_default_resolver_needs_zones_of_the_members() -> None:
    assert stated(MachineRoomNearby()).needs_zone
    assert not any(
        stated(each).needs_zone for each in (Averagely(), MachineRoom({"z1"}), MachineRoomNearby(resolver=Resolver()))
    )


@pytest.mark.parametrize(
    "change",
    [
        {"buildable_from": 2},
        {"name": "SMOOTH"},
        {"settings": "{"},
        {"settings": '{"virtual_nodes":"x"}'},
        {"settings": '{"virtual_nodes":-1}'},
        {"settings": "{}"},
        {"settings": "[]"},
        {"settings": '{"virtual_nodes":21}'},
        {"settings": '{"virtual_nodes":20,"more":1}', "name": "AVG"},
    ],
)
def test_what_this_client_cannot_build_exactly_is_not_built(change: dict[str, object]) -> None:
    assert built_from(replace(stated(ConsistentHash(20)), **change)) is None  # type: ignore[arg-type]


def test_a_member_uses_its_own_object_where_the_stated_strategy_equals_it() -> None:
    own = MachineRoomNearby(Mine())
    in_force = StrategyInForce(own)

    def given(setting: StatedStrategy | None) -> AllocationStrategy | None:
        return in_force.given(Members(("x",), strategy=setting))

    assert in_force.given(None) is own
    assert given(stated(MachineRoomNearby(Mine()))) is own
    followed = given(stated(Averagely()))
    assert type(followed) is Averagely
    assert given(stated(Averagely())) is followed
    assert given(stated(ByConfig())) is None
    assert given(None) is own


@pytest.mark.parametrize("name", ["größer\n", "x" * 200, ""])
def test_the_name_of_an_own_class_is_stated_as_agents_accept_it(name: str) -> None:
    class Named(Averagely):
        pass

    Named.name = name
    given = stated(Named()).name
    assert given
    assert given.isascii()
    assert given.isprintable()
    assert len(given) <= 127
