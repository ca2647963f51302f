"""Responses to RocketMQ's queries of the tables, as ready bytes.

Bodies are strict, compact, sorted JSON: every RocketMQ client reads it (the Go client accepts no blanks), and all name
servers send the same bytes. A response is cached while the tables do not change, a broker's part of it while the broker
does not. Routes are cached apart from ``rpc/route_responses.py``: other bytes, keys without a cluster, and no digest.
Only the bound is common to both (``[routes] cache_bytes``).
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pointsman.names import PERM_WRITE
from pointsman.rocketmq.codes import ResponseCode
from pointsman.rocketmq.frames import MAX_FRAME_BYTES, ReadyResponse, compact
from pointsman_namesrv.core.group import Group
from pointsman_namesrv.core.model import MASTER_ID, GroupKey
from pointsman_namesrv.core.name_server import NameServer
from pointsman_namesrv.core.route_table import Route
from pointsman_namesrv.core.static_topics import QueueMapping
from pointsman_namesrv.slices import SLICE_TOPICS

FAQ = "https://rocketmq.apache.org/docs/bestPractice/06FAQ"
MEMBER_TOPIC = "rmq_sys_SYNC_BROKER_MEMBER_"
"""Prefix of a broker name: replicas find each other by this topic's route, so it has their real ids."""
MAX_SHOWN_NAME = 300
"""Characters of a name that a response repeats."""
ENTRY_BYTES = 500
"""Estimated memory of a cached response apart from its bytes."""
UNIT, UNIT_SUB = 1, 2
"""Bits of ``topicSysFlag`` (RocketMQ ``TopicSysFlag``)."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ResponseRules:
    """Settings that RocketMQ has as well."""

    support_acting_master: bool = False
    order_message_enable: bool = False


class RouteResponse(ReadyResponse):
    """A cached response to code 105, dropped when the cache is full."""

    __slots__ = ("__weakref__", "counter", "good_at_change")

    def __init__(self, *, body: bytes, counter: int, good_at_change: int) -> None:
        super().__init__(body=body)
        self.counter = counter
        """The topic's counter when it was built."""
        self.good_at_change = good_at_change
        """The last change of the tables at which it was known to be current."""


