"""Routes from RocketMQ name servers, over the remoting protocol. They push nothing: the client polls."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import grpc

from pointsman.remoting.bodies import BadBodyError
from pointsman.remoting.codes import RequestCode, ResponseCode
from pointsman.wire.clock import Clock
from pointsman.wire.error_details import ErrorDetails
from pointsman_client.aio import finish_tasks
from pointsman_client.core.checks import ROCKETMQ_SCHEME
from pointsman_client.core.route import ClusterData, TopicRoute
from pointsman_client.errors import (
    BrokerTimeoutError,
    BrokerUnreachableError,
    ClusterNotFoundError,
    NameServerFailedError,
    RequestRejectedError,
    TopicNotFoundError,
)
from pointsman_client.routes.rocketmq_bodies import (
    StaticTopicError,
    read_clusters,
    read_route,
    read_topics,
)
from pointsman_client.transports.rocketmq.broker_link import Link
from pointsman_client.transports.rocketmq.rocketmq_options import RocketmqOptions

_DEFAULT_TOPIC = "TBW102"
"""Java producers query it for every unknown topic (``TopicValidator.AUTO_CREATE_TOPIC_KEY_TOPIC``)."""
_MAX_REMARK = 300
_CODES = {code.value: code.name for code in ResponseCode}


class RocketmqRoutes:
    """A :class:`RouteSource` whose addresses are ``rocketmq://host:port``, with one connection each.

    A response has no revision. Its counter is the time of the query, its digest that of the content.
    """

    def __init__(self, clock: Clock, *, tls: ssl.SSLContext | None = None) -> None:
        """``tls``: None: plain text. Raises :class:`InvalidOptionError`."""
        self._clock = clock
        self._options = RocketmqOptions(tls=tls)
        self._links: dict[str, Link] = {}

    async def query_route(
        self,
        addr: str,
        topic: str,
        seconds: float,
        *,
        cluster: str = "",
        zone: str = "",
        known: TopicRoute | None = None,  # noqa: ARG002  the protocol has no "unchanged"
    ) -> TopicRoute:
        """See :meth:`RouteSource.query_route`. Clusters and zones are selected here: RocketMQ 4.9 knows no zones."""
        counter = int(self._clock.monotonic() * 1e9)
        body = await self._query_topic(addr, topic, seconds)
        if body is None:
            raise TopicNotFoundError(topic, cluster=cluster, zone=zone)
        try:
            with _bad_bodies_of(addr, RequestCode.GET_ROUTEINFO_BY_TOPIC):
                route = read_route(topic, body, counter=counter, cluster=cluster, zone=zone)
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
        with _bad_bodies_of(addr, code):
            topics = read_topics(body)
        if cluster and not topics:
            # An unknown cluster has an empty list, too.
            await self.query_clusters(addr, max(0.0, deadline - self._clock.monotonic()), cluster=cluster)
        return topics

    async def query_clusters(self, addr: str, seconds: float, *, cluster: str) -> tuple[ClusterData, ...]:
        """See :meth:`RouteSource.query_clusters`."""
        body = await self._query(addr, RequestCode.GET_BROKER_CLUSTER_INFO, seconds, {})
        with _bad_bodies_of(addr, RequestCode.GET_BROKER_CLUSTER_INFO):
            clusters = read_clusters(body)
        if not cluster:
            return clusters
        selected = tuple(each for each in clusters if each.cluster == cluster)
        if not selected:
            raise ClusterNotFoundError(cluster)
        return selected

    async def ping(self, addr: str, seconds: float) -> None:
        """See :meth:`RouteSource.ping`. Queries a route: a name server that warms up may respond to all but these."""
        await self._query_topic(addr, _DEFAULT_TOPIC, seconds)

    async def close(self, *, timeout_seconds: float) -> None:
        """See :meth:`RouteSource.close`."""
        closings = [
            asyncio.create_task(link.close(), name="pointsman-name-server-close") for link in self._links.values()
        ]
        await finish_tasks(closings, timeout_seconds=timeout_seconds)

    async def _query_topic(self, addr: str, topic: str, seconds: float) -> bytes | None:
        """Return the body of a route; None: there is no such topic."""
        code, ext = RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic, "acceptStandardJsonOnly": "true"}
        try:
            return await self._query(addr, code, seconds, ext)
        except _CodeError as error:
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
            raise _CodeError(addr, code, response.command.code, response.command.remark)
        return response.body


class _CodeError(NameServerFailedError):
    """A response with another code than success."""

    def __init__(self, addr: str, request: RequestCode, response_code: int, remark: str | None) -> None:
        unsupported = response_code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        reason = (remark or "no reason given")[:_MAX_REMARK]
        super().__init__(
            addr,
            grpc.StatusCode.UNIMPLEMENTED if unsupported else grpc.StatusCode.UNAVAILABLE,
            f"the response to {request.name} ({request}) has code {response_code} "
            f"({_CODES.get(response_code, 'unknown')}): {reason}",
        )
        self.response_code = response_code


@contextmanager
def _bad_bodies_of(addr: str, code: RequestCode) -> Iterator[None]:
    try:
        yield
    except BadBodyError as error:
        message = f"the response to {code.name} ({code}) cannot be read: {error}"
        raise NameServerFailedError(addr, grpc.StatusCode.INTERNAL, message) from error
