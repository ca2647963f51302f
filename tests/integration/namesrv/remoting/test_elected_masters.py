"""Frames as the brokers of a DLedger or controller group send them: they elect their master, and their ids change.

No process of RocketMQ runs here. docs/operations.md, "DLedger and controller groups", says what this file shows.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from pointsman.manual_clock import ManualClock
from pointsman_namesrv.app import NameServerApp
from pointsman_namesrv.core.model import GroupKey
from pointsman_namesrv.core.replica_state import Phase
from tests.kit.broker.rocketmq.frames import broker_ext, register, register_body
from tests.kit.broker.rocketmq.peer import Answer, RemotingPeer, remoting_peer
from tests.kit.ctl.command import ctl
from tests.kit.waiting import eventually

KEY = GroupKey("DefaultCluster", "broker-a")
CONTROLLER_CODES = range(1_001, 1_014)
FIRST, SECOND, THIRD = "10.0.0.1:10911", "10.0.0.2:10911", "10.0.0.3:10911"
"""The brokers; their own ids are 1, 2 and 3, and the first is elected first."""


class Brokers:
    """The three brokers of one group, each with a connection."""

    def __init__(self, server: NameServerApp, clock: ManualClock, peers: dict[str, RemotingPeer]) -> None:
        self.peers = peers
        self.server = server
        self._clock = clock

    async def register(self, addr: str, broker_id: int, *, epoch: int = 1) -> Answer:
        """``epoch``: the controller's, or DLedger's term; RocketMQ sends it as the state version of the topics."""
        version = {"counter": 1, "stateVersion": epoch, "timestamp": 1_700_000_000_000 + epoch}
        ext = broker_ext(broker_id=broker_id, addr=addr, haServerAddr=addr)
        self.peers[addr].send(register(ext, register_body(dataVersion=version)))
        return await self.peers[addr].answer()

    async def elect_first(self) -> None:
        for addr, broker_id in ((FIRST, 0), (SECOND, 2), (THIRD, 3)):
            assert (await self.register(addr, broker_id)).code == 0

    async def listed(self) -> tuple[dict[str, str], int | None]:
        """Return the addresses by id, and the permission of the topic; None: no such topic."""
        who = {"clusterName": KEY.cluster, "brokerName": KEY.broker_name}
        members = (await self.peers[THIRD].ask(901, who)).json()["brokerMemberGroup"]["brokerAddrs"]
        route = await self.peers[THIRD].ask(105, {"topic": "TopicTest"})
        return members, route.json()["queueDatas"][0]["perm"] if route.code == 0 else None

    async def lose_first(self) -> None:
        await self.peers[FIRST].close()
        await eventually(lambda: self.server.core.routes.groups[KEY].replicas[0].state.phase is Phase.SUSPECT)

    async def pass_time(self, seconds: float) -> None:
        await pass_time(self._clock, seconds)


async def pass_time(clock: ManualClock, seconds: float) -> None:
    """Let time pass in steps that are no pause of the server."""
    for _ in range(round(seconds * 2)):
        await clock.advance(0.5)


@pytest.fixture
async def brokers(server: NameServerApp, clock: ManualClock) -> AsyncIterator[Brokers]:
    await pass_time(clock, 130)  # a server that has just started is lenient
    async with AsyncExitStack() as stack:
        peers = {
            addr: await stack.enter_async_context(remoting_peer(server.remoting_addr))
            for addr in (FIRST, SECOND, THIRD)
        }
        yield Brokers(server, clock, peers)


async def test_before_the_first_election_no_broker_is_listed(brokers: Brokers) -> None:
    for addr in brokers.peers:
        assert (await brokers.register(addr, -1)).code == 0
    assert await brokers.listed() == ({}, None)


async def test_the_elected_master_has_id_0_and_the_others_their_own(brokers: Brokers) -> None:
    await brokers.elect_first()
    assert await brokers.listed() == ({"0": FIRST, "2": SECOND, "3": THIRD}, 6)
    answer = await brokers.register(SECOND, 2)
    assert answer.command.ext == {"haServerAddr": FIRST, "masterAddr": FIRST}


async def test_without_a_master_the_others_are_read_and_the_name_server_chooses_none(brokers: Brokers) -> None:
    await brokers.elect_first()
    await brokers.lose_first()
    await brokers.pass_time(9)
    assert await brokers.listed() == ({"0": FIRST, "2": SECOND, "3": THIRD}, 6)
    await brokers.pass_time(7)
    for _ in range(5):
        assert await brokers.listed() == ({"2": SECOND, "3": THIRD}, 4)
        await brokers.pass_time(30)
        for addr, broker_id in ((SECOND, 2), (THIRD, 3)):
            assert (await brokers.register(addr, broker_id)).command.ext == {}


@pytest.mark.parametrize("is_expired", [True, False])
async def test_the_next_master_takes_id_0_and_leaves_its_own_in_one_step(brokers: Brokers, *, is_expired: bool) -> None:
    await brokers.elect_first()
    await brokers.lose_first()
    if is_expired:
        await brokers.pass_time(16)
    assert (await brokers.register(SECOND, 0, epoch=2)).code == 0
    assert await brokers.listed() == ({"0": SECOND, "3": THIRD}, 6)
    assert (await brokers.register(THIRD, 3, epoch=2)).command.ext == {"haServerAddr": SECOND, "masterAddr": SECOND}
    why = await ctl("--namesrv", brokers.server.addr, "why", KEY.broker_name)
    assert "UNREGISTERED SUPERSEDED, planned" in why.out


async def test_the_earlier_master_comes_back_under_its_own_id(brokers: Brokers) -> None:
    await brokers.elect_first()
    await brokers.lose_first()
    await brokers.register(SECOND, 0, epoch=2)
    async with remoting_peer(brokers.server.remoting_addr) as again:
        brokers.peers[FIRST] = again
        assert (await brokers.register(FIRST, 1, epoch=2)).code == 0
        assert await brokers.listed() == ({"0": SECOND, "1": FIRST, "3": THIRD}, 6)


async def test_of_two_masters_the_one_with_the_lower_epoch_is_refused_while_the_other_is_up(brokers: Brokers) -> None:
    await brokers.elect_first()
    await brokers.register(SECOND, 0, epoch=2)
    refused = await brokers.register(FIRST, 0, epoch=1)
    assert refused.code == 1
    assert f"is held by {SECOND} with state version 2, above the claimed 1" in (refused.command.remark or "")
    assert await brokers.listed() == ({"0": SECOND, "3": THIRD}, 6)


async def test_of_two_masters_with_one_epoch_the_last_that_registered_is_listed(brokers: Brokers) -> None:
    await brokers.elect_first()
    for addr in (SECOND, FIRST):
        assert (await brokers.register(addr, 0)).code == 0
        assert await brokers.listed() == ({"0": addr, "3": THIRD}, 6)


async def test_nothing_is_sent_to_brokers_when_their_master_changes(brokers: Brokers) -> None:
    """RocketMQ has a notice of the lowest id (905), off by default; its brokers also ask for the members."""
    await brokers.elect_first()
    await brokers.lose_first()
    await brokers.pass_time(16)
    await brokers.register(SECOND, 0, epoch=2)
    for addr in (SECOND, THIRD):
        # `ask` fails if anything else than its own response arrives.
        assert (await brokers.peers[addr].ask(904, broker_ext(addr=addr))).code == 0


async def test_a_name_server_does_not_replace_a_controller(brokers: Brokers) -> None:
    for code in CONTROLLER_CODES:
        refused = await brokers.peers[THIRD].ask(code)
        assert (refused.code, refused.command.remark) == (3, f" request type {code} not supported")
