"""Response bodies of a RocketMQ name server as the client's values. Pure.

Sources: RocketMQ ``TopicRouteData`` (request code 105), ``ClusterInfo`` (106), ``TopicList`` (206, 224).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial

from pointsman.names import (
    MAX_BROKER_ID,
    MAX_FILTER_SERVERS,
    MAX_QUEUES,
    MAX_TOPIC_SYS_FLAG,
    PERM_MASK,
    addr_problem,
    registered_name_problem,
    text_problem,
)
from pointsman.rocketmq.bodies import BadBodyError, list_of, number_of, read_object, shown, text_of, to_object
from pointsman.rocketmq.frames import MAX_FRAME_BYTES
from pointsman_client.core.route import (
    BrokerData,
    BrokerReplica,
    BrokerState,
    ClusterData,
    QueueData,
    Revision,
    TopicRoute,
)

MAX_GROUPS = 20_000
"""Maximum number of replica groups in one response."""
MAX_ROUTE_QUEUES = 128 * 1024
"""Maximum number of queues of a topic on all brokers, read and write queues counted separately: one broker with the
maximum is accepted. Listing and sorting more queues would block the event loop for seconds."""

Object = Mapping[str, object]


class StaticTopicError(Exception):
    """A static topic: its logical queues are not those of the route (RocketMQ ``TopicQueueMappingInfo``)."""


def read_route(topic: str, body: bytes, *, counter: int, cluster: str = "", zone: str = "") -> TopicRoute | None:
    """Read a route, or the part of a cluster or zone, as Pointsman's name server selects it; None: not in the cluster.

    Groups without a master are in the routes of every zone (RocketMQ ``ZoneRouteRPCHook``). Raises BadBodyError and
    StaticTopicError.
    """
    route = read_object(body)
    if to_object(route.get("topicQueueMappingByBroker"), "topicQueueMappingByBroker"):
        raise StaticTopicError
    filter_servers = to_object(route.get("filterServerTable"), "filterServerTable")
    groups = [
        _to_broker_data(data, f"brokerDatas[{place}]", filter_servers)
        for place, data in enumerate(_list(route, "brokerDatas"))
    ]
    selected = {group.broker_name: group for group in groups if cluster in {"", group.cluster}}
    if cluster and not selected:
        return None
    if zone:
        selected = {name: group for name, group in selected.items() if _is_near(group, zone)}
    listed = [
        _to_queue_data(data, f"queueDatas[{place}]", selected) for place, data in enumerate(_list(route, "queueDatas"))
    ]
    # One entry of each broker: a queue that is listed twice would be allocated to two members.
    by_broker = {each.broker_key: each for each in listed if each is not None}
    queue_datas = [by_broker[key] for key in sorted(by_broker)]
    queues = sum(each.read_queue_nums + each.write_queue_nums for each in queue_datas)
    if queues > MAX_ROUTE_QUEUES:
        raise BadBodyError(f"queueDatas has {queues} read and write queues, at most {MAX_ROUTE_QUEUES} are read")
    return _with_digest(
        TopicRoute(
            topic=topic,
            revision=Revision(0, counter, b""),
            queue_datas=tuple(queue_datas),
            broker_datas=_sorted(selected.values()),
            order_topic_conf=text_of(
                route, "orderTopicConf", "route", problem_of=partial(text_problem, longest=MAX_FRAME_BYTES)
            ),
        )
    )


def read_clusters(body: bytes) -> tuple[ClusterData, ...]:
    """Read the clusters with their replica groups. Raises BadBodyError."""
    table = to_object(read_object(body).get("brokerAddrTable"), "brokerAddrTable")
    if len(table) > MAX_GROUPS:
        raise BadBodyError(f"brokerAddrTable has {len(table)} entries, at most {MAX_GROUPS} are read")
    clusters: dict[str, list[BrokerData]] = {}
    for name, data in table.items():
        group = _to_broker_data(data, f"brokerAddrTable[{shown(name)}]", {})
        clusters.setdefault(group.cluster, []).append(group)
    return tuple(ClusterData(cluster, _sorted(clusters[cluster])) for cluster in sorted(clusters))


def read_topics(body: bytes) -> tuple[str, ...]:
    """Read a list of topics. Raises BadBodyError."""
    found: set[str] = set()
    for topic in list_of(read_object(body), "topicList"):
        problem = registered_name_problem(topic) if isinstance(topic, str) else "must be a string"
        if problem:
            raise BadBodyError(f"topicList has {shown(topic)}, which {problem}")
        found.add(str(topic))
    return tuple(sorted(found))


def _is_near(group: BrokerData, zone: str) -> bool:
    return group.master is None or group.zone.lower() == zone.lower()


def _with_digest(route: TopicRoute) -> TopicRoute:
    content = repr((route.topic, route.queue_datas, route.broker_datas, route.order_topic_conf))
    return replace(route, revision=replace(route.revision, digest=hashlib.sha256(content.encode()).digest()))


def _sorted(groups: Iterable[BrokerData]) -> tuple[BrokerData, ...]:
    return tuple(sorted(groups, key=lambda group: group.key))


def _to_broker_data(value: object, where: str, filter_servers: Object) -> BrokerData:
    data = to_object(value, where)
    replicas = []
    for number, addr in to_object(data.get("brokerAddrs"), f"{where}.brokerAddrs").items():
        # A broker registers what it likes, such as id -1 before an election: the others must remain usable.
        is_id = number.isascii() and number.isdigit() and len(number) <= 10 and int(number) <= MAX_BROKER_ID
        if is_id and isinstance(addr, str) and addr_problem(addr) is None:
            servers = _filter_servers(filter_servers.get(addr))
            replicas.append(BrokerReplica(int(number), addr, "", "", BrokerState.UP, servers))
    acting = data.get("enableActingMaster", False)
    if not isinstance(acting, bool):
        raise BadBodyError(f"{where}.enableActingMaster = {shown(acting)}, must be true or false")
    return BrokerData(
        cluster=text_of(data, "cluster", where, problem_of=registered_name_problem),
        broker_name=text_of(data, "brokerName", where, problem_of=registered_name_problem),
        replicas=tuple(sorted(replicas, key=lambda replica: replica.broker_id)),
        zone=text_of(data, "zoneName", where, problem_of=text_problem),
        acting_master=acting,
    )


def _to_queue_data(value: object, where: str, groups: Mapping[str, BrokerData]) -> QueueData | None:
    """None: of a broker that is not selected."""
    data = to_object(value, where)
    group = groups.get(text_of(data, "brokerName", where, problem_of=registered_name_problem))
    if group is None:
        return None
    return QueueData(
        cluster=group.cluster,
        broker_name=group.broker_name,
        read_queue_nums=number_of(data, "readQueueNums", where, most=MAX_QUEUES),
        write_queue_nums=number_of(data, "writeQueueNums", where, most=MAX_QUEUES),
        perm=number_of(data, "perm", where, most=PERM_MASK),
        topic_sys_flag=number_of({"topicSysFlag": 0, **data}, "topicSysFlag", where, most=MAX_TOPIC_SYS_FLAG),
    )


def _filter_servers(value: object) -> tuple[str, ...]:
    """Filter servers of one broker; RocketMQ has them no longer since 4.9."""
    listed = value if isinstance(value, list) else []
    return tuple(addr for addr in listed if isinstance(addr, str) and not addr_problem(addr))[:MAX_FILTER_SERVERS]


def _list(data: Object, name: str) -> list[object]:
    value = [] if data.get(name) is None else list_of(data, name)
    if len(value) > MAX_GROUPS:
        raise BadBodyError(f"{name} has {len(value)} entries, at most {MAX_GROUPS} are read")
    return value
