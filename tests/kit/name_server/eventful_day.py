"""A name server after an eventful day, for pages: what happened, when, and who did it, is the same in each run.

====== ================================================================================================
03:05  broker-c (owner search) refuses to serve, and is back after two minutes; five times in an hour
09:30  zoe sets the guard of cluster shop to HOLD, and max to AUTO at 13:10
11:15  max wipes the write permission of broker-b, and restores it at 11:40
13:52  broker-e was silent for half an hour, and expires: topic invoices has one broker left
14:00  a deploy: broker-a stops as planned, and is back with version 7.4.2
14:20  queue 3 of orders on broker-a is hot, and group billing falls behind
14:30  now: the other name server has never seen broker-f
====== ================================================================================================
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from unittest import mock

from google.protobuf.duration_pb2 import Duration

from pointsman.manual_clock import ManualClock
from pointsman.v1 import admin_service_pb2 as admin
from pointsman.v1 import broker_pb2
from pointsman.v1 import registration_service_pb2 as messages
from pointsman_namesrv.app import NameServerApp
from pointsman_namesrv.config import LivenessConfig, MonitoringConfig, PeersConfig
from pointsman_namesrv.web import peer_comparison
from tests.kit.name_server import wire
from tests.kit.name_server.in_process import running_name_server
from tests.kit.name_server.peer import Peer, peer_of
from tests.kit.waiting import eventually

BEGIN = datetime(2026, 11, 28, 2, 55, tzinfo=UTC)
HOUR = 3_600.0
LIVENESS = LivenessConfig(max_heartbeat_interval_seconds=HOUR, max_expiry_seconds=86_400.0)
MONITORING = MonitoringConfig(
    listen="127.0.0.1:0",
    report_url="https://reports.example/last.html",
    broker_url="https://grafana.example/d/brokers?var-broker={broker}",
    runbook_url="https://wiki.example/runbook",
)
PASSING = broker_pb2.BrokerHealth(status=broker_pb2.PROBE_STATUS_PASSING, ever_passed=True)
LOADING = broker_pb2.BrokerHealth(
    status=broker_pb2.PROBE_STATUS_FAILING,
    evidence=broker_pb2.PROBE_EVIDENCE_STRONG,
    detail="LOADING Redis is loading the dataset in memory",
)
OWNERS = {"a": "payments", "b": "payments", "c": "search", "d": "billing", "e": "billing", "f": "platform"}
TOPICS = {"orders": "abc", "invoices": "de", "searches": "cf", "audit": "f"}


@dataclass(frozen=True, slots=True)
class _Broker:
    name: str
    broker_id: int = 0

    @property
    def identity(self) -> broker_pb2.BrokerIdentity:
        addr = f"broker-{self.name}-{self.broker_id}.shop.example:10911"
        return wire.identity(f"broker-{self.name}", self.broker_id, addr=addr, cluster="shop")


MASTERS = tuple(map(_Broker, "abcdef"))
SLAVES = tuple(_Broker(name, 1) for name in "abc")


@dataclass(slots=True)
class EventfulDay:
    """Lets the day pass, hour by hour: a broker sends a heartbeat in each."""

    clock: ManualClock
    server: NameServerApp
    peer: Peer
    _generations: dict[_Broker, int] = field(default_factory=dict)
    _silent: set[_Broker] = field(default_factory=set)

    async def register(self, broker: _Broker, *, version: str = "7.2.6", peer: Peer | None = None) -> None:
        """Register a broker with its topics, zone and owner."""
        topics = [wire.topic(topic, queues=8) for topic, names in TOPICS.items() if broker.name in names]
        generation = await (peer or self.peer).register(
            *topics,
            who=broker.identity,
            heartbeat=600 if broker.name == "e" else int(HOUR),
            expiry=1_800 if broker.name == "e" else 86_400,
            zone=f"eu-{1 + broker.broker_id}",
            host=f"host-{broker.name}{broker.broker_id}",
            labels={"owner": OWNERS[broker.name]},
            broker_version=version,
            agent_version="0.1.0",
            incarnation=f"{broker.name}-{version}",
            health=PASSING,
        )
        if peer is None:
            self._generations[broker] = generation

    async def beat(
        self, broker: _Broker, health: broker_pb2.BrokerHealth = PASSING, *, live_queues: bytes = b""
    ) -> None:
        """Send a heartbeat."""
        beat = wire.beat(self._generations[broker], who=broker.identity)
        beat.health.CopyFrom(health)
        await self.peer.registration.Heartbeat(messages.HeartbeatRequest(beat=beat, live_queues=live_queues))

    async def until(self, time: str) -> None:
        """Advance to a time of the day, with heartbeats on the way."""
        hours, minutes = map(int, time.split(":"))
        at = BEGIN.replace(hour=hours, minute=minutes)
        while (left := (at - self.clock.utc_now()).total_seconds()) > 0:
            # Most of the day nothing waits for a server, so woken tasks need few turns.
            with mock.patch("pointsman.manual_clock.SETTLE_ROUNDS", 4):
                await self.clock.advance(min(600.0, left))
            for broker in self._generations.keys() - self._silent:
                await self.beat(broker)

    async def pass_by(self) -> None:
        """Let everything happen, up to 14:30."""
        for broker in (*MASTERS, *SLAVES):
            await self.register(broker)
        for minute in (5, 16, 27, 38, 49):
            await self.until(f"03:{minute:02}")
            await self.beat(MASTERS[2], LOADING)
            self._silent.add(MASTERS[2])
            await self.until(f"03:{minute + 2:02}")
            self._silent.discard(MASTERS[2])
            await self.beat(MASTERS[2])
        await self.until("09:30")
        hold = Duration(seconds=int(8 * HOUR))
        await self.peer.admin.SetGuard(
            admin.SetGuardRequest(cluster="shop", mode=admin.GUARD_MODE_HOLD, duration=hold, by="zoe")
        )
        for time, writable in (("11:15", False), ("11:40", True)):
            await self.until(time)
            await self.peer.admin.SetWritePerm(
                admin.SetWritePermRequest(cluster="shop", broker_name="broker-b", writable=writable, by="max")
            )
        await self.until("13:10")
        auto = admin.SetGuardRequest(cluster="shop", mode=admin.GUARD_MODE_AUTO, by="max")
        await self.peer.admin.SetGuard(auto)
        await self.until("13:22")
        self._silent.add(MASTERS[4])
        await self.until("14:00")
        await self._deploy()
        await self.until("14:30")
        await self.beat(MASTERS[0], live_queues=_measured())

    async def _deploy(self) -> None:
        master = MASTERS[0]
        await self.peer.registration.UnregisterBroker(
            wire.unregistration(master.identity, self._generations.pop(master))
        )
        await self.until("14:01")
        await self.register(master, version="7.4.2")


def _measured() -> bytes:
    rates = [12.0, 15.0, 11.0, 900.0, 13.0, 12.0, 14.0, 12.0]
    lags = [120, 90, 150, 48_000, 100, 80, 140, 110]
    put_rate = sum(rates)
    stats = messages.QueueStats(
        queue_count=8,
        topic_count=1,
        put_rate=put_rate,
        lag=sum(lags),
        top_put_rates=[
            messages.QueuePuts(topic="orders", queue_id=queue_id, put_rate=rate) for queue_id, rate in enumerate(rates)
        ],
        top_lags=[
            messages.QueueLag(group="billing", topic="orders", queue_id=queue_id, lag=lag, put_rate=rates[queue_id])
            for queue_id, lag in enumerate(lags)
        ],
        top_topics=[
            messages.TopicTotals(topic="orders", queue_count=8, put_rate=put_rate, highest_put_rate=max(rates))
        ],
        top_groups=[
            messages.GroupTotals(
                group="billing",
                topic="orders",
                queue_count=8,
                lag=sum(lags),
                highest_lag=max(lags),
                member_count=2,
                put_rate=put_rate,
                commit_rate=310.0,
                behind_queue_count=1,
                membership_changes=1,
                membership_changes_in_hour=6,
            )
        ],
    )
    return messages.LiveQueues(stats=stats, interval=Duration(seconds=30)).SerializeToString()


@asynccontextmanager
async def eventful_day(folder: Path) -> AsyncIterator[NameServerApp]:
    """Serve what is left of the day for the length of the block; its clock stands still at 14:30."""
    clock = ManualClock(utc=BEGIN)
    async with AsyncExitStack() as steps:
        steps.enter_context(mock.patch.object(peer_comparison, "WAIT_FOR_EACH_SECOND", 0.0))
        other = await steps.enter_async_context(
            running_name_server(clock=ManualClock(utc=BEGIN), node="ns2", liveness=LIVENESS)
        )
        peers = PeersConfig(name_servers=(other.addr,), poll_seconds=300.0, timeout_seconds=30.0)
        server = await steps.enter_async_context(
            running_name_server(
                clock=clock,
                node="ns1",
                history=folder / "history",
                liveness=LIVENESS,
                monitoring=MONITORING,
                peers=peers,
            )
        )
        day = EventfulDay(clock, server, await steps.enter_async_context(peer_of(server.addr)))
        there = await steps.enter_async_context(peer_of(other.addr))
        for broker in (*MASTERS[:5], *SLAVES):
            await day.register(broker, peer=there)
        await day.pass_by()
        found = server.parts.peers.results
        await eventually(lambda: found[0].in_a_row >= peer_comparison.PROBLEM_AFTER and found[0].brokers)
        await clock.advance(2.0)  # documents are built again
        yield server
