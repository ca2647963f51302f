"""The brokers that a RocketMQ name server lists at one moment, read from its responses. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from pointsman.names import (
    MAX_BROKER_ID,
    MAX_QUEUES,
    MAX_TOPIC_SYS_FLAG,
    PERM_MASK,
    addr_problem,
    registered_name_problem,
    text_problem,
)
from pointsman.rocketmq.bodies import BadBodyError, is_whole, list_of, read_object, shown, to_object
from pointsman_namesrv.core.model import Position, QueueConfig

MAX_BROKERS = 20_000
"""Brokers (replicas) read from one response; the frame's own bound allows about ten times as many."""
MAX_SKIPPED = 20
"""Skipped entries of one response that are named."""


class Listed(NamedTuple):
    """A broker (replica) as a name server lists it."""

    addr: str
    zone: str


@dataclass(frozen=True, slots=True)
class FleetView:
    """One response to GET_BROKER_CLUSTER_INFO (106)."""

    brokers: Mapping[Position, Listed]
    skipped: tuple[str, ...] = ()
    """Entries that a history row cannot hold, with the reason: a broker id of -1 (DLedger before its election)."""


def read_cluster_info(body: bytes) -> FleetView:
    """Read the body of a response to 106 (RocketMQ ``ClusterInfo``). Raises BadBodyError."""
    table = to_object(read_object(body).get("brokerAddrTable"), "brokerAddrTable")
    brokers: dict[Position, Listed] = {}
    skipped: list[str] = []
    for name, data in table.items():
        entry = to_object(data, f"brokerAddrTable[{shown(name)}]")
        cluster, zone = _text(entry.get("cluster")), _text(entry.get("zoneName"))
        for number, addr in to_object(entry.get("brokerAddrs"), f"brokerAddrs of {shown(name)}").items():
            problem = next(_problems(cluster, name, number, addr, zone), None)
            if problem is not None:
                if len(skipped) < MAX_SKIPPED:
                    skipped.append(f"broker {name!r} id {number} of cluster {cluster!r}: {problem}"[:300])
                continue
            if len(brokers) >= MAX_BROKERS:
                raise BadBodyError(f"the name server lists more than {MAX_BROKERS} brokers, the limit of the observer")
            brokers[Position(cluster, name, int(number))] = Listed(str(addr), zone)
    return FleetView(brokers, tuple(skipped))


def read_topic_list(body: bytes) -> list[str]:
    """Read the body of a response to 206 (RocketMQ ``TopicList``). Raises BadBodyError."""
    topics = list_of(read_object(body), "topicList")
    return [topic for topic in topics if isinstance(topic, str) and registered_name_problem(topic) is None]


def read_route(body: bytes) -> Iterator[tuple[str, str, QueueConfig]]:
    """Yield cluster, broker name and queues of each broker name of a route (105, RocketMQ ``TopicRouteData``).

    Unreadable entries are skipped. Raises BadBodyError.
    """
    route = read_object(body)
    brokers, queues = list_of(route, "brokerDatas"), list_of(route, "queueDatas")
    clusters = {_text(data.get("brokerName")): _text(data.get("cluster")) for data in brokers if isinstance(data, dict)}
    for data in queues:
        if not isinstance(data, dict):
            continue
        name = _text(data.get("brokerName"))
        config = QueueConfig(
            _number(data.get("readQueueNums"), MAX_QUEUES),
            _number(data.get("writeQueueNums"), MAX_QUEUES),
            _number(data.get("perm"), PERM_MASK),
            _number(data.get("topicSysFlag"), MAX_TOPIC_SYS_FLAG),
        )
        if name in clusters and min(config) >= 0:
            yield clusters[name], name, config


def _problems(cluster: str, name: str, number: str, addr: object, zone: str) -> Iterator[str]:
    for field, text in (("cluster", cluster), ("name", name)):
        if problem := registered_name_problem(text):
            yield f"{field} {problem}"
    if not (number.isascii() and number.isdigit() and len(number) <= 10 and int(number) <= MAX_BROKER_ID):
        yield f"id must be a number from 0 to {MAX_BROKER_ID}"
    if problem := addr_problem(addr) if isinstance(addr, str) else "is not a string":
        yield f"address {addr!r} {problem}"
    if problem := text_problem(zone):
        yield f"zone {problem}"


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _number(value: object, highest: int) -> int:
    """Return a number from 0 to ``highest``; -1 for anything else."""
    return value if is_whole(value, 0, highest) else -1
