"""Watches at scale over kills and pauses: no watcher goes back or misses the last state, and all are back in time."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest

from pointsman.v1.broker_pb2 import BrokerIdentity, TopicConfig
from pointsman.v1.registration_service_pb2 import UpdateTopicsRequest
from pointsman.v1.registration_service_pb2_grpc import RegistrationServiceStub
from pointsman.v1.route_service_pb2 import GetTopicRoutesRequest, KnownRoute
from pointsman.v1.route_service_pb2_grpc import RouteServiceStub
from tests.chaos.conftest import Report
from tests.chaos.watch_history import GONE, Record, Synced, Truth, faults, read
from tests.kit.name_server import wire
from tests.kit.name_server.process import RealNameServer, real_name_server

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]

BROKERS = 10
TOPICS = 100
CHANGES = 10_000
CHANGES_A_SECOND = 150.0
CLIENT_PROCESSES = 10
WATCHERS_EACH = 100
SETTLE_SECONDS = 60.0
HERD = 5_000
HERD_SECONDS = 15.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Lives:
    """A name server that is killed and started again on the same port, with the same snapshot."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._settings: dict[str, object] = {
            "server.listen": f"127.0.0.1:{free_port()}",
            "snapshot.directory": folder / "state",
            "snapshot.interval_seconds": 0.5,
            "log.level": "INFO",
        }
        self._life = 0
        self.addr = str(self._settings["server.listen"])

    @asynccontextmanager
    async def life(self) -> AsyncIterator[RealNameServer]:
        """One process; SIGKILL at the end of the block."""
        self._life += 1
        async with real_name_server(self._folder / f"life-{self._life}", settings=self._settings) as server:
            yield server


@asynccontextmanager
async def clients(addr: str, count: int, *, watchers: int, folder: Path | None) -> AsyncIterator[list[int]]:
    """Processes of watchers; yields their ids."""
    processes = []
    try:
        for number in range(count):
            record = [] if folder is None else ["--record", str(folder / f"p{number}")]
            processes.append(
                await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", "tests.chaos.watch_clients", "--addr", addr, "--name", f"p{number}"),
                    *("--watchers", str(watchers), "--topics", str(TOPICS), *record),
                    cwd=Path(__file__).parents[2],
                )
            )
        yield [process.pid for process in processes]
    finally:
        for process in processes:
            if process.returncode is None:
                process.kill()
            await process.wait()


class Brokers:
    """Brokers that change their topics, one at a time; topic i is held by broker i modulo their number alone."""

    def __init__(self) -> None:
        self._draw = random.Random(20_261_121)
        self._topics = [{f"t{i}": 1 for i in range(number, TOPICS, BROKERS)} for number in range(BROKERS)]
        self._versions = [1] * BROKERS
        self._generations = [0] * BROKERS

    async def register(self, addr: str) -> None:
        """Register the full state of all brokers."""
        async with grpc.aio.insecure_channel(addr) as channel:
            for number in range(BROKERS):
                answer = await RegistrationServiceStub(channel).RegisterBroker(
                    wire.registration(
                        *(wire.topic(topic, queues) for topic, queues in self._topics[number].items()),
                        who=self._who(number),
                        version=(0, 0, self._versions[number]),
                        heartbeat=300,
                        expiry=3_000,
                    ),
                    timeout=10,
                )
                self._generations[number] = answer.generation

    async def change(self, addr: str, changes: int) -> float:
        """Change topics at a steady pace; return how many changes a second were made."""
        started = time.monotonic()
        async with grpc.aio.insecure_channel(addr) as channel:
            stub = RegistrationServiceStub(channel)
            for done in range(changes):
                await stub.UpdateTopics(self._next_change(), timeout=10)
                await asyncio.sleep(started + (done + 1) / CHANGES_A_SECOND - time.monotonic())
        return changes / (time.monotonic() - started)

    def _next_change(self) -> UpdateTopicsRequest:
        topic_number = self._draw.randrange(TOPICS)
        number, topic = topic_number % BROKERS, f"t{topic_number}"
        topics = self._topics[number]
        changed: list[TopicConfig] = []
        removed: list[str] = []
        if topic in topics and self._draw.random() < 0.05:
            del topics[topic]
            removed.append(topic)
        else:
            topics[topic] = topics.get(topic, 0) % 64 + 1
            changed.append(wire.topic(topic, topics[topic]))
        base = self._versions[number]
        self._versions[number] += 1
        return UpdateTopicsRequest(
            identity=self._who(number),
            generation=self._generations[number],
            base_data_version=wire.data_version((0, 0, base)),
            data_version=wire.data_version((0, 0, base + 1)),
            changed=changed,
            removed=removed,
        )

    @staticmethod
    def _who(number: int) -> BrokerIdentity:
        return wire.identity(name=f"b{number}", addr=f"10.0.0.{number}:10911")


