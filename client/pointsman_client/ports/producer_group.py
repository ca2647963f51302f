"""Interface of a producer's place in its group, at brokers that ask producers about their transactions."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from pointsman.clock import Clock
from pointsman_client.core.message import ReceivedMessage
from pointsman_client.core.transactions import HalfMessage, TransactionState
from pointsman_client.errors import PointsmanError
from pointsman_client.ports.coordination import Routes

ReadMessage = Callable[[], ReceivedMessage]
"""Decodes a message, which may take long; raises :class:`UnreadableMessageError`."""


class ProducerGroup(Protocol):
    """Membership of one producer in its group, and the ends of its transactions."""

    async def start(self) -> None:
        """Start to register at every master of the topics, without waiting for any; a second call does nothing."""
        ...

    async def end(
        self, half: HalfMessage, state: TransactionState, *, is_checked: bool, timeout_seconds: float
    ) -> None:
        """Commit or roll back a half message; ``is_checked``: the broker asked for the state.

        Raises :class:`BrokerUnreachableError`, :class:`BrokerTimeoutError` and :class:`BrokerRefusedError`; the broker
        asks a producer of the group then.
        """
        ...

    async def close(self) -> None:
        """Leave the group and close; takes at most 2 s."""
        ...


class RequestGroup(ProducerGroup, Protocol):
    """The same for a producer that awaits replies, which brokers pass on to the connection of its client id."""

    async def register(self, topics: Collection[str], *, timeout_seconds: float) -> None:
        """Register at every master of these topics, too, and wait for it.

        Raises the error of one of them if none accepts this producer.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerGroupRequest:
    """What a place in a producer group is built from."""

    routes: Routes
    group: str
    client_id: str
    topics: Collection[str]
    """The brokers of these topics may ask this producer."""
    on_check: Callable[[HalfMessage, ReadMessage], None]
    """Called when a broker asks how a transaction ended."""
    on_reply: Callable[[ReceivedMessage], None] | None = None
    """Called with each reply to this producer, which has the request's ``reply_address``."""
    clock: Clock


async def masters_of(routes: Routes, topics: Collection[str]) -> list[str]:
    """Return the addresses of the masters of the topics; those of a topic without a route are not known yet."""
    for topic in tuple(topics):
        with suppress(PointsmanError):
            await routes.topic_route(topic)
    masters = [group.master for group in routes.brokers_of(topics)]
    return [*dict.fromkeys(master.addr for master in masters if master is not None and master.addr)]


@runtime_checkable
class HasTransactions(Protocol):
    """A transport whose brokers hold the messages of a transaction back until it ends.

    It sends a half message when ``OutgoingMessage.internal_properties`` has those of
    :func:`~pointsman_client.core.transactions.half_properties`; the receipt then has its place.
    """

    def producer_group(self, request: ProducerGroupRequest) -> ProducerGroup:
        """Build the place of one producer in its group. Opens no connection."""
        ...


@runtime_checkable
class HasRequests(Protocol):
    """A transport whose brokers pass the reply to a message on to the producer that waits for it.

    It sends the properties of a :class:`~pointsman_client.core.reply_address.ReplyAddress`, and received messages have
    it.
    """

    def request_group(self, request: ProducerGroupRequest) -> RequestGroup:
        """Build the place of one producer at its brokers. Opens no connection."""
        ...
