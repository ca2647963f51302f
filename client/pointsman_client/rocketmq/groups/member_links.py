"""Connections of one group member to RocketMQ brokers, apart from those that carry messages.

A broker takes each connection as one member (RocketMQ ``ClientChannelInfo`` is keyed by channel), so each client id has
its own connection to each broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from functools import partial

from pointsman.rocketmq.bodies import BadBodyError, read_object
from pointsman.rocketmq.codes import BrokerRequestCode, BrokerResponseCode
from pointsman.rocketmq.frames import Command
from pointsman_client.core.route import BrokerData
from pointsman_client.errors import BrokerRefusedError, ClientClosedError
from pointsman_client.rocketmq.broker_connection import Reply, Response
from pointsman_client.rocketmq.broker_link import Link
from pointsman_client.rocketmq.broker_refusals import refused
from pointsman_client.rocketmq.rocketmq_options import RocketmqOptions


class MemberLinks:
    """One link per broker address, opened when it is first used."""

    def __init__(
        self,
        options: RocketmqOptions,
        *,
        on_request: Callable[[str, Command, bytes, Callable[[Reply], None]], None],
        on_lost: Callable[[str], None],
    ) -> None:
        """``on_request``: called with each request of a broker; ``on_lost``: when a connection broke."""
        self._options = options
        self._on_request = on_request
        self._on_lost = on_lost
        self._links: dict[str, Link] = {}
        self._is_closed = False

    async def call(
        self,
        addr: str,
        code: BrokerRequestCode,
        ext: Mapping[str, str],
        body: bytes = b"",
        *,
        timeout_seconds: float,
        allowed: Collection[int] = (BrokerResponseCode.SUCCESS,),
        is_read: bool = False,
    ) -> Response:
        """Send a request to a broker.

        Raises :class:`BrokerUnreachableError`, :class:`BrokerTimeoutError`, :class:`ClientClosedError`, and
        :class:`BrokerRefusedError` for a response code that is not ``allowed``.
        """
        response = await self._to(addr).request(code, ext, body, timeout_seconds=timeout_seconds, is_read=is_read)
        if response.command.code not in allowed:
            raise refused(addr, response.command)
        return response

    def retire_others(self, addrs: Collection[str]) -> None:
        """Close the connections to all other addresses when their requests have ended, such as last commits."""
        for addr in [each for each in self._links if each not in addrs]:
            self._links[addr].retire()
            if self._links[addr].is_idle:
                del self._links[addr]

    async def close(self) -> None:
        """Close all links, for good."""
        self._is_closed = True
        links, self._links = self._links, {}
        await asyncio.gather(*(link.close() for link in links.values()))

    def _to(self, addr: str) -> Link:
        if self._is_closed:
            raise ClientClosedError
        link = self._links.get(addr)
        if link is None:
            on_request, on_lost = partial(self._on_request, addr), partial(self._on_lost, addr)
            link = self._links[addr] = Link(addr, self._options, on_request=on_request, on_lost=on_lost)
        return link


def master_addr(broker: BrokerData | None) -> str | None:
    """Return the address of a group's master, which alone grants locks."""
    return None if broker is None or broker.master is None else broker.master.addr or None


def any_addr(broker: BrokerData | None) -> str | None:
    """Return the address of the master, else of the replica with the lowest id (``findBrokerAddressInAdmin``)."""
    replicas = () if broker is None else sorted(broker.replicas, key=lambda each: each.broker_id)
    return next((each.addr for each in replicas if each.addr), None)


def json_object(addr: str, body: bytes) -> Mapping[str, object]:
    """Read a response body. Raises :class:`BrokerRefusedError` when it is not a JSON object."""
    try:
        return read_object(body)
    except BadBodyError as error:
        raise BrokerRefusedError(addr, BrokerResponseCode.SYSTEM_ERROR, f"response: {error}") from error


def queue_name(value: object) -> tuple[str, str, int] | None:
    """Return topic, broker name and queue id of a ``MessageQueue`` in JSON; None if it is not one."""
    if not isinstance(value, dict):
        return None
    topic, broker_name, queue_id = value.get("topic"), value.get("brokerName"), value.get("queueId")
    if isinstance(topic, str) and isinstance(broker_name, str) and isinstance(queue_id, int):
        return topic, broker_name, queue_id
    return None
