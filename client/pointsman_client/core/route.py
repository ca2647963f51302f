"""Immutable values of routes. ``routes.codec`` converts them from and to the wire."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from pointsman.names import PERM_READ, PERM_WRITE
from pointsman_client.errors import AbsentBroker

MASTER_ID = 0

BrokerKey = tuple[str, str]
"""A replica group: cluster and broker name. The same name in two clusters is two groups."""


class BrokerState(StrEnum):
    """State of a broker at the name server."""

    UP = "UP"
    SUSPECT = "SUSPECT"
    PROVISIONAL = "PROVISIONAL"
    PROTECTED = "PROTECTED"
    OUT = "OUT"
    UNKNOWN = "UNKNOWN"
    """A state that this version of the client does not know."""


@dataclass(frozen=True, slots=True)
class Revision:
    """Version of a route."""

    boot: int
    """Random id of the name server's process."""
    counter: int
    """Orders revisions of the same boot."""
    digest: bytes
    """Digest of the route, equal on all nodes with the same route."""


@dataclass(frozen=True, slots=True)
class BrokerReplica:
    """One broker of a replica group."""

    broker_id: int
    addr: str
    ha_addr: str
    agent_addr: str
    state: BrokerState
    filter_servers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BrokerData:
    """A replica group: the brokers with the same name, by broker id."""

    cluster: str
    broker_name: str
    replicas: tuple[BrokerReplica, ...]
    zone: str
    acting_master: bool
    master: BrokerReplica | None = field(init=False, compare=False, repr=False)
    """The replica with id 0; None: it is not in the routes."""

    def __post_init__(self) -> None:
        master = next((replica for replica in self.replicas if replica.broker_id == MASTER_ID), None)
        object.__setattr__(self, "master", master)

    @property
    def key(self) -> BrokerKey:
        """The key of the replica group."""
        return self.cluster, self.broker_name


@dataclass(frozen=True, slots=True)
class QueueData:
    """The queues of a topic on one replica group."""

    cluster: str
    broker_name: str
    read_queue_nums: int
    write_queue_nums: int
    perm: int
    topic_sys_flag: int
    queue_weight: int = 1
    """Messages without a key or queue that a producer sends to each of these queues while a queue of weight 1 gets
    one."""

    @property
    def broker_key(self) -> BrokerKey:
        """The replica group."""
        return self.cluster, self.broker_name

    @property
    def is_readable(self) -> bool:
        """Whether consumers may read."""
        return bool(self.perm & PERM_READ)

    @property
    def is_writable(self) -> bool:
        """Whether producers may write."""
        return bool(self.perm & PERM_WRITE)


@dataclass(frozen=True, slots=True)
class TopicRoute:
    """The brokers and queues of a topic."""

    topic: str
    revision: Revision
    queue_datas: tuple[QueueData, ...]
    broker_datas: tuple[BrokerData, ...]
    order_topic_conf: str = ""
    stale: bool = False
    """Whether name servers contradict each other on the removal of a part, which is retained until it is confirmed."""
    absent_brokers: tuple[AbsentBroker, ...] = ()
    """If all brokers of the topic are down: these brokers. There are no queues then. Not in the digest."""
    is_static: bool = False
    """Whether it is a static topic of RocketMQ 5: brokers take queue ids for logical ones, which are not those of
    ``queue_datas``. This client neither sends to such a topic nor consumes it."""

    def is_same_as(self, other: TopicRoute) -> bool:
        """Whether both have the same content, from any name server.

        The digest covers all fields, also those that this version of the client does not read.
        """
        if self.stale != other.stale:
            return False
        if self.revision.digest and other.revision.digest:
            return self.revision.digest == other.revision.digest
        return self._content == other._content

    @property
    def _content(self) -> tuple[object, ...]:
        return (self.topic, self.queue_datas, self.broker_datas, self.order_topic_conf, self.is_static)


@dataclass(frozen=True, slots=True)
class RouteChange:
    """A change of a topic's cached route."""

    topic: str
    old: TopicRoute | None
    """None: the topic was not cached before."""
    new: TopicRoute | None
    """None: the topic was removed."""


@dataclass(frozen=True, slots=True)
class ClusterData:
    """A cluster and its replica groups, by broker name."""

    cluster: str
    broker_datas: tuple[BrokerData, ...]
