"""One try of a send: at one broker, in one queue. What it says about the broker goes to the fault table."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pointsman_client.clock import Clock
from pointsman_client.errors import (
    BrokerUnreachableError,
    ClientStateError,
    FailedTry,
    InvalidInputError,
    PointsmanError,
)
from pointsman_client.message import OutgoingMessage
from pointsman_client.message_queue import MessageQueue
from pointsman_client.metrics_hook import MetricsHook
from pointsman_client.producer.fault_table import LatencyFaultTolerance
from pointsman_client.producer.outcome import Outcome, OutcomeRules, SendMode
from pointsman_client.route import BrokerKey
from pointsman_client.transports.broker_call import answer_of
from pointsman_client.transports.transport import SendReceipt, Transport

logger = logging.getLogger(__name__)

MasterAddr = Callable[[BrokerKey], str | None]
"""The address of a replica group's master; None: no cached route has one."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """How a try ended: with a receipt, or with what went wrong."""

    queue: MessageQueue
    receipt: SendReceipt | None
    failed: FailedTry | None
    try_again: bool


class Attempts:
    """Makes the tries of one producer."""

    def __init__(
        self,
        transport: Transport,
        *,
        master_addr: MasterAddr,
        rules: OutcomeRules,
        faults: LatencyFaultTolerance | None,
        ask_for_route: Callable[[str], None],
        clock: Clock,
        metrics_hook: MetricsHook,
    ) -> None:
        self._transport = transport
        self._master_addr = master_addr
        self._rules = rules
        self._faults = faults
        self.ask_for_route = ask_for_route
        self._clock = clock
        self._metrics_hook = metrics_hook

    async def make(
        self, queue: MessageQueue, messages: Sequence[OutgoingMessage], *, mode: SendMode, timeout_seconds: float
    ) -> Attempt:
        """Send, and note what follows. A failure is returned; a route that may be newer is asked for beside.

        Raises :class:`InvalidInputError` when the transport cannot carry the message, and :class:`ClientStateError`.
        """
        addr = self._master_addr(queue.broker_key)
        began_at = self._clock.monotonic()
        try:
            if addr is None:
                raise BrokerUnreachableError(queue.broker_name, "no route has the address of its master")
            sending = self._transport.send(addr, queue, messages, timeout_seconds=timeout_seconds)
            receipt = await answer_of(addr, sending, timeout_seconds=timeout_seconds)
        except (InvalidInputError, ClientStateError):
            raise
        except PointsmanError as error:
            seconds = self._clock.monotonic() - began_at
            outcome = self._rules.of_error(error, mode, had_addr=addr is not None)
            self._note(queue, outcome, error.code, seconds, error)
            self.ask_for_route(queue.topic)
            failed = FailedTry(queue.cluster, queue.broker_name, addr or "", queue.queue_id, error, seconds)
            return Attempt(queue, None, failed, outcome.try_again)
        outcome = self._rules.of_status(receipt.status, mode)
        self._note(queue, outcome, receipt.status, self._clock.monotonic() - began_at)
        return Attempt(queue, receipt, None, outcome.try_again)

    def _note(
        self, queue: MessageQueue, outcome: Outcome, word: str, seconds: float, error: PointsmanError | None = None
    ) -> None:
        cluster, broker_name = broker = queue.broker_key
        self._metrics_hook.send_tried(queue=queue, outcome=word, seconds=seconds)
        if self._faults is None:
            return
        was_available = self._faults.is_available(broker, now=self._clock.monotonic())
        isolated_for = self._faults.update(
            broker,
            topic=queue.topic,
            latency_seconds=seconds,
            isolation=outcome.isolation,
            reachable=outcome.reachable,
            now=self._clock.monotonic(),
        )
        if isolated_for > 0:
            self._metrics_hook.isolated(cluster=cluster, broker_name=broker_name, seconds=isolated_for)
            if was_available:
                level, why = (logging.INFO, f"it took {seconds:.3g} s") if error is None else (logging.WARNING, error)
                logger.log(level, "%s/%s is left out for %.3g s: %s", cluster, broker_name, isolated_for, why)
