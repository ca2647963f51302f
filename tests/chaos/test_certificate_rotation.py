"""Certificates that are replaced every few seconds under load, by good and by bad ones: no established stream fails."""

from __future__ import annotations

import asyncio
import datetime as dt
import ssl
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import grpc
import pytest

from pointsman.v1.registration_service_pb2 import KeepAliveRequest
from pointsman.v1.registration_service_pb2_grpc import RegistrationServiceStub
from pointsman.v1.route_service_pb2 import KnownRoute, ListTopicsRequest, WatchTopicRoutesRequest
from pointsman.v1.route_service_pb2_grpc import RouteServiceStub
from tests.chaos.conftest import Report
from tests.kit.broker.rocketmq.peer import RemotingPeer, remoting_peer
from tests.kit.certificates import Authority, Files
from tests.kit.name_server import wire
from tests.kit.name_server.process import RealNameServer, real_name_server
from tests.kit.tls_peers import channel, context

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]

ROTATIONS = 40
ROTATION_SECONDS = 6.0
"""The server checks the files every 5 s."""
STREAMS = 50
BEATS_A_SECOND = 10.0
CALL_SECONDS = 20.0

Rotate = Callable[[Authority, Files], object]


def _expired(authority: Authority, _: Files) -> None:
    authority.issue("server", expires=dt.datetime(2020, 1, 1, tzinfo=dt.UTC))


def _half_written(_: Authority, files: Files) -> None:
    files.certificate.write_bytes(files.certificate.read_bytes()[:200])


def _unreadable(_: Authority, files: Files) -> None:
    files.key.unlink()


def _anothers_key(authority: Authority, files: Files) -> None:
    authority.issue("other").key.replace(files.key)


BAD: list[Rotate] = [_expired, _half_written, _unreadable, _anothers_key]


class _Load:
    """Streams, watches and connections that were open from the start, and new ones all the time."""

    def __init__(self, addr: str, remoting_addr: str, authority: Authority, own: Files) -> None:
        self.beats = self.answers = self.opened = 0
        self._addrs = addr, remoting_addr
        self._authority, self._own = authority, own

    def _channel(self) -> grpc.aio.Channel:
        return channel(self._addrs[0], self._authority.file, self._own)

    def _context(self) -> ssl.SSLContext:
        return context(self._authority.file, self._own)

    async def open(self, stack: AsyncExitStack, tasks: asyncio.TaskGroup) -> list[asyncio.Task[None]]:
        """Open the long-lived connections; every task fails with the first error."""
        work: list[Awaitable[None]] = []
        for number in range(STREAMS):
            peer = await stack.enter_async_context(self._channel())
            who = wire.identity(name=f"b{number}", addr=f"10.0.0.1:{number + 1}")
            registration = wire.registration(wire.topic("orders"), who=who)
            generation = (await RegistrationServiceStub(peer).RegisterBroker(registration)).generation
            work += [self._beat(peer, KeepAliveRequest(beat=wire.beat(generation, who=who))), self._watch(peer)]
            work.append(self._ask(await stack.enter_async_context(remoting_peer(self._addrs[1], self._context()))))
        work.append(self._connect())
        return [tasks.create_task(each) for each in work]  # type: ignore[arg-type]  # they are coroutines

    async def _beat(self, peer: grpc.aio.Channel, beat: KeepAliveRequest) -> None:
        stream = RegistrationServiceStub(peer).KeepAlive()
        while True:
            await stream.write(beat)
            assert await stream.read() is not grpc.aio.EOF, "a keep-alive stream ended"
            self.beats += 1
            await asyncio.sleep(1 / BEATS_A_SECOND)

    async def _watch(self, peer: grpc.aio.Channel) -> None:
        request = WatchTopicRoutesRequest(topics=[KnownRoute(topic="orders")])
        async for _ in RouteServiceStub(peer).WatchTopicRoutes(request):
            pass
        raise AssertionError("a watch ended")

    async def _ask(self, peer: RemotingPeer) -> None:
        while True:
            assert (await peer.ask(105, {"topic": "orders"})).code == 0
            self.answers += 1
            await asyncio.sleep(1 / BEATS_A_SECOND)

    async def _connect(self) -> None:
        while True:
            async with self._channel() as peer:
                await RouteServiceStub(peer).ListTopics(ListTopicsRequest(), timeout=CALL_SECONDS)
            async with remoting_peer(self._addrs[1], self._context()) as fresh:
                assert await fresh.is_answered()
            self.opened += 1
            await asyncio.sleep(0.1)


async def _failures(server: RealNameServer) -> float:
    return await server.metric("pointsman_namesrv_tls_reload_failures_total")


async def test_rotations_under_load_fail_no_stream_and_bad_files_change_nothing(tmp_path: Path, report: Report) -> None:
    authority = Authority(tmp_path)
    files, own = authority.issue("server"), authority.issue("client", "client.example")
    settings = {
        "snapshot.directory": tmp_path / "state",
        "remoting.listen": "127.0.0.1:0",
        "tls.certificate": files.certificate,
        "tls.key": files.key,
        "tls.client_ca": files.ca,
    }
    async with real_name_server(tmp_path / "ns", settings=settings) as server, AsyncExitStack() as stack:
        serving = next(line for line in server.said() if line["message"] == "serving")
        load = _Load(server.addr, serving["remoting"], authority, own)
        async with asyncio.TaskGroup() as tasks:
            running = await load.open(stack, tasks)
            for number in range(ROTATIONS):
                before = await _failures(server)
                is_bad = number % 2 == 1
                if is_bad:
                    BAD[number // 2 % len(BAD)](authority, files)
                else:
                    authority.issue("server")
                await asyncio.sleep(ROTATION_SECONDS)
                assert (await _failures(server) > before) is is_bad, f"rotation {number}"
            for task in running:
                task.cancel()
        closed = await server.metric("pointsman_namesrv_remoting_connections_closed_total")
        lines = [line["message"] for line in server.said() if "TLS files" in line["message"]]
        report(
            f"{ROTATIONS} rotations, {load.beats} heartbeats, {load.answers} responses, {load.opened} new connections "
            f"of each kind, {server.rss_bytes() / 1e6:.0f} MB"
        )
        assert closed == 0
        assert ROTATIONS <= len(lines) <= ROTATIONS + 3, "one line per change; a check between two files adds one"
        assert min(load.beats, load.answers) > STREAMS * ROTATIONS
