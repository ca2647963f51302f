"""A send with its attempts, under one deadline (RocketMQ ``DefaultMQProducerImpl.sendDefaultImpl``)."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Iterable, Sequence

from pointsman_client.aio import end_tasks, start_task
from pointsman_client.core.fault_strategy import LatencyFaultTolerance, PublishInfo, QueueSelector
from pointsman_client.core.message import OutgoingMessage
from pointsman_client.core.message_queue import STATIC_TOPIC, MessageQueue, why_not_writable
from pointsman_client.core.route import BrokerKey
from pointsman_client.core.send_outcome import Outcome, OutcomeRules, SendMode, SendResult
from pointsman_client.core.weighted_queues import new_publish_info
from pointsman_client.errors import (
    BrokerRefusedError,
    BrokerUnreachableError,
    ClientStateError,
    FailedTry,
    InvalidInputError,
    NoWritableQueueError,
    PointsmanError,
    QueueUnavailableError,
    SendFailedError,
    TopicNotFoundError,
)
from pointsman_client.ownership import Resources
from pointsman_client.ports.transport import (
    ChecksMessages,
    CreatesTopics,
    SendReceipt,
    SendsOneWay,
    broker_error,
    response_of,
)
from pointsman_client.producer.fault_recovery import FaultDetector, RouteRefresher, describe_isolations
from pointsman_client.producer.new_topics import NewTopics
from pointsman_client.producer.producer_options import ProducerOptions
from pointsman_client.producer.producer_routes import ProducerRoutes

logger = logging.getLogger(__name__)

MAX_TOPICS = 1_000
"""Topics whose position in the queue rotation is cached; others start at a random queue."""

UNCONFIRMED = "UNCONFIRMED"
"""Outcome passed to the metrics hook when a one-way message was written to a connection; brokers do not confirm it."""

NO_MASTER_ADDR = "the route has no address of its master"


Attempt = tuple[SendReceipt | FailedTry, bool]
"""Result of an attempt, and whether another one may follow. A plain tuple: there is one for each message."""


def _results(
    messages: Sequence[OutgoingMessage], queue: MessageQueue, receipt: SendReceipt, tries: int
) -> tuple[SendResult, ...]:
    status, offsets, half, recall_handle = receipt
    pairs = zip(messages, offsets, strict=True)
    # Like SendResult(...) in less time: there is one for each message.
    make, kind = tuple.__new__, SendResult
    return tuple(
        [make(kind, (each.message_id, queue, offset, status, tries, half, recall_handle)) for each, offset in pairs]
    )


class Sender:
    """Sends for one producer in attempts, each to one queue; records them in the fault table."""

    def __init__(self, resources: Resources, *, options: ProducerOptions, rng: random.Random) -> None:
        """Call it in the event loop; ``resources`` must be started."""
        self._client = resources.client
        self._transport = resources.transport
        self._ends_in_time: bool = getattr(resources.transport, "ends_in_time", False)
        self._options = options
        self._clock = resources.clock
        self._metrics_hook = resources.metrics_hook
        self._new_topics: NewTopics | None = None
        if isinstance(self._transport, CreatesTopics):
            self._new_topics = NewTopics(self._client, self._transport, clock=self._clock)
        self.routes = ProducerRoutes(self._client, self._new_topics, clock=self._clock)
        self._one_way = self._transport if isinstance(self._transport, SendsOneWay) else None
        self._checks = self._transport if isinstance(self._transport, ChecksMessages) else None
        self._rng = rng
        self._table = LatencyFaultTolerance(options.fault_rules)
        self._faults = self._table if options.send_latency_fault_enable else None
        self._selector = QueueSelector(self._faults)
        self._rules = OutcomeRules(
            retry_response_codes=frozenset(options.retry_response_codes),
            retry_another_broker_when_not_store_ok=options.retry_another_broker_when_not_store_ok,
            start_detector_enable=options.start_detector_enable,
        )
        self._most_tries = {
            SendMode.SYNC: 1 + options.retry_times_when_send_failed,
            SendMode.ASYNC: 1 + options.retry_times_when_send_async_failed,
            SendMode.ONEWAY: 1,
        }
        self._infos: dict[str, PublishInfo] = {}
        self._refresher = RouteRefresher(resources.client.refresh, clock=resources.clock)
        self._detector_tasks: list[asyncio.Task[None]] = []
        self._end_description = resources.client.attach_description(
            "isolations",
            lambda topic: describe_isolations(self._table, self._client, topic, now=self._clock.monotonic()),
        )

    def start(self) -> None:
        """Start the fault detector, unless fault tolerance is off."""
        if self._faults is not None:
            detector = FaultDetector(
                self._faults, self._transport, master_addr=self._master_addr, options=self._options, clock=self._clock
            )
            self._detector_tasks.append(start_task(detector.run(), name="pointsman-fault-detector"))

    async def close(self, *, timeout_seconds: float) -> None:
        """Stop background work within the timeout."""
        self._end_description()
        await asyncio.gather(
            end_tasks(self._detector_tasks, timeout_seconds=timeout_seconds),
            self._refresher.close(timeout_seconds=timeout_seconds),
        )

    async def send(
        self, messages: Sequence[OutgoingMessage], *, mode: SendMode, deadline: float
    ) -> tuple[SendResult, ...]:
        """Send to one of the topic's writable queues, all or none.

        Each attempt selects its own queue, also of an asynchronous send. RocketMQ reuses the number of the first queue
        there, which the next broker may not have.

        Raises :class:`SendFailedError`, :class:`NoWritableQueueError`, :class:`NoBrokerUpError`, and the errors of
        route lookups.
        """
        topic = messages[0].message.topic
        failed: list[FailedTry] = []
        results: tuple[SendResult, ...] = ()
        last_broker: BrokerKey | None = None
        most, most_tries, tries = self._options.send_msg_max_timeout_per_request_seconds, self._most_tries[mode], 0
        info = await self.publish_info(topic, deadline)
        while tries < most_tries and (left := deadline - (now := self._clock.monotonic())) > 0:
            tries += 1
            queue, skipped = self._selector.select(info, last_broker=last_broker, now=now)
            if skipped:
                self._count_skipped(skipped)
            seconds = min(left, most) if most is not None and tries < most_tries else left
            result, may_follow = await self._try(queue, messages, mode, seconds, now)
            if isinstance(result, SendReceipt):
                results = _results(messages, queue, result, tries)
            else:
                failed.append(result)
            if not may_follow:
                break
            last_broker = queue.broker_key
            queues = await self.routes.newer_queues(topic, deadline)
            if queues:
                info = self._info_of(topic, queues)
        if results:
            return results
        raise self._failure(topic, failed, deadline) from (failed[-1].error if failed else None)

    async def send_one_way(self, message: OutgoingMessage, *, deadline: float) -> SendResult:
        """Write to the connection of one of the topic's brokers; await no response, unless the transport needs one.

        Without a response the result has no status and no offset. Such a success says nothing about the broker, so
        only a failure is recorded in the fault table. Raises as :meth:`send`.
        """
        if self._one_way is None:
            return (await self.send([message], mode=SendMode.ONEWAY, deadline=deadline))[0]
        info = await self.publish_info(message.message.topic, deadline)
        began_at = self._clock.monotonic()
        queue, skipped = self._selector.select(info, last_broker=None, now=began_at)
        self._count_skipped(skipped)
        left = max(0.0, deadline - began_at)
        addr = self._master_addr(queue.broker_key)
        try:
            if addr is None:
                raise BrokerUnreachableError(queue.broker_name, NO_MASTER_ADDR)
            writing = self._one_way.send_one_way(addr, queue, [message], timeout_seconds=left)
            await response_of(addr, writing, timeout_seconds=left, ends_in_time=self._ends_in_time)
        except (InvalidInputError, ClientStateError):
            raise
        except PointsmanError as error:
            failed, _ = self._failed_attempt(queue, addr, error, SendMode.ONEWAY, began_at)
            raise self._failure(queue.topic, [failed], deadline) from error
        self._metrics_hook.send_tried(queue=queue, outcome=UNCONFIRMED, seconds=self._clock.monotonic() - began_at)
        return SendResult(message.message_id, queue, queue_offset=None, status=None, tries=1)

    async def send_to(
        self, queue: MessageQueue, messages: Sequence[OutgoingMessage], *, deadline: float
    ) -> tuple[SendResult, ...]:
        """Send to this queue, in one attempt as in RocketMQ.

        Raises :class:`QueueUnavailableError` if nothing was written because the queue cannot be written now,
        :class:`NoWritableQueueError` for a static topic, and :class:`SendFailedError` if the broker rejected the
        messages, or it is unknown whether it stored them.
        """
        try:
            route = await self.routes.topic_route(queue.topic, deadline)
            if route.is_static:
                raise NoWritableQueueError(queue.topic, STATIC_TOPIC)
            why = why_not_writable(route, queue)
        except TopicNotFoundError:
            if not self.routes.is_new(queue):
                raise
            why = None
        if why is not None:
            self._refresher.request(queue.topic)
            raise QueueUnavailableError(str(queue), why)
        now = self._clock.monotonic()
        if now >= deadline:
            raise self._failure(queue.topic, [], deadline)
        result, may_follow = await self._try(queue, messages, SendMode.SYNC, deadline - now, now)
        if isinstance(result, SendReceipt):
            return _results(messages, queue, result, 1)
        raise self._explicit_failure(queue, result, may_follow, deadline)

    def check(self, queue: MessageQueue, message: OutgoingMessage) -> None:
        """Raise :class:`InvalidInputError` for a message that no broker of the transport accepts."""
        if self._checks is not None:
            self._checks.check(queue, message)

    def _count_skipped(self, brokers: Iterable[BrokerKey]) -> None:
        for cluster, broker_name in brokers:
            self._metrics_hook.isolation_hit(cluster=cluster, broker_name=broker_name)

    async def _try(
        self,
        queue: MessageQueue,
        messages: Sequence[OutgoingMessage],
        mode: SendMode,
        timeout_seconds: float,
        began_at: float,
    ) -> Attempt:
        """Send once and record the outcome. A failure is returned, and a route refresh requested in the background.

        Raises :class:`InvalidInputError` if the transport cannot carry the message, and :class:`ClientStateError`.
        """
        addr = self._master_addr(queue.broker_key)
        if addr is None:
            missing = BrokerUnreachableError(queue.broker_name, NO_MASTER_ADDR)
            return self._failed_attempt(queue, addr, missing, mode, began_at)
        try:
            sending = self._transport.send(addr, queue, messages, timeout_seconds=timeout_seconds)
            if not self._ends_in_time:  # else there is a coroutine less for each message
                sending = response_of(addr, sending, timeout_seconds=timeout_seconds)
            receipt = await sending
        except (InvalidInputError, ClientStateError):
            raise
        except Exception as error:  # noqa: BLE001  # of foreign code, too: see broker_error
            failure = broker_error(addr, error, timeout_seconds=timeout_seconds)
            return self._failed_attempt(queue, addr, failure, mode, began_at)
        ended_at = self._clock.monotonic()
        outcome = self._rules.of_status(receipt.status, mode)
        self._note(queue, outcome, receipt.status, ended_at - began_at, now=ended_at)
        return receipt, outcome.try_again

    def _failed_attempt(
        self, queue: MessageQueue, addr: str | None, error: PointsmanError, mode: SendMode, began_at: float
    ) -> tuple[FailedTry, bool]:
        ended_at = self._clock.monotonic()
        seconds = ended_at - began_at
        outcome = self._rules.of_error(error, mode, had_addr=addr is not None)
        if self._new_topics is not None and self._new_topics.is_not_created(queue.topic, error):
            # The broker is not isolated: it accepts messages of other topics.
            outcome = Outcome(isolation=False, reachable=True, try_again=outcome.try_again)
        self._note(queue, outcome, error.code, seconds, error, now=ended_at)
        self._refresher.request(queue.topic)
        failed = FailedTry(queue.cluster, queue.broker_name, addr or "", queue.queue_id, error, seconds)
        return failed, outcome.try_again

    def _note(
        self,
        queue: MessageQueue,
        outcome: Outcome,
        label: str,
        seconds: float,
        error: PointsmanError | None = None,
        *,
        now: float,
    ) -> None:
        self._metrics_hook.send_tried(queue=queue, outcome=label, seconds=seconds)
        if self._faults is None:
            return
        isolation = self._faults.update(
            queue.broker_key,
            topic=queue.topic,
            latency_seconds=seconds,
            isolation=outcome.isolation,
            reachable=outcome.reachable,
            now=now,
        )
        if isolation is None:
            return
        cluster, broker_name = queue.broker_key
        self._metrics_hook.isolated(cluster=cluster, broker_name=broker_name, seconds=isolation.seconds)
        if isolation.was_available:
            level, why = (logging.INFO, f"a send took {seconds:.3g} s") if error is None else (logging.WARNING, error)
            logger.log(level, "broker %s/%s isolated for %.3g s: %s", cluster, broker_name, isolation.seconds, why)

    def _explicit_failure(
        self, queue: MessageQueue, failed: FailedTry, may_follow: bool, deadline: float
    ) -> PointsmanError:
        error: PointsmanError
        cause = failed.error
        refused_for_now = isinstance(cause, BrokerRefusedError) and may_follow
        if isinstance(cause, BrokerUnreachableError) or refused_for_now:
            error = QueueUnavailableError(str(queue), str(cause))
        else:
            error = self._failure(queue.topic, [failed], deadline)
        error.__cause__ = cause
        return error

    def _failure(self, topic: str, failed: Sequence[FailedTry], deadline: float) -> SendFailedError:
        return SendFailedError(topic, failed, timed_out=self._clock.monotonic() >= deadline)

    async def publish_info(self, topic: str, deadline: float) -> PublishInfo:
        """Return the topic's writable queues, after a refresh if there are none. Raises as :meth:`send` does."""
        cached = self._client.cached_route(topic)
        queues = () if cached is None else cached.publish_queues
        if not queues:
            queues = await self.routes.queues(topic, deadline, is_cached=cached is not None)
        return self._info_of(topic, queues)

    def _info_of(self, topic: str, queues: tuple[MessageQueue, ...]) -> PublishInfo:
        info = self._infos.get(topic)
        if info is not None and info.queues is queues:
            return info
        # Another tuple: another route, maybe with the same queues and other weights.
        cached = self._client.cached_route(topic)
        weights = {} if cached is None else cached.queue_weights
        if info is None or info.queues != queues or info.weights != weights:
            if info is None and len(self._infos) >= MAX_TOPICS:
                del self._infos[next(iter(self._infos))]
            info = self._infos[topic] = new_publish_info(queues, weights, rng=self._rng)
        info.queues = queues
        return info

    def _master_addr(self, broker: BrokerKey) -> str | None:
        group = self._client.broker(*broker)
        master = None if group is None else group.master
        return None if master is None else master.addr or None
