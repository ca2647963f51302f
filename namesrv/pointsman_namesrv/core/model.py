"""Data types of the core: broker identity, declarations, queues, and the reasons of events and states."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple

from pointsman.names import PERM_WRITE
from pointsman_namesrv.core.static_topics import NO_STATIC_TOPICS, StaticTopics

MASTER_ID = 0


class DataVersion(NamedTuple):
    """Version of a broker's topic set (RocketMQ ``DataVersion``).

    Equality compares all parts; only ``state_version`` is ever ordered.
    """

    state_version: int = 0
    timestamp_millis: int = 0
    counter: int = 0

    def __str__(self) -> str:
        """``state.timestamp.counter``, as the history writes it."""
        return f"{self.state_version}.{self.timestamp_millis}.{self.counter}"


class GroupKey(NamedTuple):
    """Identity of a replica group. The cluster is part of it: the same name in two clusters is two groups."""

    cluster: str
    broker_name: str

    def __str__(self) -> str:
        """``cluster/name``."""
        return f"{self.cluster}/{self.broker_name}"


class Position(NamedTuple):
    """A place in a replica group, independent of its holder."""

    cluster: str
    broker_name: str
    broker_id: int

    def __str__(self) -> str:
        """``cluster/name/id``."""
        return f"{self.cluster}/{self.broker_name}/{self.broker_id}"


class BrokerIdentity(NamedTuple):
    """A claim of one address on one position of a replica group."""

    cluster: str
    broker_name: str
    broker_id: int
    addr: str

    @property
    def group_key(self) -> GroupKey:
        """Return the group of this broker."""
        return GroupKey(self.cluster, self.broker_name)

    @property
    def position(self) -> Position:
        """Return the claimed position."""
        return Position(self.cluster, self.broker_name, self.broker_id)

    def __str__(self) -> str:
        """``cluster/name/id at addr``."""
        return f"{self.cluster}/{self.broker_name}/{self.broker_id} at {self.addr}"


class QueueConfig(NamedTuple):
    """Queues of one topic on one broker: a tuple, because there are topics x brokers of them."""

    read_queue_nums: int
    write_queue_nums: int
    perm: int
    topic_sys_flag: int = 0
    queue_weight: int = 1
    """Messages that each queue gets from producers while a queue of weight 1 gets one; unknown to RocketMQ."""

    def read_only(self) -> QueueConfig:
        """The same queues without the write bit."""
        return self if not self.perm & PERM_WRITE else self._replace(perm=self.perm & ~PERM_WRITE)


TopicTable = Mapping[str, QueueConfig]


class ProbeVerdict(StrEnum):
    """Result of an agent's probe."""

    UNKNOWN = "UNKNOWN"
    PASSING = "PASSING"
    FAILING = "FAILING"


class Evidence(StrEnum):
    """How much a failing probe proves (design, section 5)."""

    WEAK = "WEAK"
    """The fault may be in the probe, the network or the name server."""
    STRONG = "STRONG"
    """The broker itself refuses to serve."""


class Reason(StrEnum):
    """Reason of an event, or of a replica's state."""

    SILENCE = "SILENCE"
    STREAM_BROKEN = "STREAM_BROKEN"
    PROBE = "PROBE"
    """The probe fails on weak evidence, or passes again."""
    REFUSED = "REFUSED"
    """The probe fails on strong evidence: the broker itself refuses to serve."""
    HEARTBEAT = "HEARTBEAT"
    STATE_VERSION = "STATE_VERSION"
    SHUTDOWN = "SHUTDOWN"
    DRAIN = "DRAIN"
    REMOVED_FROM_CONFIG = "REMOVED_FROM_CONFIG"
    SUPERSEDED = "SUPERSEDED"
    """Another identity registered its address; the detail names it."""
    ADMIN = "ADMIN"
    """Requested by an operator, named in the detail."""
    SNAPSHOT = "SNAPSHOT"
    """Known from the snapshot; its first heartbeat was received."""
    SHARE = "SHARE"
    """The guard: too many brokers of a cluster are lost at the same time, or no longer."""
    LIMIT = "LIMIT"
    """The guard has been on for longer than its limit; an operator must check the cluster."""
    TIME_OVER = "TIME_OVER"
    """A timed setting ended."""
    INCARNATION = "INCARNATION"
    """A new process of the broker ended the setting that applied to the previous one."""
    DATA_VERSION = "DATA_VERSION"
    """A new version of its topics ended the setting: the rule for RocketMQ's own brokers."""
    DAY = "DAY"
    """The first rows of a day."""
    START = "START"
    """The first rows of a process."""
    DROPPED = "DROPPED"
    """Rows of the history were lost before."""


class Health(NamedTuple):
    """A probe's verdict and a description of what it found, for operators."""

    verdict: ProbeVerdict = ProbeVerdict.UNKNOWN
    detail: str = ""
    evidence: Evidence = Evidence.WEAK
    """Strength of the evidence; only for a failing probe."""
    ever_passed: bool | None = None
    """Whether the probe has passed since it was configured; None: unknown to its agent."""

    @property
    def failing(self) -> Evidence | None:
        """Return the evidence of a failing probe; None: it does not fail."""
        return self.evidence if self.verdict is ProbeVerdict.FAILING else None


class NodeState(StrEnum):
    """What this name server serves."""

    WARMING = "WARMING"
    """Just started: known topics are served; unknown ones are answered "not yet", because their broker may not have
    registered."""
    READY = "READY"
    DRAINING = "DRAINING"
    """Stopping, or an operator sends its clients to other nodes."""


class FromBroker(NamedTuple):
    """Marks a registration that a RocketMQ broker made itself, over RocketMQ's own wire."""

    acting_master: bool = False
    """``enableActingMaster`` as it was sent. Its slaves act as master regardless: RocketMQ's consumers continue to read
    from them."""


@dataclass(frozen=True, slots=True, kw_only=True, weakref_slot=True)
class Registration:
    """Everything that a broker declares. Times are seconds."""

    identity: BrokerIdentity
    topics: TopicTable
    data_version: DataVersion = DataVersion()
    heartbeat_interval: float = 30.0
    expiry: float = 120.0
    acting_master: bool = True
    """Whether this replica serves its topics read-only when it has the lowest id and no master is alive."""
    incarnation: str = ""
    """The broker's process; empty: unknown to the agent."""
    health: Health = Health()
    ha_addr: str = ""
    agent_addr: str = ""
    zone: str = ""
    host: str = ""
    broker_version: str = ""
    agent_version: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    filter_servers: tuple[str, ...] = ()
    from_broker: FromBroker | None = None
    """None: an agent registered it."""
    static_topics: StaticTopics = NO_STATIC_TOPICS
    """Those of its topics that are static; only of a broker that registered itself."""

    def without(self, deleted: Collection[str]) -> Registration:
        """Return it without some topics."""
        if not deleted:
            return self
        kept = {topic: queues for topic, queues in self.topics.items() if topic not in deleted}
        return replace(self, topics=kept, static_topics=self.static_topics.within(kept))

    def shares_topics_with(self, other: Registration) -> bool:
        """Return whether both have the same tables, compared by identity."""
        return self.topics is other.topics and self.static_topics is other.static_topics

    @property
    def shown_acting_master(self) -> bool:
        """Return the acting-master flag that clients see."""
        return self.acting_master if self.from_broker is None else self.from_broker.acting_master
