"""Sends messages back whose listener call failed: to the group's retry topic, finally to its dead letters."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace

from pointsman.clock import Clock
from pointsman.group_topics import dlq_topic
from pointsman_client.consumer.queue_reader import SLACK_SECONDS
from pointsman_client.core.message import ReceivedMessage
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.retry_rules import Destination, SendBack, send_back
from pointsman_client.core.route import BrokerData
from pointsman_client.errors import BrokerUnreachableError, PointsmanError
from pointsman_client.metrics_hook import MetricsHook
from pointsman_client.ports.transport import SendReceipt, SendsBack, Transport, response_of

logger = logging.getLogger(__name__)


class FailedMessages:
    """Sends for one group; may be called from many tasks concurrently."""

    def __init__(
        self,
        transport: Transport,
        *,
        group: str,
        brokers: Callable[[], Iterable[BrokerData]],
        max_reconsume_times: int,
        timeout_seconds: float,
        clock: Clock,
        hook: MetricsHook,
        on_dead_letter: Callable[[ReceivedMessage, str], object] | None = None,
    ) -> None:
        """``on_dead_letter(message, error)`` is called for each message that was moved to the dead letters."""
        self._transport = transport
        self._group = group
        self._brokers = brokers
        self._max_reconsume_times = max_reconsume_times
        self._timeout_seconds = timeout_seconds
        self._clock = clock
        self._hook = hook
        self._on_dead_letter = on_dead_letter
        self.sent = Counter[Destination]()
        """Messages that were sent."""

    async def send(self, failed: ReceivedMessage, error: str, *, is_rejected: bool = False) -> bool:
        """Send one message to the broker that it came from, else to another; return False if none accepted it.

        ``error`` describes the listener's failure; it is logged when the message becomes a dead letter.
        ``is_rejected``: it does so now, without further retries.
        """
        at, times = self._clock.utc_now(), self._max_reconsume_times
        back = send_back(self._group, failed, max_reconsume_times=times, at=at, error=error, is_rejected=is_rejected)
        if isinstance(self._transport, SendsBack):
            if await self._send_back(self._transport, failed, back.destination, error):
                return True
            # Its broker is down, or has removed it. RocketMQ's client sends it as a new message then, too. Its retry
            # topics have one queue.
            back = replace(back, queue_id=0)
        own = failed.queue.broker_key
        brokers = sorted(self._brokers(), key=lambda each: (each.key != own, each.broker_name))
        for broker in brokers:
            if broker.master is None:
                continue
            queue = back.queue_of(broker.cluster, broker.broker_name)
            receipt = await self._send_to(queue, broker.master.addr, back)
            if receipt is not None:
                self._note_sent(failed, back.destination)
                if back.destination is Destination.DLQ:
                    self._note_dead_letter(failed, error, f"offset {receipt.queue_offsets[0]} of {queue}")
                return True
        logger.warning(
            "no broker accepted the failed message %s of %s of group %s; it is retried in this process",
            failed.message_id,
            failed.queue,
            self._group,
        )
        return False

    async def _send_back(
        self, transport: SendsBack, failed: ReceivedMessage, destination: Destination, error: str
    ) -> bool:
        """Have the broker of a message move it; return False if it did not."""
        master = next((each.master for each in self._brokers() if each.key == failed.queue.broker_key), None)
        try:
            if master is None:
                queue = failed.queue
                raise BrokerUnreachableError(f"{queue.cluster}/{queue.broker_name}", "no route has its master")
            sending = transport.send_back(
                master.addr,
                failed,
                group=self._group,
                max_reconsume_times=self._max_reconsume_times,
                delay_level=-1 if destination is Destination.DLQ else 0,
                timeout_seconds=self._timeout_seconds,
            )
            await response_of(master.addr, sending, timeout_seconds=self._timeout_seconds + SLACK_SECONDS)
        except PointsmanError as failure:
            logger.warning(
                "message %s was not sent back for group %s; it is sent as a new message: %s",
                failed.message_id,
                self._group,
                failure,
            )
            return False
        self._note_sent(failed, destination)
        if destination is Destination.DLQ:
            self._note_dead_letter(failed, error, f"topic {dlq_topic(self._group)}")
        return True

    def _note_sent(self, failed: ReceivedMessage, destination: Destination) -> None:
        self.sent[destination] += 1
        self._hook.sent_back(group=self._group, topic=failed.topic, destination=destination.value)

    def _note_dead_letter(self, failed: ReceivedMessage, error: str, place: str) -> None:
        logger.warning(
            "message %s of %s was moved to the dead letters of group %s after %d attempts, as %s; last error: %s",
            failed.message_id,
            failed.origin or failed.queue,
            self._group,
            failed.reconsume_times + 1,
            place,
            error,
        )
        if self._on_dead_letter is not None:
            try:
                self._on_dead_letter(failed, error)
            except Exception:  # of the application
                logger.exception("on_dead_letter failed for message %s", failed.message_id)

    async def _send_to(self, queue: MessageQueue, addr: str, back: SendBack) -> SendReceipt | None:
        try:
            sending = self._transport.send(addr, queue, [back.message], timeout_seconds=self._timeout_seconds)
            return await response_of(addr, sending, timeout_seconds=self._timeout_seconds + SLACK_SECONDS)
        except PointsmanError as error:
            logger.info("%s did not accept a failed message: %s", queue, error)
            return None
