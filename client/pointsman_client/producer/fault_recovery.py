"""What follows failed sends: route refresh and probes in the background, and the table of faults, described."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from pointsman.clock import Clock
from pointsman_client.aio import end_tasks
from pointsman_client.client import NameServerClient
from pointsman_client.core.fault_strategy import LatencyFaultTolerance
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.route import BrokerKey
from pointsman_client.errors import PointsmanError
from pointsman_client.ports.transport import Transport, response_of
from pointsman_client.producer.producer_options import ProducerOptions

logger = logging.getLogger(__name__)

MasterAddr = Callable[[BrokerKey], str | None]
"""Returns the address of a replica group's master; None: no cached route has one."""

MIN_LOOKUP_INTERVAL_SECONDS = 1.0
"""Minimum interval of lookups of a topic: while a broker is down every send may fail and request one."""
MAX_PARALLEL_LOOKUPS = 16
"""Topics looked up in parallel; further ones are refreshed by the watch and the poll."""
MAX_PARALLEL_PROBES = 16


class RouteRefresher:
    """Looks up the routes of topics whose sends fail, in the background.

    One lookup per topic at a time: immediately after the first failure, then at most every
    :data:`MIN_LOOKUP_INTERVAL_SECONDS`.
    """

    def __init__(self, refresh: Callable[[str], Awaitable[object]], *, clock: Clock) -> None:
        self._refresh = refresh
        self._clock = clock
        self._requested_at: dict[str, float] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.skipped = 0
        """Number of requests beyond :data:`MAX_PARALLEL_LOOKUPS`."""

    def request(self, topic: str) -> None:
        """Request a lookup of the route; does not wait for it."""
        if topic in self._tasks:
            return
        if len(self._tasks) >= MAX_PARALLEL_LOOKUPS:
            self.skipped += 1
            return
        task = asyncio.create_task(self._look_up(topic), name=f"pointsman-refresh-{topic}")
        self._tasks[topic] = task
        task.add_done_callback(lambda done: self._end(topic, done))

    async def close(self, *, timeout_seconds: float) -> None:
        """Cancel lookups in progress."""
        await end_tasks(list(self._tasks.values()), timeout_seconds=timeout_seconds)

    async def _look_up(self, topic: str) -> None:
        now = self._clock.monotonic()
        self._requested_at = {
            each: at for each, at in self._requested_at.items() if now - at < MIN_LOOKUP_INTERVAL_SECONDS
        }
        if (
            wait := self._requested_at.get(topic, now - MIN_LOOKUP_INTERVAL_SECONDS) + MIN_LOOKUP_INTERVAL_SECONDS - now
        ) > 0:
            await self._clock.sleep(wait)
        self._requested_at[topic] = self._clock.monotonic()
        try:
            await self._refresh(topic)
        except PointsmanError as error:
            logger.debug("route refresh of topic %s after a failed send failed: %s", topic, error)

    def _end(self, topic: str, task: asyncio.Task[None]) -> None:
        del self._tasks[topic]
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("unexpected error in the route refresh of topic %s after a failed send", topic, exc_info=error)


class FaultDetector:
    """Probes unreachable brokers, and drops brokers without a route from the fault table.

    Runs every ``detector_interval_seconds`` (RocketMQ ``LatencyFaultToleranceImpl.startDetector``).

    A probe queries the end of queue 0 of a topic that was sent to the broker. It can only mark a broker as reachable;
    RocketMQ also probes reachable ones, which has no effect.
    """

    def __init__(
        self,
        faults: LatencyFaultTolerance,
        transport: Transport,
        *,
        master_addr: MasterAddr,
        options: ProducerOptions,
        clock: Clock,
    ) -> None:
        self._faults = faults
        self._transport = transport
        self._master_addr = master_addr
        self._options = options
        self._clock = clock

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await self._clock.sleep(self._options.detector_interval_seconds)
            await self.work_once()

    async def work_once(self) -> None:
        """Run one round."""
        self._faults.retain(lambda broker: self._master_addr(broker) is not None)
        if not self._options.start_detector_enable:
            return
        now = self._clock.monotonic()
        due = self._faults.due_probes(now=now, interval_seconds=self._options.detect_interval_seconds)
        for begin in range(0, len(due), MAX_PARALLEL_PROBES):
            async with asyncio.TaskGroup() as group:
                for broker, topic in due[begin : begin + MAX_PARALLEL_PROBES]:
                    group.create_task(self._probe(broker, topic), name="pointsman-probe")

    async def _probe(self, broker: BrokerKey, topic: str) -> None:
        addr = self._master_addr(broker)
        if addr is None:
            return
        seconds = self._options.detect_timeout_seconds
        probe = self._transport.max_offset(addr, MessageQueue(topic, *broker, 0), timeout_seconds=seconds)
        try:
            await response_of(addr, probe, timeout_seconds=seconds)
        except PointsmanError as error:
            logger.debug("broker %s is still unreachable: %s", addr, error)
        else:
            self._faults.mark_reachable(broker)


def describe_isolations(
    faults: LatencyFaultTolerance, client: NameServerClient, topic: str, *, now: float
) -> list[dict[str, object]]:
    """Return the fault table's entries of the brokers of a topic, as JSON values."""
    routed = {group.key for group in client.brokers_of([topic])}
    return [
        {
            "cluster": each.cluster,
            "brokerName": each.broker_name,
            "available": each.is_available,
            "reachable": each.is_reachable,
            "secondsLeft": round(each.seconds_left, 3),
            "latencySeconds": round(each.latency_seconds, 6),
        }
        for each in faults.describe(now=now)
        if (each.cluster, each.broker_name) in routed
    ]
