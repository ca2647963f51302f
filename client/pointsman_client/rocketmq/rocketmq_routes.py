"""Routes from RocketMQ name servers, over the remoting protocol. They push nothing: the client polls."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

import grpc

from pointsman.clock import Clock
from pointsman.names import ROCKETMQ_SCHEME
from pointsman.rocketmq.bodies import BadBodyError
from pointsman.rocketmq.codes import RequestCode, ResponseCode
from pointsman.rocketmq.frames import MAX_REASON_LENGTH, Command
from pointsman.wire.error_details import ErrorDetails
from pointsman_client.aio import finish_tasks
from pointsman_client.core.request_signature import AccessKey
from pointsman_client.core.route import ClusterData, TopicRoute
from pointsman_client.errors import (
    AccessDeniedError,
    BrokerTimeoutError,
    BrokerUnreachableError,
    ClusterNotFoundError,
    NameServerFailedError,
    RequestRejectedError,
    TopicNotFoundError,
)
from pointsman_client.rocketmq.broker_link import Link
from pointsman_client.rocketmq.rocketmq_options import RocketmqOptions
from pointsman_client.rocketmq.route_bodies import (
    StaticTopicError,
    read_clusters,
    read_route,
    read_topics,
)
from pointsman_client.rocketmq.sending import DEFAULT_TOPIC

IN_THREAD_BYTES = 128 * 1024
"""Bodies of this size and more are read in a thread: they would block the event loop."""
_CODES = {code.value: code.name for code in ResponseCode}

ResultT = TypeVar("ResultT")


class RocketmqRoutes:
    """A :class:`RouteSource` whose addresses are ``rocketmq://host:port``, with one connection each.

    A response has no revision. Its counter is the time of the query, its digest that of the content.
    """

    def __init__(self, clock: Clock, *, tls: ssl.SSLContext | None = None, access_key: AccessKey | None = None) -> None:
        """``tls``: None: plain text; ``access_key`` signs all requests. Raises :class:`InvalidOptionError`."""
        self._clock = clock
        self._options = RocketmqOptions(tls=tls, access_key=access_key)
        self._links: dict[str, Link] = {}

    async def query_route(
        self,
        addr: str,
        topic: str,
        seconds: float,
        *,
        cluster: str = "",
        zone: str = "",
        known: TopicRoute | None = None,
    ) -> TopicRoute:
        """See :meth:`RouteSource.query_route`. Clusters and zones are selected here: RocketMQ 4.9 knows no zones.

        A restarted name server knows no topic until the brokers register again, for up to 30 s. So it fails instead
        of reporting the loss of a ``known`` topic if it knows none of that topic's brokers either.
        """
        deadline = self._clock.monotonic() + seconds
        counter = int(self._clock.monotonic() * 1e9)
        body = await self._query_topic(addr, topic, seconds)
        if body is None:
            if known is not None and known.broker_datas:
                clusters = await self.query_clusters(addr, max(0.0, deadline - self._clock.monotonic()), cluster="")
                registered = {group.key for each in clusters for group in each.broker_datas}
                if registered.isdisjoint(group.key for group in known.broker_datas):
                    problem = f"it knows neither topic {topic} nor one of its brokers: it may have restarted"
                    raise NameServerFailedError(addr, grpc.StatusCode.UNAVAILABLE, problem)
            raise TopicNotFoundError(topic, cluster=cluster, zone=zone)
        try:
            route = await _read(
                addr,
                RequestCode.GET_ROUTEINFO_BY_TOPIC,
                body,
                lambda body: read_route(topic, body, counter=counter, cluster=cluster, zone=zone),
            )
        except StaticTopicError:
            problem = f"{topic} is a static topic, which this client does not support"
            raise RequestRejectedError(addr, grpc.StatusCode.UNIMPLEMENTED, problem, ErrorDetails()) from None
        if route is None:
            raise TopicNotFoundError(topic, cluster=cluster, zone=zone)
        return route

    async def query_topics(self, addr: str, seconds: float, *, cluster: str) -> tuple[str, ...]:
        """See :meth:`RouteSource.query_topics`."""
        deadline = self._clock.monotonic() + seconds
        code, ext = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, dict[str, str]()
        if cluster:
            code, ext = RequestCode.GET_TOPICS_BY_CLUSTER, {"cluster": cluster}
        body = await self._query(addr, code, seconds, ext)
        topics = await _read(addr, code, body, read_topics)
        if cluster and not topics:
            # An unknown cluster has an empty list, too.
            await self.query_clusters(addr, max(0.0, deadline - self._clock.monotonic()), cluster=cluster)
        return topics

    async def query_clusters(self, addr: str, seconds: float, *, cluster: str) -> tuple[ClusterData, ...]:
        """See :meth:`RouteSource.query_clusters`."""
        body = await self._query(addr, RequestCode.GET_BROKER_CLUSTER_INFO, seconds, {})
        clusters = await _read(addr, RequestCode.GET_BROKER_CLUSTER_INFO, body, read_clusters)
        if not cluster:
            return clusters
        selected = tuple(each for each in clusters if each.cluster == cluster)
        if not selected:
            raise ClusterNotFoundError(cluster)
        return selected

    async def ping(self, addr: str, seconds: float) -> None:
        """See :meth:`RouteSource.ping`. Queries a route: a name server that warms up may respond to all but these."""
        await self._query_topic(addr, DEFAULT_TOPIC, seconds)

    async def release(self, addr: str, *, timeout_seconds: float) -> None:
        """See :meth:`RouteSource.release`."""
        link = self._links.pop(addr, None)
        await _close([] if link is None else [link], timeout_seconds=timeout_seconds)

    async def close(self, *, timeout_seconds: float) -> None:
        """See :meth:`RouteSource.close`."""
        await _close(self._links.values(), timeout_seconds=timeout_seconds)

    async def _query_topic(self, addr: str, topic: str, seconds: float) -> bytes | None:
        """Return the body of a route; None: there is no such topic."""
        code, ext = RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic, "acceptStandardJsonOnly": "true"}
        try:
            return await self._query(addr, code, seconds, ext)
        except NameServerFailedError as error:
            if error.response_code == ResponseCode.TOPIC_NOT_EXIST:
                return None
            raise

    async def _query(self, addr: str, code: RequestCode, seconds: float, ext: Mapping[str, str]) -> bytes:
        link = self._links.get(addr)
        if link is None:
            link = self._links[addr] = Link(addr.removeprefix(ROCKETMQ_SCHEME), self._options)
        try:
            response = await link.request(code, ext, timeout_seconds=seconds, is_read=True)
        except BrokerTimeoutError as error:
            raise NameServerFailedError(addr, grpc.StatusCode.DEADLINE_EXCEEDED, error.message) from error
        except BrokerUnreachableError as error:
            raise NameServerFailedError(addr, grpc.StatusCode.UNAVAILABLE, error.message) from error
        if response.command.code != ResponseCode.SUCCESS:
            raise _failure(addr, code, response.command)
        return response.body


async def _close(links: Iterable[Link], *, timeout_seconds: float) -> None:
    closings = [asyncio.create_task(link.close(), name="pointsman-name-server-close") for link in links]
    await finish_tasks(closings, timeout_seconds=timeout_seconds)


def _failure(addr: str, request: RequestCode, response: Command) -> NameServerFailedError | AccessDeniedError:
    """Return the error of a response with another code than success."""
    code = response.code
    message = f"{request.name} ({request}): {_CODES.get(code, 'response code')} {code}: {response.reason}"
    if code == ResponseCode.NO_PERMISSION:
        return AccessDeniedError(addr, grpc.StatusCode.PERMISSION_DENIED, message, ErrorDetails())
    unsupported = code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    status = grpc.StatusCode.UNIMPLEMENTED if unsupported else grpc.StatusCode.UNAVAILABLE
    remark = (response.remark or "")[:MAX_REASON_LENGTH]
    return NameServerFailedError(addr, status, message, response_code=code, remark=remark)


async def _read(addr: str, code: RequestCode, body: bytes, read: Callable[[bytes], ResultT]) -> ResultT:
    try:
        return read(body) if len(body) < IN_THREAD_BYTES else await asyncio.to_thread(read, body)
    except BadBodyError as error:
        message = f"the response to {code.name} ({code}) cannot be read: {error}"
        raise NameServerFailedError(addr, grpc.StatusCode.INTERNAL, message) from error
