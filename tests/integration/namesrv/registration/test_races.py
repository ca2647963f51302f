"""Messages of one identity that overtake each other over real connections, and positions that change hands."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager

import grpc
import pytest

from pointsman.manual_clock import ManualClock
from pointsman.v1 import broker_pb2, registration_service_pb2
from pointsman.v1.registration_service_pb2_grpc import RegistrationServiceStub
from pointsman.v1.route_service_pb2 import GetTopicRouteRequest, TopicRoute, WatchTopicRoutesResponse
from pointsman.v1.route_service_pb2_grpc import RouteServiceStub
from pointsman_namesrv.app import NameServerApp
from tests.kit.name_server import wire
from tests.kit.name_server.peer import Peer
from tests.kit.name_server.watching import watching
from tests.kit.waiting import eventually

START_IS_OVER = 121.0
"""Past the first expiry after the server's start, in which a broken stream gets the full expiry."""
GRACE_IS_OVER = 20.0

STALE = registration_service_pb2.UNREGISTER_STATUS_STALE_GENERATION
UNREGISTERED = registration_service_pb2.UNREGISTER_STATUS_UNREGISTERED


def leave(who: broker_pb2.BrokerIdentity, generation: int) -> registration_service_pb2.UnregisterBrokerRequest:
    return wire.unregistration(who, generation)


class Connection:
    """One run of an agent on one connection: it registers, sends heartbeats, disconnects, unregisters."""

    def __init__(self, addr: str, who: broker_pb2.BrokerIdentity) -> None:
        self._channel = grpc.aio.insecure_channel(addr, options=[("grpc.use_local_subchannel_pool", 1)])
        self._stub = RegistrationServiceStub(self._channel)
        self._leaving = RegistrationServiceStub(grpc.aio.insecure_channel(addr))
        self._who = who
        self._stream: grpc.aio.StreamStreamCall[object, object] | None = None
        self.generation = 0

    async def register(self) -> None:
        answer = await self._stub.RegisterBroker(wire.registration(wire.topic("orders"), who=self._who))
        self.generation = answer.generation

    async def beat(self) -> None:
        stream = self._stub.KeepAlive()
        await stream.write(registration_service_pb2.KeepAliveRequest(beat=wire.beat(self.generation, who=self._who)))
        await stream.read()

    async def close(self) -> None:
        await self._channel.close()

    async def unregister(self) -> None:
        await self._leaving.UnregisterBroker(leave(self._who, self.generation))


def orders(old: Iterable[str], new: Iterable[str]) -> list[list[tuple[str, str]]]:
    """Every way in which two runs can interleave."""
    first, second = [("old", step) for step in old], [("new", step) for step in new]
    total = len(first) + len(second)
    found = []
    for at in itertools.combinations(range(total), len(first)):
        left, right = iter(first), iter(second)
        found.append([next(left) if i in at else next(right) for i in range(total)])
    return found


async def test_an_old_connection_that_ends_or_unregisters_at_any_moment_removes_nothing_of_the_new_one(
    server: NameServerApp, peer: Peer, clock: ManualClock
) -> None:
    await clock.advance(START_IS_OVER)
    lives = orders(["beat", "close", "unregister"], ["register", "beat", "beat"])
    assert len(lives) == 20
    for number, life in enumerate(lives):
        who = wire.identity(name=f"b{number}", addr=f"10.0.0.1:{number + 1}")
        sides = {"old": Connection(server.addr, who), "new": Connection(server.addr, who)}
        await sides["old"].register()
        for side, step in life:
            await getattr(sides[side], step)()
        held = server.core.routes.groups[("c1", f"b{number}")].replicas[0]  # type: ignore[index]  # a plain tuple equals a key
        assert held.generation == sides["new"].generation, life
    await eventually(lambda: server.metrics.streams._value.get() <= 2 * len(lives))
    await clock.advance(GRACE_IS_OVER)

    states = {replica.identity.broker_name: replica.state.phase.value for _, replica in server.core.replicas()}
    assert states == {f"b{number}": "UP" for number in range(len(lives))}
    assert len((await peer.route.GetTopicRoute(GetTopicRouteRequest(topic="orders"))).route.broker_datas) == 20