class TableResponses:
    """Responses from the core's tables; ``max_bytes`` bounds the cached routes."""

    def __init__(
        self, core: NameServer, *, rules: ResponseRules, max_bytes: int, count_built: Callable[[], None]
    ) -> None:
        self._core = core
        self._routes = core.routes
        self._rules = rules
        self._max_bytes = max_bytes
        self._count_built = count_built
        self._kept: OrderedDict[tuple[str, str], RouteResponse] = OrderedDict()
        self._of_change = -1
        self._lists: dict[str, ReadyResponse] = {}
        self._groups: dict[GroupKey, tuple[int, Group, bytes]] = {}
        self._said: set[str] = set()
        self.bytes = 0
        """Estimated memory of the cached routes."""

    # --- one topic --------------------------------------------------------------------------------------------

    def route(self, topic: str, zone: str = "") -> RouteResponse:
        """Return the response to code 105. Raises TopicNotFound."""
        key = (topic, zone)
        kept = self._kept.get(key)
        if kept is not None:
            change = self._routes.change
            if kept.good_at_change == change:
                return kept
            if self._routes.counter(topic) == kept.counter:
                kept.good_at_change = change
                self._kept.move_to_end(key)
                return kept
            self._drop(key)
        return self._build(key)

    def is_good(self, response: RouteResponse) -> bool:
        """Return whether the tables have not changed since the last check."""
        return response.good_at_change == self._routes.change

    def _build(self, key: tuple[str, str]) -> RouteResponse:
        topic, zone = key
        route = self._routes.route(topic, zone=zone)
        self._count_built()
        body = self._route_body(route)
        response = RouteResponse(body=body, counter=route.counter, good_at_change=self._routes.change)
        self._kept[key] = response
        self.bytes += len(response) + ENTRY_BYTES
        while self.bytes > self._max_bytes:
            self._drop(next(iter(self._kept)))
        return response

    def _drop(self, key: tuple[str, str]) -> None:
        self.bytes -= len(self._kept.pop(key)) + ENTRY_BYTES

    def _route_body(self, route: Route) -> bytes:
        queue_datas, broker_datas, names = [], [], set[str]()
        groups = {group.key: group for group in route.groups}
        for key, queues in route.queues:
            if key.broker_name in names:
                self._log_duplicate(key)
                continue
            names.add(key.broker_name)
            queue_datas.append(
                compact(
                    {
                        "brokerName": key.broker_name,
                        "perm": queues.perm,
                        "readQueueNums": queues.read_queue_nums,
                        "topicSysFlag": queues.topic_sys_flag,
                        "writeQueueNums": queues.write_queue_nums,
                    }
                )
            )
            acts = self._has_acting_master(groups[key], route.topic) and not queues.perm & PERM_WRITE
            broker_datas.append(_broker_data(groups[key], acting=True) if acts else self._broker_data(groups[key]))
        order = b""
        if self._rules.order_message_enable and route.order_topic_conf:
            order = b',"orderTopicConf":' + compact(route.order_topic_conf)
        # RocketMQ sorts keys alphabetically; no client depends on it.
        return b'{"brokerDatas":[%b],"filterServerTable":{}%b,"queueDatas":[%b]%b}' % (
            b",".join(broker_datas),
            order,
            b",".join(queue_datas),
            _static_mappings(route) if route.static_mappings else b"",
        )

    def _has_acting_master(self, group: Group, topic: str) -> bool:
        """Return whether the lowest id is shown as id 0 (RocketMQ ``RouteInfoManager.pickupTopicRouteData``)."""
        if not self._rules.support_acting_master or topic.startswith(MEMBER_TOPIC):
            return False
        lowest = group.lowest()
        return lowest is not None and lowest.identity.broker_id != MASTER_ID and lowest.registration.shown_acting_master

    # --- lists ------------------------------------------------------------------------------------------------

    def cluster_info(self) -> ReadyResponse:
        """Return the response to code 106."""
        return self._listed("106", self._cluster_info)

    def _cluster_info(self) -> ReadyResponse:
        clusters: list[bytes] = []
        brokers: dict[str, bytes] = {}
        for cluster, groups in self._routes.iter_clusters():
            names = []
            for group in groups:
                if group.lowest() is None:
                    continue
                names.append(group.key.broker_name)
                if group.key.broker_name in brokers:
                    self._log_duplicate(group.key)
                else:
                    brokers[group.key.broker_name] = self._broker_data(group)
            clusters.append(compact(cluster) + b":" + compact(names))
        table = b",".join(compact(name) + b":" + data for name, data in brokers.items())
        return ReadyResponse(body=b'{"brokerAddrTable":{%b},"clusterAddrTable":{%b}}' % (table, b",".join(clusters)))

    def cluster_topics(self, cluster: str) -> ReadyResponse:
        """Return the response to code 224."""
        return _within_frame(ReadyResponse(body=_topic_list(self._routes.topic_names(cluster) if cluster else [])))

    def topic_list(self) -> ReadyResponse:
        """Return the response to code 206."""
        return self._listed("206", lambda: ReadyResponse(body=_topic_list(self._routes.topic_names())))

    def system_topic_list(self) -> ReadyResponse:
        """Return the response to code 304: the names of all clusters and brokers, and one address."""
        return self._listed("304", self._system_topic_list)

    def _system_topic_list(self) -> ReadyResponse:
        names, addr = list[str](), ""
        for cluster, groups in self._routes.iter_clusters():
            names += [cluster, *(group.key.broker_name for group in groups)]
            lowest = next((lowest for group in groups if (lowest := group.lowest()) is not None), None)
            addr = addr or ("" if lowest is None else lowest.identity.addr)
        body: dict[str, object] = {"topicList": list(dict.fromkeys(names))}
        return ReadyResponse(body=compact(({"brokerAddr": addr} if addr else {}) | body))

    def unit_topics(self, has: int, without: int = 0) -> Iterator[ReadyResponse | None]:
        """Build the response to codes 311 to 313 in steps: None until it is complete."""
        found: set[str] = set()
        for key in sorted(self._routes.groups):
            group = self._routes.groups.get(key)
            contributor = None if group is None else group.contributor()
            if contributor is None:
                continue
            for number, (topic, queues) in enumerate(list(contributor.registration.topics.items())):
                if queues.topic_sys_flag & has and not queues.topic_sys_flag & without:
                    found.add(topic)
                if number % SLICE_TOPICS == SLICE_TOPICS - 1:
                    yield None
        names = sorted(topic for topic in found if self._routes.holders(topic))
        yield _within_frame(ReadyResponse(body=_topic_list(names)))

    def member_group(self, cluster: str, broker_name: str) -> ReadyResponse:
        """Return the response to code 901."""
        group = self._routes.groups.get(GroupKey(cluster, broker_name))
        members = {} if group is None else {str(r.identity.broker_id): r.identity.addr for r in group.routed()}
        body = {"brokerMemberGroup": {"brokerAddrs": members, "brokerName": broker_name, "cluster": cluster}}
        return ReadyResponse(remark="not set any response code", body=compact(body))

    # --- internals --------------------------------------------------------------------------------------------

    def _listed(self, name: str, build: Callable[[], ReadyResponse]) -> ReadyResponse:
        if self._of_change != self._routes.change:
            self._of_change = self._routes.change
            self._lists.clear()
        response = self._lists.get(name)
        if response is None:
            response = self._lists[name] = _within_frame(build())
        return response

    def _broker_data(self, group: Group) -> bytes:
        version, of, data = self._groups.get(group.key, (-1, None, b""))
        if version != group.version or of is not group:
            data = _broker_data(group)
            if len(self._groups) > 2 * len(self._routes.groups) + 100:
                self._groups.clear()
            self._groups[group.key] = (group.version, group, data)
        return data

    def _log_duplicate(self, key: GroupKey) -> None:
        """Log a broker name of two clusters. Queues have no cluster on this wire, so clients would mix the groups."""
        if key.broker_name not in self._said and len(self._said) < 1_000:
            self._said.add(key.broker_name)
            facts = {"broker_name": key.broker_name, "ignored_cluster": key.cluster}
            log.warning(
                "two clusters have a broker of this name; RocketMQ clients get the first one", extra={"facts": facts}
            )


