"""What a started producer is made of, wired; its background work: newer routes after failed sends, the fault table."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable

from pointsman_client.aio import end_tasks, start_task
from pointsman_client.clock import Clock
from pointsman_client.core.fault_strategy import FaultRules, LatencyFaultTolerance, QueueSelector
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.route import BrokerKey
from pointsman_client.core.send_outcome import OutcomeRules
from pointsman_client.errors import PointsmanError
from pointsman_client.ownership import OwnedParts
from pointsman_client.producer.explicit_send import ExplicitSends
from pointsman_client.producer.options import ProducerOptions
from pointsman_client.producer.outbox import Outbox
from pointsman_client.producer.parking import Parking
from pointsman_client.producer.sender import Attempts, MasterAddr, Sender
from pointsman_client.transports.broker_call import answer_of
from pointsman_client.transports.transport import Transport

logger = logging.getLogger(__name__)

LEAST_GAP_SECONDS = 1.0
"""Between two lookups of a topic: while a broker is down every send may fail; name servers are not to feel it."""
LOOKUPS_AT_ONCE = 16
"""Topics that are looked up at the same time; one more is left to the watch and the poll."""
PROBES_AT_ONCE = 16


class ProducerEngine:
    """Made inside the event loop, on parts that are started."""

    def __init__(
        self, parts: OwnedParts, *, options: ProducerOptions, fault_rules: FaultRules, rng: random.Random
    ) -> None:
        self._parts = parts
        self._options = options
        self.faults = LatencyFaultTolerance(fault_rules)
        faults_in_use = self.faults if options.send_latency_fault_enable else None
        self._refresher = RouteRefresher(parts.client.refresh, clock=parts.clock)
        attempts = Attempts(
            parts.transport,
            master_addr=self._master_addr,
            rules=OutcomeRules(
                retry_response_codes=options.retry_response_codes,
                retry_another_broker_when_not_store_ok=options.retry_another_broker_when_not_store_ok,
                start_detector_enable=options.start_detector_enable,
            ),
            faults=faults_in_use,
            ask_for_route=self._refresher.ask_for,
            clock=parts.clock,
            metrics_hook=parts.metrics_hook,
        )
        self.sender = Sender(
            parts.client,
            attempts,
            QueueSelector(faults_in_use),
            options=options,
            clock=parts.clock,
            metrics_hook=parts.metrics_hook,
            rng=rng,
        )
        self.explicit = ExplicitSends(parts.client, self.sender, make_parking=self._parking, clock=parts.clock)
        self._upkeep = FaultUpkeep(
            self.faults, parts.transport, master_addr=self._master_addr, options=options, clock=parts.clock
        )
        self._upkeep_tasks: list[asyncio.Task[None]] = []
        self._endings = [
            parts.client.attach_description("isolations", self._describe_isolations),
            parts.client.on_route_change(lambda _: self.explicit.wake()),
        ]

    def start(self) -> None:
        """Begin the background work."""
        if self._options.send_latency_fault_enable:
            self._upkeep_tasks.append(start_task(self._upkeep.run(), name="pointsman-fault-upkeep"))

    async def close(self, *, timeout_seconds: float) -> None:
        """End it within the time."""
        for end in self._endings:
            end()
        await asyncio.gather(
            end_tasks(self._upkeep_tasks, timeout_seconds=timeout_seconds),
            self._refresher.close(timeout_seconds=timeout_seconds),
            self.explicit.close(timeout_seconds=timeout_seconds),
        )

    def _master_addr(self, broker: BrokerKey) -> str | None:
        group = self._parts.client.broker(*broker)
        return None if group is None or group.master is None else group.master.addr or None

    def _parking(self, outbox: Outbox) -> Parking:
        return Parking(
            outbox,
            clock=self._parts.clock,
            send=lambda queue, messages: self.sender.send_to(
                queue, messages, deadline=self._parts.clock.monotonic() + self._options.send_msg_timeout_seconds
            ),
            max_batch_size=self._options.max_message_size,
            metrics_hook=self._parts.metrics_hook,
        )

    def _describe_isolations(self, topic: str) -> object:
        routed = {group.key for group in self._parts.client.brokers_of([topic])}
        isolations = self.faults.describe(now=self._parts.clock.monotonic())
        return [
            {
                "cluster": each.cluster,
                "brokerName": each.broker_name,
                "available": each.is_available,
                "reachable": each.is_reachable,
                "secondsLeft": round(each.seconds_left, 3),
                "latencySeconds": round(each.latency_seconds, 6),
            }
            for each in isolations
            if (each.cluster, each.broker_name) in routed
        ]


class RouteRefresher:
    """Looks up the routes of topics whose sends fail, beside the sends: none of them waits for it.

    One lookup of a topic at a time. The first failure asks at once; one soon after that, when the gap is over.
    """

    def __init__(self, refresh: Callable[[str], Awaitable[object]], *, clock: Clock) -> None:
        self._refresh = refresh
        self._clock = clock
        self._asked_at: dict[str, float] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.left_out = 0
        """Requests beyond what may run at the same time."""

    def ask_for(self, topic: str) -> None:
        """Have the route looked up; returns at once."""
        if topic in self._tasks:
            return
        if len(self._tasks) >= LOOKUPS_AT_ONCE:
            self.left_out += 1
            return
        task = asyncio.create_task(self._look_up(topic), name=f"pointsman-refresh-{topic}")
        self._tasks[topic] = task
        task.add_done_callback(lambda done: self._end(topic, done))

    async def close(self, *, timeout_seconds: float) -> None:
        """End what is under way."""
        await end_tasks(list(self._tasks.values()), timeout_seconds=timeout_seconds)

    async def _look_up(self, topic: str) -> None:
        now = self._clock.monotonic()
        self._asked_at = {each: at for each, at in self._asked_at.items() if now - at < LEAST_GAP_SECONDS}
        if (wait := self._asked_at.get(topic, now - LEAST_GAP_SECONDS) + LEAST_GAP_SECONDS - now) > 0:
            await self._clock.sleep(wait)
        self._asked_at[topic] = self._clock.monotonic()
        try:
            await self._refresh(topic)
        except PointsmanError as error:
            logger.debug("no newer route of %s: %s", topic, error)

    def _end(self, topic: str, task: asyncio.Task[None]) -> None:
        del self._tasks[topic]
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("looking up %s after a failed send failed", topic, exc_info=error)


class FaultUpkeep:
    """Keeps the fault table beside the sends: brokers that were not reached are probed, gone ones dropped.

    One task with a round each ``detector_interval_seconds`` (RocketMQ ``LatencyFaultToleranceImpl.startDetector``).

    A probe asks for the end of queue 0 of a topic that was sent there. It can only make a broker reachable; RocketMQ
    probes the reachable ones as well, which changes nothing.
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
        """Work until cancelled."""
        while True:
            await self._clock.sleep(self._options.detector_interval_seconds)
            await self.work_once()

    async def work_once(self) -> None:
        """One round."""
        self._faults.retain(lambda broker: self._master_addr(broker) is not None)
        if not self._options.start_detector_enable:
            return
        now = self._clock.monotonic()
        due = self._faults.due_probes(now=now, interval_seconds=self._options.detect_interval_seconds)
        for begin in range(0, len(due), PROBES_AT_ONCE):
            async with asyncio.TaskGroup() as group:
                for broker, topic in due[begin : begin + PROBES_AT_ONCE]:
                    group.create_task(self._probe(broker, topic), name="pointsman-probe")

    async def _probe(self, broker: BrokerKey, topic: str) -> None:
        addr = self._master_addr(broker)
        if addr is None:
            return
        seconds = self._options.detect_timeout_seconds
        asking = self._transport.max_offset(addr, MessageQueue(topic, *broker, 0), timeout_seconds=seconds)
        try:
            await answer_of(addr, asking, timeout_seconds=seconds)
        except PointsmanError as error:
            logger.debug("%s cannot be reached yet: %s", addr, error)
        else:
            self._faults.mark_reachable(broker)
