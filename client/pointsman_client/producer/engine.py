"""What a started producer is made of, wired; starts and ends its background work."""

from __future__ import annotations

import asyncio
import random

from pointsman_client.background import end_tasks, start_task
from pointsman_client.ownership import OwnedParts
from pointsman_client.producer.attempt import Attempts
from pointsman_client.producer.explicit_send import ExplicitSends
from pointsman_client.producer.fault_table import FaultRules, LatencyFaultTolerance
from pointsman_client.producer.options import ProducerOptions
from pointsman_client.producer.outbox import Outbox
from pointsman_client.producer.outcome import OutcomeRules
from pointsman_client.producer.parking import Parking
from pointsman_client.producer.queue_selector import QueueSelector
from pointsman_client.producer.route_refresher import RouteRefresher
from pointsman_client.producer.sender import Sender
from pointsman_client.producer.upkeep import FaultUpkeep
from pointsman_client.route import BrokerKey


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
