"""What is done for the fault table beside the sends: brokers that were not reached are probed, gone ones dropped."""

from __future__ import annotations

import asyncio
import logging

from pointsman_client.clock import Clock
from pointsman_client.errors import PointsmanError
from pointsman_client.message_queue import MessageQueue
from pointsman_client.producer.attempt import MasterAddr
from pointsman_client.producer.fault_table import LatencyFaultTolerance
from pointsman_client.producer.options import ProducerOptions
from pointsman_client.route import BrokerKey
from pointsman_client.transports.broker_call import answer_of
from pointsman_client.transports.transport import Transport

logger = logging.getLogger(__name__)

PROBES_AT_ONCE = 16


class FaultUpkeep:
    """One task with a round each ``detector_interval_seconds`` (RocketMQ ``LatencyFaultToleranceImpl.startDetector``).

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
