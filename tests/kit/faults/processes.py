"""Faults on real processes, at any scale: each function brings one about and returns what was measured.

The short ones run with every test, those at the default intervals in ``tests/chaos``. Bounded by their arguments.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import subprocess
import time
import zlib
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import grpc
import pytest

from pointsman.v1.registration_service_pb2 import HeartbeatRequest
from pointsman.v1.registration_service_pb2_grpc import RegistrationServiceStub
from pointsman_agent.config import AgentConfig, BrokerSection, HeartbeatSection, ProbeSection
from tests.kit.agent.in_process import agent_config, running_agent
from tests.kit.agent.process import agent_process
from tests.kit.broker.redis.process import redis_process
from tests.kit.faults.cut_proxy import cut_proxy
from tests.kit.name_server import wire
from tests.kit.name_server.process import RealNameServer
from tests.kit.name_server.view import LEAVES, POLL_SECONDS, Look, look, of_broker, on_disk, removals

SWEEP_SECONDS = 6.0
"""What the sweep and a busy machine may add."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Heartbeat interval and expiry of brokers, in seconds."""

    interval: float
    expiry: float


def config_of(name: str, number: int, name_servers: Sequence[str], pace: Pace, *, cluster: str = "c1") -> AgentConfig:
    """The agent, without probe, of a broker that has a queue of the shared topic. Each cluster has its own network."""
    addr = f"10.{zlib.crc32(cluster.encode()) % 256}.{number // 250}.{number % 250 + 1}:10911"
    return replace(
        agent_config(name_servers),
        broker=BrokerSection(cluster=cluster, name=name, addr=addr, host="host-1"),
        heartbeat=HeartbeatSection(interval_seconds=pace.interval, expiry_seconds=pace.expiry),
    )


@asynccontextmanager
async def agents(configs: Iterable[AgentConfig]) -> AsyncIterator[None]:
    """Run many agents in this process, each with its own connections."""
    async with contextlib.AsyncExitStack() as running:
        for config in configs:
            await running.enter_async_context(running_agent(config))
        yield


# --- a broker and its agent are killed ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Kill:
    """The reaction of one name server to a killed broker."""

    seconds: float
    """From the kill until the broker was in no route."""
    removals: int
    others: int
    """Brokers still known."""


async def killed_broker(
    servers: Sequence[RealNameServer], folder: Path, *, brokers: int, pace: Pace, settle: float, patience: float
) -> list[Kill]:
    """Kill one of ``brokers`` together with its agent, ``settle`` seconds after all are registered."""
    addrs = [server.addr for server in servers]
    others = [config_of(f"b{number}", number, addrs, pace) for number in range(1, brokers)]
    async with redis_process(folder / "redis") as redis, agents(others):
        config = config_of("b0", 0, addrs, pace)
        config = replace(
            config,
            broker=replace(config.broker, addr=redis.addr),
            probe=ProbeSection(kind="redis", interval_seconds=1.0, timeout_seconds=0.5),
        )
        async with agent_process(folder / "agent", config) as agent, contextlib.AsyncExitStack() as looks:
            views = [await looks.enter_async_context(look(addr)) for addr in addrs]
            for view in views:
                await view.all_up(brokers, patience=90)
            await asyncio.sleep(settle)
            redis.kill()
            await agent.kill()
            died_at = time.monotonic()
            leaving = (view.leaves_the_routes("b0", since=died_at, patience=patience) for view in views)
            seconds = await asyncio.gather(*leaving)
            for server in servers:
                await on_disk(server, "b0", ("EXPIRED", "STREAM_BROKEN"))
            left = [len(await view.brokers()) for view in views]
    return [Kill(round(s, 2), removals(server, "b0"), n) for s, server, n in zip(seconds, servers, left, strict=True)]


async def silent_broker(server: RealNameServer, *, pace: Pace, patience: float) -> Kill:
    """Send heartbeats in unary calls, fall silent, and measure from the last heartbeat."""
    who = wire.identity(name="unary", addr="10.0.9.9:10911")
    request = wire.registration(wire.topic("orders"), who=who, heartbeat=int(pace.interval), expiry=int(pace.expiry))
    async with grpc.aio.insecure_channel(server.addr) as channel, look(server.addr) as view:
        stub = RegistrationServiceStub(channel)
        generation = (await stub.RegisterBroker(request)).generation
        silent_since = 0.0
        for _ in range(2):
            await asyncio.sleep(pace.interval)
            silent_since = time.monotonic()
            await stub.Heartbeat(HeartbeatRequest(beat=wire.beat(generation, who=who)))
        seconds = await view.leaves_the_routes("unary", since=silent_since, patience=patience)
        await on_disk(server, "unary", ("EXPIRED", "SILENCE"))
        return Kill(round(seconds, 2), removals(server, "unary"), len(await view.brokers()))


# --- an agent is paused ----------------------------------------------------------------------------------------


