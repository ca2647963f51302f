"""AdminService: topics, queues and groups as the brokers' agents measured them last."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import cache
from itertools import groupby

from google.protobuf.message import DecodeError

from pointsman.clock import Clock
from pointsman.daemon.rpc.request_fields import size_of_page
from pointsman.v1 import admin_service_pb2 as wire
from pointsman.v1 import registration_service_pb2
from pointsman.wire.refusals import InvalidRequest, refuse_if_any
from pointsman.wire.wire_time import seconds_of
from pointsman_namesrv.core.broker_tables import BrokerTables
from pointsman_namesrv.core.fleet_queues import BrokerLag, BrokerQueue, Finding, FleetQueues, GroupNow, TopicNow
from pointsman_namesrv.core.group import Group, Replica
from pointsman_namesrv.core.live_queues import LiveQueueReports
from pointsman_namesrv.core.model import GroupKey
from pointsman_namesrv.core.node_refusals import TopicNotFound
from pointsman_namesrv.core.replica_state import Phase
from pointsman_namesrv.core.reported_queue_stats import QueueStats
from pointsman_namesrv.node_metrics import Metrics
from pointsman_namesrv.rpc import admin_codec, broker_codec

DEFAULT_LIMIT = 100
MAX_LIMIT = 1_000
NOT_MEASURED = "no measurement: its agent has just registered, is too old to send it, or there is none"
GONE = "departed: its queues and their lag are in no list and in no sum"

Pause = Callable[[], Awaitable[None]]
"""Awaited between two brokers: yields to other tasks when the slice is over."""


class LiveQueueQueries:
    """Reads the reports, and merges them."""

    def __init__(
        self, core: BrokerTables, reports: LiveQueueReports, *, clock: Clock, metrics: Metrics, node: str
    ) -> None:
        self._core = core
        self._reports = reports
        self._clock = clock
        self._metrics = metrics
        self._node = node

    async def answer(self, request: wire.ListLiveQueuesRequest, pause: Pause) -> wire.ListLiveQueuesResponse:
        """Return what the request asks for. Raises InvalidRequest, ClusterNotFound."""
        names = {name: value for name, value in (("cluster", request.cluster), ("topic", request.topic)) if value}
        refuse_if_any(admin_codec.optional_names(**names))
        limit = size_of_page("limit", request.limit, default=DEFAULT_LIMIT, most=MAX_LIMIT)
        if request.cluster:
            self._core.clusters(request.cluster)  # raises for an unknown one
        fleet, brokers = await self.merged(request.cluster, request.topic, pause)
        response = wire.ListLiveQueuesResponse(
            topics=map(_topic, fleet.topics(limit)),
            queues=map(_queue, fleet.busiest_queues(limit)),
            lags=map(_lag, fleet.longest_lags(limit)),
            brokers=brokers[:limit],
            broker_count=len(brokers),
            measured_broker_count=sum(not each.problem for each in brokers),
            node=self._node,
        )
        queues_of = self.queues_of_topics()
        for group in fleet.groups(limit):
            response.groups.append(_group(group, fleet.findings(group, queues_of)))
            await pause()
        return response

    async def merged(self, cluster: str, topic: str, pause: Pause) -> tuple[FleetQueues, list[wire.LiveBroker]]:
        """Return the measurements of a cluster or all, of a topic or all, merged, and each broker's."""
        fleet, brokers = FleetQueues(topic), list[wire.LiveBroker]()
        for key, replicas in self._by_name(cluster):
            brokers.append(self._add(fleet, key, replicas))
            await pause()
        brokers += self._departed(cluster)
        brokers.sort(key=lambda each: (not each.problem, each.cluster, each.broker_name))
        return fleet, brokers

    async def summary(self, pause: Pause, *, lags: int) -> tuple[FleetQueues, int, int]:
        """Return the measurements of all brokers merged, without queues and with about the longest ``lags`` lags, and
        the numbers of broker names and of those that were measured."""
        fleet, found, measured = FleetQueues(keeps_queues=False), 0, 0
        for key, replicas in self._by_name(""):
            found, measured = found + 1, measured + (not self._add(fleet, key, replicas).problem)
            if len(fleet.lags) > 2 * lags:
                fleet.lags = fleet.longest_lags(lags)
            await pause()
        return fleet, found, measured

    async def of_brokers(self, groups: Iterable[Group], topic: str, pause: Pause) -> FleetQueues:
        """Return the measurements of a topic at some broker names, merged."""
        fleet = FleetQueues(topic)
        for group in groups:
            self._add(fleet, group.key, [group.replicas[number] for number in sorted(group.replicas)])
            await pause()
        return fleet

    def queues_of_topics(self) -> Callable[[str, str], int]:
        """Return a function from cluster and topic to the queues that are registered now; it looks up each once."""
        return cache(self._queues_of)

    def _by_name(self, cluster: str) -> list[tuple[GroupKey, list[Replica]]]:
        members = self._core.replicas(cluster=cluster)
        return [
            (key, [replica for _, replica in found])
            for key, found in groupby(members, key=lambda member: member[0].key)
        ]

    def _departed(self, cluster: str) -> list[wire.LiveBroker]:
        """Return brokers that were lost: else a group's lag would fall without a word when its broker is killed."""
        groups = self._core.routes.groups
        absent = self._core.departed.all_absent(groups, cluster)
        keys = {each.identity.group_key for each in absent if each.phase is Phase.GONE} - groups.keys()
        return [wire.LiveBroker(cluster=key.cluster, broker_name=key.broker_name, problem=GONE) for key in keys]

    def _add(self, fleet: FleetQueues, key: GroupKey, replicas: Iterable[Replica]) -> wire.LiveBroker:
        """Add the measurement of the replica with the lowest id that has one: slaves have copies of the queues."""
        broker = wire.LiveBroker(cluster=key.cluster, broker_name=key.broker_name, problem=NOT_MEASURED)
        for replica in replicas:
            report = self._reports.of(replica.identity, replica.generation)
            if report is None:
                continue
            try:
                live = registration_service_pb2.LiveQueues.FromString(report.body)
                stats = broker_codec.queue_stats(live.stats, path="live_queues.stats")
            except (DecodeError, InvalidRequest) as error:
                self._metrics.live_queues.labels("invalid").inc()
                self._reports.forget(replica.identity.position)
                broker.problem = f"its agent sent a measurement that cannot be read: {error}"
                continue
            age = seconds_of(live.age) + self._clock.monotonic() - report.received_at
            fleet.add(key, stats, is_warming=live.is_warming)
            return _broker(key, stats, age=age, interval=seconds_of(live.interval))
        return broker

    def _queues_of(self, cluster: str, topic: str) -> int:
        try:
            route = self._core.routes.current(topic, cluster=cluster)
        except TopicNotFound:
            return 0
        return sum(config.read_queue_nums for _, config in route.queues)


