"""Ask name servers: every one listed, each on its own, or the first that answers. They share nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from pointsman_client.clock import SystemClock
from pointsman_client.errors import PointsmanError
from pointsman_client.routes.failover import Failover, NameServerChoice
from pointsman_client.rpc.name_server_link import NameServerLink, NameServerLinks

CLOSE_SECONDS = 1.0

AnswerT = TypeVar("AnswerT")
AnswerT_co = TypeVar("AnswerT_co", covariant=True)


@dataclass(frozen=True, slots=True)
class NodeAnswer(Generic[AnswerT_co]):
    """What one server said: an answer or a failure."""

    addr: str
    answer: AnswerT_co | None
    failure: PointsmanError | None


async def ask_every(
    addrs: Sequence[str], ask: Callable[[NameServerLink], Awaitable[AnswerT]]
) -> list[NodeAnswer[AnswerT]]:
    """Ask all servers at once; the answers stand in the order of the list."""
    links = NameServerLinks()
    try:
        return await ask_over(links, addrs, ask)
    finally:
        await links.close(timeout_seconds=CLOSE_SECONDS)


async def ask_over(
    links: NameServerLinks, addrs: Sequence[str], ask: Callable[[NameServerLink], Awaitable[AnswerT]]
) -> list[NodeAnswer[AnswerT]]:
    """Ask all servers over connections that stay open, for whoever asks again."""

    async def one(addr: str) -> NodeAnswer[AnswerT]:
        try:
            return NodeAnswer(addr, await ask(links.to(addr)), None)
        except PointsmanError as failure:
            return NodeAnswer(addr, None, failure)

    return await asyncio.gather(*(one(addr) for addr in addrs))


async def ask_first(
    addrs: Sequence[str], ask: Callable[[NameServerLink, float], Awaitable[AnswerT]], *, timeout_seconds: float
) -> AnswerT:
    """Ask the servers in turn until one answers; ``ask(link, seconds)`` gets its share of the time.

    Raises :class:`~pointsman_client.errors.NameServersUnavailableError`.
    """
    links = NameServerLinks()
    failover = Failover(NameServerChoice(addrs), SystemClock())
    try:
        return await failover.ask(lambda addr, seconds: ask(links.to(addr), seconds), timeout_seconds=timeout_seconds)
    finally:
        await links.close(timeout_seconds=CLOSE_SECONDS)