async def stopped_agent(
    server: RealNameServer, folder: Path, name: str, pace: Pace, *, stop: float, beats: int = 2
) -> list[tuple[str, str]]:
    """Stop an agent right after a heartbeat for ``stop`` seconds, continue it, and return the events of its broker.

    This close to a heartbeat the agent has often not yet acknowledged gRPC's own ping, which is the hard case. It is
    alone in its cluster: one broker never turns the guard on.
    """
    config = config_of(name, 1, [server.addr], pace, cluster=name)
    async with agent_process(folder, config) as agent, look(server.addr) as view:
        await agent.beats(beats, patience=90 + beats * pace.interval)
        agent.pause()
        await asyncio.sleep(stop)
        agent.resume()
        async with asyncio.timeout(90 + pace.interval):
            while (await view.routed("orders")).get(name) != "UP":  # noqa: ASYNC110  # another process decides
                await asyncio.sleep(POLL_SECONDS)
        last = ("REGISTERED", "") if stop > pace.expiry else ("RECOVERED", "HEARTBEAT")
        if stop > 2.5 * pace.interval:
            return await on_disk(server, name, last)
        return of_broker(server, name)


# --- the name server is paused --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Pause:
    """A pause of the name server, as seen from outside and by itself."""

    removals: int
    known: int
    """Brokers afterwards."""
    seconds: float
    """How long it was stopped."""
    event_seconds: float
    metric_seconds: float


async def stopped_name_server(server: RealNameServer, *, brokers: int, pace: Pace, stop: float) -> Pause:
    """Stop the name server of live brokers, continue it, and watch for an expiry and a sweep."""
    async with agents(config_of(f"b{number}", number, [server.addr], pace) for number in range(brokers)):
        async with look(server.addr) as view:
            await view.all_up(brokers, patience=90)
        stopped_at = time.monotonic()
        server.pause()
        await asyncio.sleep(stop)
        server.resume()
        seconds = time.monotonic() - stopped_at
        await asyncio.sleep(pace.expiry + SWEEP_SECONDS)
        async with look(server.addr) as view:
            known = len(await view.brokers())
    paused = server.events("NAMESRV_PAUSED")
    return Pause(
        removals=len(server.events(*LEAVES)),
        known=known,
        seconds=seconds,
        event_seconds=sum(float(row["detail"]["seconds"]) for row in paused),
        metric_seconds=await server.metric("pointsman_namesrv_paused_seconds_total"),
    )


# --- a part of the fleet is cut off ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Cut:
    """A cluster of which a part was disconnected."""

    expired: int
    states: dict[str, int]
    """Brokers by state in the shared topic's route, at the end of the cut."""
    guard_events: list[str]
    metric: float
    """The guard's gauge of this cluster, at the end of the cut."""
    states_afterwards: dict[str, int]


async def cut_clusters(
    server: RealNameServer, *, brokers: int, cut: dict[str, int], pace: Pace, stop: float
) -> dict[str, Cut]:
    """Disconnect ``cut[cluster]`` of ``brokers`` in each cluster for ``stop`` seconds, all clusters together."""
    async with cut_proxy(server.addr) as proxy:
        configs = [
            config_of(f"{cluster}-{n}", n, [proxy.addr if n < lost else server.addr], pace, cluster=cluster)
            for cluster, lost in cut.items()
            for n in range(brokers)
        ]
        async with agents(configs), look(server.addr) as view:
            await view.all_up(len(configs), patience=120)
            await asyncio.sleep(1.5 * pace.expiry)  # the guard counts brokers alive when its window began
            proxy.cut()
            await asyncio.sleep(stop)
            during = {cluster: await _route_states(view, cluster) for cluster in cut}
            metric = {c: await server.metric("pointsman_namesrv_expiry_guard_active", cluster=c) for c in cut}
            proxy.repair()
            await view.all_up(len(configs), patience=120 + pace.expiry)
            await asyncio.sleep(3 * pace.interval)
            after = {cluster: await _route_states(view, cluster) for cluster in cut}
            # Before the agents end, which the guard sees as well.
            rows = server.events("EXPIRED", "GUARD_ON", "GUARD_OFF")
    return {
        c: Cut(
            expired=sum(row["event"] == "EXPIRED" and row["cluster"] == c for row in rows),
            states=during[c],
            guard_events=[row["event"] for row in rows if row["event"] != "EXPIRED" and row["cluster"] == c],
            metric=metric[c],
            states_afterwards=after[c],
        )
        for c in cut
    }


async def _route_states(view: Look, cluster: str) -> dict[str, int]:
    tally: dict[str, int] = {}
    for state in (await view.routed("orders", cluster)).values():
        tally[state] = tally.get(state, 0) + 1
    return tally


# --- the disk fails -------------------------------------------------------------------------------------------


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """A disk of that size at ``folder``; the test is skipped unless it runs as root."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a disk")
    folder.mkdir(parents=True)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)],
        capture_output=True,
        check=False,
        text=True,
    )
    if mounted.returncode:
        pytest.skip(f"no disk can be mounted here: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def make_read_only(folder: Path) -> None:
    """Remount a full disk, with retries: a process that writes to it keeps it busy for a moment."""
    for _ in range(200):
        remounted = subprocess.run(["mount", "-o", "remount,ro", str(folder)], capture_output=True, check=False)
        if not remounted.returncode:
            return
        time.sleep(0.05)
    raise AssertionError(f"{folder} is busy all the time")


def make_writable(folder: Path, filler: Path) -> None:
    """Remount the disk, and free space."""
    subprocess.run(["mount", "-o", "remount,rw", str(folder)], check=True)
    filler.unlink()


def fill(folder: Path) -> Path:
    """Write a file until the disk is full."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"x" * 65_536)
    with filler.open("ab", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"x")
    return filler


def refuse_to_write(pid: int, *, refuse: bool) -> None:
    """Let no file of a process grow, as a disk quota does; or let them again."""
    _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (0 if refuse else hard, hard))