def _broker(key: GroupKey, stats: QueueStats, *, age: float, interval: float) -> wire.LiveBroker:
    return wire.LiveBroker(
        cluster=key.cluster,
        broker_name=key.broker_name,
        age=broker_codec.duration(age),
        interval=broker_codec.duration(interval),
        depth=stats.depth,
        put_rate=stats.put_rate,
        lag=stats.lag,
    )


def _topic(topic: TopicNow) -> wire.LiveTopic:
    return wire.LiveTopic(
        cluster=topic.cluster,
        topic=topic.topic,
        queue_count=topic.queue_count,
        idle_queue_count=topic.idle_queue_count,
        put_rate=topic.put_rate,
        highest_put_rate=topic.highest_put_rate,
        depth=topic.depth,
        skew=topic.skew,
        findings=_findings(topic.findings()),
    )


def _queue(queue: BrokerQueue) -> wire.LiveQueue:
    key, puts = queue
    return wire.LiveQueue(
        cluster=key.cluster,
        broker_name=key.broker_name,
        topic=puts.topic,
        queue_id=puts.queue_id,
        put_rate=puts.put_rate,
        depth=puts.depth,
        bytes=puts.bytes,
    )


def _lag(entry: BrokerLag) -> wire.LiveLag:
    key, lag = entry
    return wire.LiveLag(
        cluster=key.cluster,
        broker_name=key.broker_name,
        group=lag.group,
        topic=lag.topic,
        queue_id=lag.queue_id,
        lag=lag.lag,
        oldest_unread=None if lag.oldest_unread is None else broker_codec.duration(lag.oldest_unread),
    )


def _group(group: GroupNow, findings: Iterable[Finding]) -> wire.LiveGroup:
    return wire.LiveGroup(
        cluster=group.cluster,
        group=group.group,
        topic=group.topic,
        queue_count=group.queue_count,
        member_count=group.member_count,
        lag=group.lag,
        highest_lag=group.highest_lag,
        put_rate=group.put_rate,
        commit_rate=group.commit_rate,
        catch_up_seconds=group.catch_up_seconds,
        behind_queue_count=group.behind_queue_count,
        stuck_queue_count=group.stuck_queue_count,
        findings=_findings(findings),
    )


def _findings(findings: Iterable[Finding]) -> Iterator[wire.QueueFinding]:
    return (wire.QueueFinding(kind=each.kind, text=each.says, remedy=each.cure) for each in findings)
