"""The brokers that a RocketMQ name server lists at one moment, read from its responses. Pure."""

from __future__ import annotations

import hashlib
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
MAX_ROUTE_ITEMS = 100_000
"""Brackets, commas, colons and texts read from one route: those of about 4,000 broker names. Routes are requested more
often than the rest."""
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


class Route(NamedTuple):
    """One response to GET_ROUTEINFO_BY_TOPIC (105)."""

    queues: list[tuple[str, str, QueueConfig]]
    """Cluster, broker name and queues of each broker name."""
    digest: int
    """Equal for routes that mean the same to a client; 0: no broker."""


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


def read_route(body: bytes) -> Route:
    """Read the route of a topic (105, RocketMQ ``TopicRouteData``); unreadable entries are skipped.

    Raises BadBodyError.
    """
    route = read_object(body, max_items=MAX_ROUTE_ITEMS)
    brokers = [data for data in list_of(route, "brokerDatas") if isinstance(data, dict)]
    clusters = {_text(data.get("brokerName")): _text(data.get("cluster")) for data in brokers}
    queues = []
    for data in list_of(route, "queueDatas"):
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
            queues.append((clusters[name], name, config))
    return Route(queues, _digest(brokers, queues))


def _digest(brokers: list[dict[str, object]], queues: list[tuple[str, str, QueueConfig]]) -> int:
    """Return a digest of what a route means to a client: brokers with addresses, queues, permissions; in any order."""
    parts = [repr((cluster, name, tuple(config[:4]))) for cluster, name, config in queues]
    for data in brokers:
        addrs = data.get("brokerAddrs")
        by_id = sorted((number, _text(addr)) for number, addr in addrs.items()) if isinstance(addrs, dict) else []
        parts.append(repr((_text(data.get("cluster")), _text(data.get("brokerName")), by_id)))
    digest = hashlib.blake2b(digest_size=8)
    for part in sorted(parts):
        digest.update(f"{part}\n".encode(errors="surrogatepass"))
    return int.from_bytes(digest.digest(), "big") if parts else 0


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
