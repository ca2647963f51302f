"""The transaction of one message, as a block."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

from pointsman_client.core.send_outcome import SendResult
from pointsman_client.core.transactions import HalfMessage, TransactionState


class Transaction:
    """The transaction of one message: ``async with producer.transaction(message): ...``, once.

    The begin of the block sends the message, which consumers do not get yet. The end of the block commits it. When the
    block raises, the state is UNKNOWN, since the local work may have succeeded before: the broker asks ``check`` of a
    producer of the group after some seconds. Set :attr:`state` in the block to end it otherwise.
    """

    def __init__(
        self,
        *,
        begin: Callable[[], Awaitable[SendResult]],
        end: Callable[[HalfMessage, TransactionState], Awaitable[bool]],
    ) -> None:
        """Made by :meth:`TransactionProducer.transaction`."""
        self._begin = begin
        self._end = end
        self._result: SendResult | None = None
        self.state: TransactionState | None = None
        """How it ends; None: COMMIT, or UNKNOWN if the block raises. After the block, how it ended."""
        self.is_confirmed = False
        """After the block: whether the broker confirmed the end. If not, it asks ``check``."""

    @property
    def result(self) -> SendResult:
        """Id of the message and where it will be, in the block and after it; its offset is known at the commit."""
        if self._result is None:
            raise RuntimeError("the transaction has not begun: use it in an `async with` block")
        return self._result

    async def __aenter__(self) -> Self:
        """Send the message; raises as :meth:`Producer.send`, and the local work does not begin."""
        if self._result is not None:
            raise RuntimeError("a transaction is for one block: call producer.transaction() again")
        self._result = await self._begin()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End the transaction; an end that fails is logged, and the broker asks ``check``."""
        if self.state is None:
            self.state = TransactionState.COMMIT if exc is None else TransactionState.UNKNOWN
        half = self.result.half
        assert half is not None  # noqa: S101  # the transaction began
        self.is_confirmed = await self._end(half, self.state)
