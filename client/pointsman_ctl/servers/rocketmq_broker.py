"""Consumer groups at a RocketMQ broker, queried over the remoting protocol."""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import IntEnum
from typing import TypeVar

import grpc

from pointsman.rocketmq.bodies import BadBodyError
from pointsman.rocketmq.codes import BrokerRequestCode as Request
from pointsman.rocketmq.codes import BrokerResponseCode as Code
from pointsman.rocketmq.codes import is_denied
from pointsman.v1 import consumer_group_service_pb2 as wire
from pointsman.v1 import offset_service_pb2 as offsets_wire
from pointsman.wire.error_details import ErrorDetails
from pointsman_client import (
    BrokerTimeoutError,
    BrokerUnreachableError,
    PointsmanError,
    RequestRejectedError,
)
from pointsman_client.rocketmq import Link, RocketmqOptions
from pointsman_ctl.servers.agent_queries import AgentGroup, AgentQueues, QueueCache
from pointsman_ctl.servers.group_bodies import (
    read_broker_names,
    read_connections,
    read_groups,
    read_progress,
    read_running_info,
    reads_retries,
)
from pointsman_ctl.servers.rocketmq_name_server import RocketmqAccess
from pointsman_ctl.servers.runtime_info import read_runtime_info
from pointsman_ctl.servers.server_calls import BrokerDeniedError, BrokerFailedError

MAX_CONCURRENT_CALLS = 8
"""Per broker: its pool for operators is small (``adminBrokerThreadPoolNums``, 16)."""
MAX_CLIENTS = 100
"""Clients of a group that are queried; the first by client id."""
CLIENT_SECONDS = 1.0
"""Time for the response of one client."""
CLIENTS_SECONDS = 3.0
"""Time for the responses of all clients of a group."""
MAX_SILENT_CLIENTS = 4
"""After this number without a response in time no further client is queried. Also the number queried at the same time:
the broker waits 10 s for each, in a thread of the same pool."""
NO_QUEUES = b'{"offsetTable":{}}'
_MAX_REMARK = 300
_JAVA = re.compile(r"^(?:[a-z]\w*\.)+(?=[A-Z])|, [\w.$<>]+\(\w+\.java:\d+\)\s*$")
"""Package and place of an exception in a remark (``UtilAll.exceptionSimpleDesc``)."""
_NO_MEMBERS = {Code.CONSUMER_NOT_ONLINE, Code.SUBSCRIPTION_GROUP_NOT_EXIST}
_STATUS: Mapping[int, grpc.StatusCode] = {
    Code.TOPIC_NOT_EXIST: grpc.StatusCode.NOT_FOUND,
    Code.REQUEST_CODE_NOT_SUPPORTED: grpc.StatusCode.UNIMPLEMENTED,
}
T = TypeVar("T")
_NAMES = {code.value: code.name for code in Code}