def not_found(topic: str) -> ReadyResponse:
    """Return the response to code 105 for a topic without a route."""
    where = f"See {FAQ} for further details."
    remark = f"No topic route info in name server for the topic: {topic[:MAX_SHOWN_NAME]}\n{where}"
    return ReadyResponse(code=ResponseCode.TOPIC_NOT_EXIST, remark=remark)


def _within_frame(response: ReadyResponse) -> ReadyResponse:
    """Refuse a response that is longer than RocketMQ processes read."""
    if len(response) <= MAX_FRAME_BYTES:
        return response
    remark = f"the response has {len(response)} bytes, a RocketMQ frame at most {MAX_FRAME_BYTES}"
    return ReadyResponse(code=ResponseCode.SYSTEM_ERROR, remark=remark)


def _static_mappings(route: Route) -> bytes:
    """Encode which broker leads which logical queues of a static topic, by broker name."""
    # A broker's own mapping precedes one that another registered under its name.
    own = [mapping for key, mapping in route.static_mappings if mapping.broker_name == key.broker_name]
    by_name: dict[str, QueueMapping] = {}
    for mapping in (*own, *(mapping for _, mapping in route.static_mappings)):
        by_name.setdefault(mapping.broker_name, mapping)
    table = {
        name: {
            "bname": name,
            "currIdMap": {str(logical): physical for logical, physical in mapping.queue_ids},
            "dirty": mapping.dirty,
            "epoch": mapping.epoch,
            "scope": mapping.scope,
            "topic": route.topic,
            "totalQueues": mapping.total_queues,
        }
        for name, mapping in sorted(by_name.items())
    }
    return b',"topicQueueMappingByBroker":' + compact(table)


def _topic_list(names: list[str]) -> bytes:
    return compact({"topicList": names})


def _broker_data(group: Group, *, acting: bool = False) -> bytes:
    """Encode one broker name; ``acting``: its lowest id is shown as the master's."""
    routed = group.routed()
    addrs = {str(replica.identity.broker_id): replica.identity.addr for replica in routed}
    if acting:
        lowest = routed[0].identity
        del addrs[str(lowest.broker_id)]
        addrs = {str(MASTER_ID): lowest.addr, **addrs}
    data: dict[str, object] = {
        "brokerAddrs": addrs,
        "brokerName": group.key.broker_name,
        "cluster": group.key.cluster,
        "enableActingMaster": bool(routed) and routed[0].registration.shown_acting_master,
    }
    if routed and routed[0].registration.zone:
        data["zoneName"] = routed[0].registration.zone
    return compact(data)