async def test_unregistrations_of_older_generations_racing_registrations_never_remove_the_newest(
    server: NameServerApp, peer: Peer
) -> None:
    who = wire.identity()
    generations: list[int] = []

    async def register() -> None:
        answer = await peer.registration.RegisterBroker(wire.registration(wire.topic("orders"), who=who))
        generations.append(answer.generation)

    await register()
    stale = 0
    for _ in range(100):
        older = list(generations)
        async with grpc.aio.insecure_channel(server.addr) as late:
            leaver = RegistrationServiceStub(late)
            answers = await asyncio.gather(
                register(), *(leaver.UnregisterBroker(leave(who, generation)) for generation in older[-3:])
            )
        statuses = [answer.status for answer in answers if answer is not None]
        stale += statuses.count(STALE)
        assert statuses.count(UNREGISTERED) <= 1
        ((_, holder),) = server.core.replicas()
        assert holder.generation == generations[-1]
    assert stale > 100
    assert (await peer.registration.UnregisterBroker(leave(who, generations[0]))).status == STALE
    assert (await peer.route.GetTopicRoute(GetTopicRouteRequest(topic="orders"))).route.broker_datas


View = dict[int, str]
"""Address by broker id."""


def view_of(route: TopicRoute) -> View:
    (broker,) = route.broker_datas
    return {replica.broker_id: replica.addr for replica in broker.replicas}


async def ask(channel: grpc.aio.Channel, seen: list[View]) -> None:
    """Query the route of "orders" continuously; record each response that differs from the one before."""
    stub = RouteServiceStub(channel)
    while True:
        view = view_of((await stub.GetTopicRoute(GetTopicRouteRequest(topic="orders"))).route)
        if not seen or seen[-1] != view:
            seen.append(view)


async def watch(channel: grpc.aio.Channel, seen: list[View]) -> None:
    """Note every state that a watch is sent."""
    async with watching(channel, "orders") as open_watch:
        while isinstance(news := await open_watch.call.read(), WatchTopicRoutesResponse):
            if news.WhichOneof("news") == "route":
                seen.append(view_of(news.route))


@asynccontextmanager
async def looking(server: NameServerApp) -> AsyncIterator[tuple[list[View], list[View]]]:
    """Yield what one querying and one watching client have seen."""
    asked: list[View] = []
    watched: list[View] = []
    async with grpc.aio.insecure_channel(server.addr) as channel, asyncio.TaskGroup() as tasks:
        lookers = [tasks.create_task(ask(channel, asked)), tasks.create_task(watch(channel, watched))]
        await eventually(lambda: asked and watched)
        yield asked, watched
        for looker in lookers:
            looker.cancel()


async def swaps(
    peer: Peer, *, old: tuple[int, str], new: tuple[int, str], beside: tuple[int, str] | None = None
) -> Callable[[], Awaitable[None]]:
    """Register ``old`` (and ``beside``), each an id and an address; return what registers ``new``."""

    async def register(replica: tuple[int, str], version: int) -> None:
        who = wire.identity(broker_id=replica[0], addr=replica[1])
        await peer.registration.RegisterBroker(
            wire.registration(wire.topic("orders"), who=who, version=(version, 0, 1))
        )

    await register(old, 0)
    if beside is not None:
        await register(beside, 0)

    async def swap() -> None:
        await register(new, 1)

    return swap


@pytest.mark.parametrize(
    ("old", "beside", "new", "expected"),
    [
        pytest.param(
            (0, "10.0.0.1:1"),
            (1, "10.0.0.9:1"),
            (0, "10.0.0.2:1"),
            [{0: "10.0.0.1:1", 1: "10.0.0.9:1"}, {0: "10.0.0.2:1", 1: "10.0.0.9:1"}],
            id="a pod returns with a new address",
        ),
        pytest.param(
            (1, "10.0.0.2:1"),
            (0, "10.0.0.1:1"),
            (0, "10.0.0.2:1"),
            [{0: "10.0.0.1:1", 1: "10.0.0.2:1"}, {0: "10.0.0.2:1"}],
            id="a slave takes the master's id at its own address",
        ),
        pytest.param(
            (1, "10.0.0.2:1"),
            (2, "10.0.0.3:1"),
            (0, "10.0.0.2:1"),
            [{1: "10.0.0.2:1", 2: "10.0.0.3:1"}, {0: "10.0.0.2:1", 2: "10.0.0.3:1"}],
            id="a slave is promoted where there is no master",
        ),
    ],
)
async def test_queries_and_watches_see_a_swap_as_one_change(
    server: NameServerApp,
    peer: Peer,
    clock: ManualClock,
    old: tuple[int, str],
    beside: tuple[int, str],
    new: tuple[int, str],
    expected: list[dict[int, str]],
) -> None:
    swap = await swaps(peer, old=old, new=new, beside=beside)
    async with looking(server) as (asked, watched):
        await swap()
        async with asyncio.timeout(60):
            while asked[-1] != expected[-1] or watched[-1] != expected[-1]:
                await clock.advance(0.1)  # changes within a moment reach a watch together
    assert (asked, watched) == (expected, expected)
