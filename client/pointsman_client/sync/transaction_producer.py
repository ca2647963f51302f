"""The producer of transactions for programs without an event loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from pointsman_client.core.message import Message
from pointsman_client.core.option_fields import takes_options
from pointsman_client.core.send_outcome import SendResult
from pointsman_client.core.transactions import TransactionState
from pointsman_client.producer import transaction, transaction_producer
from pointsman_client.producer.transaction_producer import TransactionProducerOptions
from pointsman_client.sync.client import NameServerClient
from pointsman_client.sync.producer import Producer, SyncProducerOptions


@dataclass(frozen=True, kw_only=True)
class SyncTransactionProducerOptions(TransactionProducerOptions, SyncProducerOptions):
    """Options of :class:`TransactionProducer`: those of the async one, and the call timeout."""

    name_servers: str | Sequence[str] | NameServerClient = field(kw_only=False)  # type: ignore[assignment]  # its own kind
    """Addresses, or a started client, which the caller closes."""


class TransactionProducer(Producer):
    """Sends messages that consumers get only if local work has succeeded, with blocking calls.

    ::

        with TransactionProducer("rocketmq://10.0.0.1:9876", producer_group="orders", topics=["orders"],
                                 check=is_paid) as producer:
            with producer.transaction(Message("orders", b"4711 paid")):
                database.pay("4711")

    Methods, errors and guarantees are those of :class:`pointsman_client.TransactionProducer`.
    """

    @takes_options(SyncTransactionProducerOptions)
    def __init__(self, options: SyncTransactionProducerOptions) -> None:
        """See :class:`pointsman_client.TransactionProducer`."""
        self._wrap(options, TransactionProducerOptions, self._new_producer)

    def _new_producer(self, **options: object) -> transaction_producer.TransactionProducer:
        self._transactions = transaction_producer.TransactionProducer(**options)  # type: ignore[arg-type]  # as checked
        return self._transactions

    def transaction(self, message: Message, *, timeout_seconds: float | None = None) -> Transaction:
        """Return the transaction of a message: a block, whose begin sends it and whose end commits it."""
        inner = self._invoke(lambda: self._transactions.transaction(message, timeout_seconds=timeout_seconds))
        seconds = timeout_seconds or 0.0

        def begin() -> SendResult:
            return self._call(inner.__aenter__, seconds=seconds).result

        def end(error: BaseException | None) -> None:
            kind = None if error is None else type(error)
            self._call(lambda: inner.__aexit__(kind, error, None), seconds=seconds)

        return Transaction(inner, begin=begin, end=end)


class Transaction:
    """The transaction of one message; see :class:`pointsman_client.Transaction`."""

    def __init__(
        self,
        inner: transaction.Transaction,
        *,
        begin: Callable[[], SendResult],
        end: Callable[[BaseException | None], None],
    ) -> None:
        """Made by :meth:`TransactionProducer.transaction`."""
        self._inner = inner
        self._begin = begin
        self._end = end

    @property
    def state(self) -> TransactionState | None:
        """How it ends; None: COMMIT, or UNKNOWN if the block raises. After the block, how it ended."""
        return self._inner.state

    @state.setter
    def state(self, state: TransactionState | None) -> None:
        self._inner.state = state

    @property
    def is_confirmed(self) -> bool:
        """After the block: whether the broker confirmed the end. If not, it asks ``check``."""
        return self._inner.is_confirmed

    @property
    def result(self) -> SendResult:
        """Id of the message and where it will be, in the block and after it; its offset is known at the commit."""
        return self._inner.result

    def __enter__(self) -> Self:
        """Send the message; raises as :meth:`Producer.send`, and the local work does not begin."""
        self._begin()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End the transaction; an end that fails is logged, and the broker asks ``check``."""
        self._end(exc)
