"""Ask every name server listed, each on its own: they share nothing, so each has its own answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from pointsman.v1 import admin_service_pb2
from pointsman_client.channel import NameServerLink, NameServerLinks
from pointsman_client.errors import PointsmanError

AnswerT = TypeVar("AnswerT")
AnswerT_co = TypeVar("AnswerT_co", covariant=True)


@dataclass(frozen=True, slots=True)
class NodeAnswer(Generic[AnswerT_co]):
    """What one server said: an answer or a failure."""

    addr: str
    answer: AnswerT_co | None
    failure: PointsmanError | None


async def brokers_of_every(
    addrs: Sequence[str], *, cluster: str, timeout_seconds: float
) -> list[NodeAnswer[admin_service_pb2.ListBrokersResponse]]:
    """Ask each server for its brokers, page by page; ``timeout_seconds`` is for each page."""

    async def ask(link: NameServerLink) -> admin_service_pb2.ListBrokersResponse:
        request = admin_service_pb2.ListBrokersRequest(cluster=cluster)
        whole = await link.call(link.admin.ListBrokers, request, timeout_seconds=timeout_seconds)
        while whole.next_page_token:
            request.page_token = whole.next_page_token
            page = await link.call(link.admin.ListBrokers, request, timeout_seconds=timeout_seconds)
            whole.brokers.extend(page.brokers)
            whole.next_page_token = page.next_page_token
        return whole

    return await _ask_every(addrs, ask)


async def events_of_every(
    addrs: Sequence[str], *, broker_name: str, cluster: str, limit: int, timeout_seconds: float
) -> list[NodeAnswer[admin_service_pb2.ListBrokerEventsResponse]]:
    """Ask each server for the last events of a broker name."""
    request = admin_service_pb2.ListBrokerEventsRequest(broker_name=broker_name, cluster=cluster, limit=limit)
    return await _ask_every(
        addrs, lambda link: link.call(link.admin.ListBrokerEvents, request, timeout_seconds=timeout_seconds)
    )


async def _ask_every(
    addrs: Sequence[str], ask: Callable[[NameServerLink], Awaitable[AnswerT]]
) -> list[NodeAnswer[AnswerT]]:
    links = NameServerLinks()

    async def one(addr: str) -> NodeAnswer[AnswerT]:
        try:
            return NodeAnswer(addr, await ask(links.to(addr)), None)
        except PointsmanError as failure:
            return NodeAnswer(addr, None, failure)

    try:
        return await asyncio.gather(*(one(addr) for addr in addrs))
    finally:
        await links.close(timeout_seconds=1.0)
