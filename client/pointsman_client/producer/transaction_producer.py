"""The producer of transactions: its messages are seen by consumers only when local work has succeeded."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from typing import Self

from pointsman_client.client import parts_of
from pointsman_client.client_ids import check_client_id, local_address, unique_instance
from pointsman_client.core.checks import check_name, check_number, check_seconds
from pointsman_client.core.message import Message
from pointsman_client.core.namespace import with_namespace
from pointsman_client.core.option_fields import takes_options, values_for
from pointsman_client.core.send_outcome import SendMode, SendResult, SendStatus
from pointsman_client.core.transactions import HalfMessage, TransactionState, half_properties
from pointsman_client.errors import (
    BrokerRefusedError,
    FailedTry,
    InvalidMessageError,
    InvalidOptionError,
    PointsmanError,
    ResponseCode,
    SendFailedError,
)
from pointsman_client.ports.producer_group import HasTransactions, ProducerGroup, ProducerGroupRequest
from pointsman_client.producer.producer import Producer
from pointsman_client.producer.producer_options import ProducerOptions
from pointsman_client.producer.transaction import Transaction
from pointsman_client.producer.transaction_checks import CheckTransaction, TransactionChecks
from pointsman_client.tracing_hook import TracesTransactions

UNCONFIRMED = "UNCONFIRMED"
"""State passed to the metrics hook when the broker did not confirm an end; it asks a producer of the group then."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class TransactionProducerOptions(ProducerOptions):
    """Options of :class:`TransactionProducer`: those of :class:`Producer`, and these. In brackets: RocketMQ's names, of
    ``TransactionMQProducer``."""

    producer_group: str
    """Name of all instances of the application, any of which a broker may ask how a transaction ended."""
    topics: Collection[str]
    """Topics of the transactions. Their brokers ask this instance from its start, also about those of an instance that
    ended."""
    check: CheckTransaction
    """Called with a message; returns how its transaction ended: looks it up where the local work leaves its mark.
    ``async def``, or a plain function, which runs in a thread (``TransactionListener.checkLocalTransaction``)."""
    check_concurrency: int = 4
    """Maximum number of checks that run at a time (``checkThreadPoolMaxSize``)."""
    check_timeout_seconds: float = 10.0
    """Timeout of one check; after it the state is UNKNOWN, and the broker asks again."""
    client_id: str = ""
    """Id of this instance in its group, as ``address@instance``; empty: address, process and a random number."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_name("producer_group", self.producer_group)
        topics: object = self.topics
        if isinstance(topics, str) or not isinstance(topics, Collection) or not topics:
            raise InvalidOptionError("topics", topics, "must be a list with at least one topic")
        for topic in self.topics:
            check_name("topic", topic)
        # Everything inside has the full names.
        object.__setattr__(self, "producer_group", with_namespace(self.namespace, self.producer_group))
        object.__setattr__(self, "topics", tuple(with_namespace(self.namespace, topic) for topic in self.topics))
        if not callable(self.check):
            raise InvalidOptionError("check", self.check, "must be a function of a message")
        check_number("check_concurrency", self.check_concurrency)
        check_seconds("check_timeout_seconds", self.check_timeout_seconds)
        if self.client_id:
            check_client_id(self.client_id)


class TransactionProducer(Producer):
    """Sends messages that consumers get only if local work, such as a change of a database, has succeeded.

    ::

        async with TransactionProducer("rocketmq://10.0.0.1:9876", producer_group="orders", topics=["orders"],
                                       check=is_paid) as producer:
            async with producer.transaction(Message("orders", b"4711 paid")):
                await database.pay("4711")

    It has the methods of :class:`Producer`, too. Needs RocketMQ brokers, and for tests brokers in memory: Redis cannot
    hold a message back.
    """

    @takes_options(TransactionProducerOptions)
    def __init__(self, options: TransactionProducerOptions) -> None:
        """Check and store the options: see
        :class:`~pointsman_client.producer.transaction_producer.TransactionProducerOptions`.

        Raises as the constructor of :class:`Producer`.
        """
        super().__init__(**values_for(ProducerOptions, options))
        self._group_options = options
        self._topics = frozenset(options.topics)
        self._checks: TransactionChecks | None = None
        self._group: ProducerGroup | None = None

    async def start(self) -> Self:
        """Start as :meth:`Producer.start` does, and register in the group without waiting for a broker.

        Raises :class:`InvalidOptionError` for a transport without transactions.
        """
        await super().start()
        if self._group is None:
            try:
                await self._join()
            finally:
                if self._group is None:
                    await self.close()
        return self

    def transaction(self, message: Message, *, timeout_seconds: float | None = None) -> Transaction:
        """Return the transaction of a message: a block, whose begin sends it and whose end commits it.

        ``timeout_seconds``: of sending, with all attempts, and of the end. See :class:`Transaction`.
        """
        return Transaction(
            begin=lambda: self._begin_transaction(message, timeout_seconds),
            end=lambda half, state: self._end_transaction(half, state, message, timeout_seconds),
        )

    async def _join(self) -> None:
        options, transport, client = self._group_options, self._resources.transport, self._resources.client
        if not isinstance(transport, HasTransactions):
            problem = (
                "has no transactions: use RocketMQ brokers, or an outbox (write the message to a table of your "
                "database in the transaction of the local work, and send from it)"
            )
            raise InvalidOptionError("transport", type(transport).__name__, problem)
        checks = TransactionChecks(
            options.check,
            concurrency=options.check_concurrency,
            timeout_seconds=options.check_timeout_seconds,
            on_end=partial(self._note_end, is_checked=True),
            clock=self._clock,
        )
        address = local_address(parts_of(client).first_addr)
        request = ProducerGroupRequest(
            routes=client,
            group=options.producer_group,
            client_id=options.client_id or check_client_id(f"{address}@{unique_instance(self._rng)}"),
            topics=self._topics,
            on_check=lambda half, read: checks.ask(half, lambda: self._view.opened(read()), group),
            clock=self._clock,
        )
        group = transport.producer_group(request)
        self._checks, self._group = checks, group
        await group.start()

    async def _close(self) -> None:
        await asyncio.gather(self._leave(), super()._close())

    async def _leave(self) -> None:
        if self._checks is not None and self._group is not None:
            await self._checks.close()
            await self._group.close()

    async def _begin_transaction(self, message: Message, timeout_seconds: float | None) -> SendResult:
        """Send a message that consumers do not get yet.

        Raises as :meth:`send`, and :class:`SendFailedError` when the broker stored it less safely than it was set to.
        """
        sends, (outgoing,), deadline = self._begin([message], timeout_seconds)
        self._check_half(message)
        outgoing = outgoing._replace(internal_properties=half_properties(self._group_options.producer_group))
        (result,) = await self._counted([outgoing], partial(sends.sender.send, mode=SendMode.SYNC, deadline=deadline))
        half = result.half
        assert self._checks is not None  # noqa: S101  # it is started
        assert half is not None  # noqa: S101  # of a transport with transactions
        if result.status is not SendStatus.SEND_OK:
            # As RocketMQ: the local work does not begin.
            await self._end_transaction(half, TransactionState.ROLLBACK, message, timeout_seconds)
            queue = result.queue
            error = BrokerRefusedError(
                half.addr, ResponseCode.SYSTEM_ERROR, f"{result.status}: the transaction was rolled back"
            )
            failed = FailedTry(queue.cluster, queue.broker_name, half.addr, queue.queue_id, error, 0.0)
            raise SendFailedError(message.topic, [failed], timed_out=False) from error
        self._checks.began(half)
        return result

    def _check_half(self, message: Message) -> None:
        if self._view.full(message.topic) not in self._topics:
            known = ", ".join(sorted(self._topics))
            problem = (
                f"is not one of the producer's topics ({known}): add it there, since its brokers check transactions"
            )
            raise InvalidMessageError("topic", message.topic, problem)
        if message.deliver_at is not None:
            problem = "cannot be set in a transaction: brokers deliver the message when it is committed"
            raise InvalidMessageError("deliver_at", message.deliver_at.isoformat(), problem)

    async def _end_transaction(
        self, half: HalfMessage, state: TransactionState, message: Message, timeout_seconds: float | None
    ) -> bool:
        """End a transaction; return whether the broker confirmed it."""
        assert self._checks is not None  # noqa: S101  # the transaction began
        checks, half = self._checks, self._checks.ended(half)
        assert self._group is not None  # noqa: S101  # the transaction began
        if state is TransactionState.UNKNOWN:
            self._note_end(half, state, message, is_checked=False)
            return False
        seconds = self._options.send_msg_timeout_seconds if timeout_seconds is None else timeout_seconds
        try:
            await self._group.end(half, state, is_checked=False, timeout_seconds=seconds)
        except PointsmanError as error:
            logger.warning(
                "%s of the transaction of message %s was not confirmed, so a check will end it: %s",
                state,
                half.message_id,
                error,
            )
            self._count_end(half.topic, UNCONFIRMED, is_checked=False)
            return False
        checks.settled(half)
        self._note_end(half, state, message, is_checked=False)
        return True

    def _note_end(
        self, half: HalfMessage, state: TransactionState, message: Message | None, *, is_checked: bool
    ) -> None:
        self._count_end(half.topic, state, is_checked=is_checked)
        tracing, group = self._options.tracing_hook, self._group_options.producer_group
        if isinstance(tracing, TracesTransactions):
            tracing.transaction_ended(half, state, message=message, group=group, is_checked=is_checked)

    def _count_end(self, topic: str, state: str, *, is_checked: bool) -> None:
        self._resources.metrics_hook.transaction_ended(topic=topic, state=state, is_checked=is_checked)
