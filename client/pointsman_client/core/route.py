"""What a name server answers, as values that never change. ``routes.codec`` makes them from the wire."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from pointsman.wire.names import PERM_READ, PERM_WRITE

MASTER_ID = 0

BrokerKey = tuple[str, str]
"""A replica group: cluster and broker name. The same name in two clusters is two groups."""


class BrokerState(StrEnum):
    """How the name server sees a broker."""

    UP = "UP"
    SUSPECT = "SUSPECT"
    PROVISIONAL = "PROVISIONAL"
    PROTECTED = "PROTECTED"
    OUT = "OUT"
    UNKNOWN = "UNKNOWN"
    """A state that this version of the client has no word for."""


@dataclass(frozen=True, slots=True)
class Revision:
    """When an answer was made."""

    boot: int
    """The name server's process; random."""
    counter: int
    """Orders answers of one boot, and of one boot only."""
    digest: bytes
    """The same on any node where the route is the same."""


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
    """A replica group: the brokers of one name, by broker id."""

    cluster: str
    broker_name: str
    replicas: tuple[BrokerReplica, ...]
    zone: str
    acting_master: bool

    @property
    def key(self) -> BrokerKey:
        """Which replica group it is."""
        return self.cluster, self.broker_name

    @property
    def master(self) -> BrokerReplica | None:
        """The replica with id 0, if it is in the routes."""
        return next((replica for replica in self.replicas if replica.broker_id == MASTER_ID), None)


@dataclass(frozen=True, slots=True)
class QueueData:
    """The queues of a topic on one replica group."""

    cluster: str
    broker_name: str
    read_queue_nums: int
    write_queue_nums: int
    perm: int
    topic_sys_flag: int

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
class AbsentBroker:
    """A broker of a topic that is not in the routes, and why."""

    cluster: str
    broker_name: str
    broker_id: int
    addr: str
    is_registered: bool
    """Whether its agent is still registered: then its probe fails."""
    reason: str
    """SILENCE, STREAM_BROKEN, PROBE, REFUSED, ...; empty where a name server gave none."""
    since: datetime | None
    """UTC; None: a restart of the name server lost it."""

    def __str__(self) -> str:
        """``c1/broker-a/0 SILENCE since 2026-03-01T12:00:00Z``."""
        since = f" since {self.since:%Y-%m-%dT%H:%M:%SZ}" if self.since is not None else ""
        return f"{self.cluster}/{self.broker_name}/{self.broker_id} {self.reason or 'down'}{since}"


@dataclass(frozen=True, slots=True)
class TopicRoute:
    """Where a topic is."""

    topic: str
    revision: Revision
    queue_datas: tuple[QueueData, ...]
    broker_datas: tuple[BrokerData, ...]
    order_topic_conf: str = ""
    stale: bool = False
    """Name servers contradict each other on whether something of it is gone; what one of them still has is kept."""
    absent_brokers: tuple[AbsentBroker, ...] = ()
    """Where the topic is known and no broker is up, those that had it; then there are no queues. Not in the digest."""

    def is_same_as(self, other: TopicRoute) -> bool:
        """Whether both say the same, whoever answered.

        The digest covers every field, those included that this version of the client does not read.
        """
        if self.stale != other.stale:
            return False
        if self.revision.digest and other.revision.digest:
            return self.revision.digest == other.revision.digest
        return self._content == other._content

    @property
    def _content(self) -> tuple[object, ...]:
        return (self.topic, self.queue_datas, self.broker_datas, self.order_topic_conf)


@dataclass(frozen=True, slots=True)
class RouteChange:
    """A route that differs from the one before."""

    topic: str
    old: TopicRoute | None
    """None when the route was not known before."""
    new: TopicRoute | None
    """None when the topic is gone, and that is believed."""


@dataclass(frozen=True, slots=True)
class ClusterData:
    """A cluster and its replica groups, by broker name."""

    cluster: str
    broker_datas: tuple[BrokerData, ...]