class RocketmqBroker:
    """One broker. All methods raise BrokerFailedError, and RequestRejectedError for a response with an error code."""

    knows_readers = False
    """See :attr:`~pointsman_ctl.servers.agent_queries.AgentServer.knows_readers`."""

    def __init__(self, addr: str, access: RocketmqAccess) -> None:
        self.addr = addr
        self._link = Link(addr, RocketmqOptions(tls=access.tls, access_key=access.access_key))
        self._concurrency = asyncio.Semaphore(MAX_CONCURRENT_CALLS)

    async def close(self) -> None:
        """Close the connection."""
        await self._link.close()

    async def list_groups(self, deadline: float, *, with_loads: bool = False) -> wire.ListGroupsResponse:
        """Return the groups with members; ``with_loads``: and their lag, and groups with unread messages alone."""
        names = await self.group_names(deadline)
        found = await self.of_each(names, lambda group: self.group(group, deadline))
        lags: dict[str, int] = {}
        if with_loads:
            known = await self.of_each(names, lambda group: self._lag(group, deadline))
            lags = {name: lag for name, lag in known.items() if lag is not None}
        summaries = [
            wire.GroupSummary(
                group=name,
                members=len(each.members),
                message_model=each.membership.message_model,
                topics=[subscription.topic for subscription in each.members[0].subscriptions],
            )
            for name, each in ((name, connected.group) for name, connected in found.items())
            if each and each.members
        ]
        with_members = {each.group for each in summaries}
        summaries += [wire.GroupSummary(group=name) for name, lag in lags.items() if lag and name not in with_members]
        for summary in summaries:
            if summary.group in lags:
                summary.load.lag = lags[summary.group]
        return wire.ListGroupsResponse(state=wire.GROUP_STATE_READY, groups=summaries)

    async def runtime_info(self, deadline: float) -> Mapping[str, str]:
        """Return what a broker reports of itself, by RocketMQ's names; each version has its own."""
        body = await self.request(Request.GET_BROKER_RUNTIME_INFO, {}, deadline)
        with self.bad_bodies(Request.GET_BROKER_RUNTIME_INFO):
            return read_runtime_info(body or b"{}")

    async def group(self, group: str, deadline: float) -> AgentGroup:
        """Return one group."""
        body = await self.request(Request.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": group}, deadline)
        if body is None:
            return AgentGroup(None)
        with self.bad_bodies(Request.GET_CONSUMER_CONNECTION_LIST):
            return AgentGroup(*read_connections(group, body), has_retry_subscription=reads_retries(group, body))

    async def group_queues(self, group: str, deadline: float) -> AgentQueues:
        """Return the queues of a group with offsets and ends, and what its clients report of them in time.

        The broker passes each client's request on to the client, which changes nothing at either.
        """
        body, connected = await asyncio.gather(self._consume_stats(group, deadline), self.group(group, deadline))
        with self.bad_bodies(Request.GET_CONSUME_STATS):
            progress, names = read_progress(group, body), read_broker_names(body)
        return AgentQueues(
            wire.ListGroupQueuesResponse(
                queues=[
                    wire.GroupQueue(
                        topic=each.committed.topic,
                        reading=wire.QueueReading(queue_id=each.committed.queue_id),
                        committed=each.committed.offset,
                        max_offset=each.max_offset,
                    )
                    for each in progress
                ]
            ),
            await self._caches(group, sorted(connected.clients)[:MAX_CLIENTS], names, deadline),
        )

    async def _caches(
        self, group: str, client_ids: Sequence[str], names: Collection[str], deadline: float
    ) -> dict[tuple[str, int], QueueCache]:
        """Return what the clients that respond in time report; of two clients of a queue, that with the later pull."""
        last = min(deadline, asyncio.get_running_loop().time() + CLIENTS_SECONDS)
        turns, silent = asyncio.Semaphore(MAX_SILENT_CLIENTS), list[str]()

        async def one(client_id: str) -> Mapping[tuple[str, int], QueueCache]:
            async with turns:
                if len(silent) >= MAX_SILENT_CLIENTS:
                    return {}
                until = min(last, asyncio.get_running_loop().time() + CLIENT_SECONDS)
                try:
                    return await self._running_info(group, client_id, names, until)
                except BrokerFailedError as error:
                    if error.status is grpc.StatusCode.DEADLINE_EXCEEDED:
                        silent.append(client_id)
                except PointsmanError:
                    pass  # it is disconnected, or the broker denies it
                return {}

        caches: dict[tuple[str, int], QueueCache] = {}
        for of_client in await asyncio.gather(*map(one, client_ids)):
            for place, cache in of_client.items():
                if place not in caches or _since_pull(cache) < _since_pull(caches[place]):
                    caches[place] = cache
        return caches

    async def _running_info(
        self, group: str, client_id: str, names: Collection[str], deadline: float
    ) -> Mapping[tuple[str, int], QueueCache]:
        ext = {"consumerGroup": group, "clientId": client_id, "jstackEnable": "false"}
        body = await self.request(Request.GET_CONSUMER_RUNNING_INFO, ext, deadline)
        with self.bad_bodies(Request.GET_CONSUMER_RUNNING_INFO):
            return read_running_info(client_id, body or b"", broker_names=names, now=time.time())

    async def list_offsets(self, group: str, deadline: float) -> offsets_wire.ListOffsetsResponse:
        """Return the offsets of a group, or of all groups if it is empty."""
        groups = [group] if group else await self.group_names(deadline)
        found = await self.of_each(groups, lambda name: self.progress(name, deadline))
        return offsets_wire.ListOffsetsResponse(progress=[each for progress in found.values() for each in progress])

    async def _lag(self, group: str, deadline: float) -> int | None:
        """Return the number of unread messages; None: not known, or the broker does not report it in time."""
        try:
            progress = await self.progress(group, deadline)
        except PointsmanError:
            return None
        return sum(max(0, each.max_offset - each.committed.offset) for each in progress) if progress else None

    async def progress(self, group: str, deadline: float, *, topic: str = "") -> list[offsets_wire.QueueProgress]:
        """Return the offsets of a group, of all its topics or of one."""
        body = await self._consume_stats(group, deadline, topic=topic)
        with self.bad_bodies(Request.GET_CONSUME_STATS):
            return read_progress(group, body)

    async def _consume_stats(self, group: str, deadline: float, *, topic: str = "") -> bytes:
        ext = {"consumerGroup": group, "topic": topic}
        body = await self.request(Request.GET_CONSUME_STATS, ext, deadline)
        return NO_QUEUES if body is None else body

    async def group_names(self, deadline: float) -> list[str]:
        """Return the names of all groups, sorted."""
        body = await self.request(Request.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, {}, deadline)
        with self.bad_bodies(Request.GET_ALL_SUBSCRIPTIONGROUP_CONFIG):
            return read_groups(body or b"{}")

    async def of_each(self, groups: Sequence[str], query: Callable[[str], Awaitable[T]]) -> dict[str, T]:
        """Query each group, a few at a time."""

        async def one(group: str) -> T:
            async with self._concurrency:
                return await query(group)

        return dict(zip(groups, await asyncio.gather(*map(one, groups)), strict=True))

    async def request(
        self, code: IntEnum, ext: Mapping[str, str], deadline: float, *, body: bytes = b"", is_read: bool = True
    ) -> bytes | None:
        """Return the body of the response; None: the group has no members. ``is_read``: it changes nothing."""
        response = await self._response(code, ext, deadline, body=body, is_read=is_read)
        return None if response is None else response[1]

    async def offset(self, code: IntEnum, ext: Mapping[str, str], deadline: float) -> int:
        """Return the offset that a response has in its header."""
        response = await self._response(code, ext, deadline, body=b"", is_read=True)
        text = "" if response is None else response[0].get("offset", "")
        if re.fullmatch(r"[0-9]{1,19}", text) is None:
            message = f"the response to {code.name} ({code}) has no offset: {text[:_MAX_REMARK]!r}"
            raise BrokerFailedError(self.addr, grpc.StatusCode.INTERNAL, message)
        return int(text)

    async def _response(
        self, code: IntEnum, ext: Mapping[str, str], deadline: float, *, body: bytes, is_read: bool
    ) -> tuple[Mapping[str, str], bytes] | None:
        """Return the fields of the response's header, and its body."""
        seconds = max(0.0, deadline - asyncio.get_running_loop().time())
        try:
            response = await self._link.request(code, ext, body, timeout_seconds=seconds, is_read=is_read)
        except BrokerTimeoutError as error:
            raise BrokerFailedError(self.addr, grpc.StatusCode.DEADLINE_EXCEEDED, error.message) from error
        except BrokerUnreachableError as error:
            raise BrokerFailedError(self.addr, grpc.StatusCode.UNAVAILABLE, error.message) from error
        command = response.command
        if command.code in _NO_MEMBERS:
            return None
        if command.code != Code.SUCCESS:
            reason = _JAVA.sub("", command.remark or "no reason given")[:_MAX_REMARK]
            message = f"{code.name} ({code}): {_NAMES.get(command.code, 'response code')} {command.code}: {reason}"
            if is_denied(command.code, command.remark):
                raise BrokerDeniedError(self.addr, grpc.StatusCode.PERMISSION_DENIED, message, ErrorDetails())
            status = _STATUS.get(command.code, grpc.StatusCode.FAILED_PRECONDITION)
            raise RequestRejectedError(self.addr, status, message, ErrorDetails())
        return command.ext, response.body

    @contextmanager
    def bad_bodies(self, code: IntEnum) -> Iterator[None]:
        """Raise BrokerFailedError for a response to ``code`` that cannot be read."""
        try:
            yield
        except BadBodyError as error:
            message = f"the response to {code.name} ({code}) cannot be read: {error}"
            raise BrokerFailedError(self.addr, grpc.StatusCode.INTERNAL, message) from error


def _since_pull(cache: QueueCache) -> float:
    return math.inf if cache.since_pull_seconds is None else cache.since_pull_seconds