async def truth(addr: str) -> Truth:
    """The results of fresh queries."""
    async with grpc.aio.insecure_channel(addr) as channel:
        answer = await RouteServiceStub(channel).GetTopicRoutes(
            GetTopicRoutesRequest(topics=[KnownRoute(topic=f"t{i}") for i in range(TOPICS)]), timeout=10
        )
    assert not answer.left_out
    (boot,) = {route.revision.boot for route in answer.routes}
    digests = {route.topic: route.revision.digest.hex() for route in answer.routes}
    return {boot: digests | dict.fromkeys(answer.not_found, GONE)}


async def wait_for_watchers(server: RealNameServer, count: int, *, seconds: float) -> float:
    """Wait until ``count`` watchers are connected; return how long that took."""
    started = time.monotonic()
    async with asyncio.timeout(seconds):
        while await server.metric("pointsman_namesrv_watchers") != count:  # noqa: ASYNC110  # another process's doing
            await asyncio.sleep(0.2)
    return time.monotonic() - started


async def test_a_thousand_watchers_over_two_kills_and_stopped_clients_keep_every_promise(
    tmp_path: Path, report: Report
) -> None:
    lives, brokers, records = Lives(tmp_path), Brokers(), tmp_path / "records"
    records.mkdir()
    watcher_count = CLIENT_PROCESSES * WATCHERS_EACH
    async with clients(lives.addr, CLIENT_PROCESSES, watchers=WATCHERS_EACH, folder=records) as pids:
        for part, stopped in enumerate(pids[:3]):
            async with lives.life() as server:
                await brokers.register(lives.addr)
                # A tenth was stopped while the previous server was killed, and notices later.
                back = await wait_for_watchers(server, watcher_count - (WATCHERS_EACH if part else 0), seconds=60)
                if part:
                    os.kill(pids[part - 1], signal.SIGCONT)
                pace = await brokers.change(lives.addr, CHANGES // 9)
                os.kill(stopped, signal.SIGSTOP)
                pace += await brokers.change(lives.addr, CHANGES // 9)
                os.kill(stopped, signal.SIGCONT)
                pace += await brokers.change(lives.addr, CHANGES // 9)
                report(f"life {part + 1}: watched after {back:.1f} s, {pace / 3:.0f} changes/s")
                if part < 2:
                    os.kill(stopped, signal.SIGSTOP)
                    await brokers.change(lives.addr, CHANGES // 90)
                    continue
                changed_at, fresh, found = time.monotonic(), await truth(lives.addr), ["unread"]
                while found and time.monotonic() - changed_at < SETTLE_SECONDS:
                    await asyncio.sleep(1.0)
                    found = await asyncio.to_thread(all_faults, records, fresh)
                report(f"consistent {time.monotonic() - changed_at:.1f} s after the last change")
                assert found == []
                assert await server.metric("pointsman_namesrv_watchers") == watcher_count
    seen = await asyncio.to_thread(all_records, records)
    assert len({record.client for record in seen}) == watcher_count
    assert max(record.connection for record in seen) >= 3
    report(f"{len(seen)} records of {watcher_count} watchers")


def all_records(folder: Path) -> list[Record]:
    return [record for file in sorted(folder.iterdir()) for record in read(file)]


def all_faults(folder: Path, fresh: Truth) -> list[str]:
    return faults(all_records(folder), fresh)


async def test_five_thousand_watchers_are_back_within_fifteen_seconds_of_a_restart(
    tmp_path: Path, report: Report
) -> None:
    lives, brokers, records = Lives(tmp_path), Brokers(), tmp_path / "records"
    records.mkdir()
    async with clients(lives.addr, 5, watchers=HERD // 5, folder=records):
        async with lives.life() as server:
            await brokers.register(lives.addr)
            await wait_for_first_states(records, HERD, seconds=120)
            assert await server.metric("pointsman_namesrv_watchers") == HERD
        started = time.monotonic()
        async with lives.life() as server:
            await wait_for_first_states(records, 2 * HERD, seconds=HERD_SECONDS)
            report(f"{HERD} watchers served {time.monotonic() - started:.1f} s after the kill, the restart included")
            assert await server.metric("pointsman_namesrv_watchers") == HERD


async def wait_for_first_states(records: Path, count: int, *, seconds: float) -> None:
    """Wait until the clients have recorded ``count`` complete first states."""
    async with asyncio.timeout(seconds):
        while await asyncio.to_thread(first_states, records) < count:  # noqa: ASYNC110  # as above
            await asyncio.sleep(0.2)


def first_states(records: Path) -> int:
    return sum(isinstance(record, Synced) for record in all_records(records))
