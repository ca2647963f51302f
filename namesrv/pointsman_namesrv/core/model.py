"""The nouns of the core: who a broker is, what it declares, which queues it has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from pointsman.wire.names import PERM_WRITE

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
    """A place in a replica group, whoever holds it."""

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
        """The group it belongs to."""
        return GroupKey(self.cluster, self.broker_name)

    @property
    def position(self) -> Position:
        """What it claims."""
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

    def read_only(self) -> QueueConfig:
        """The same queues without the write bit."""
        return self if not self.perm & PERM_WRITE else self._replace(perm=self.perm & ~PERM_WRITE)


TopicTable = Mapping[str, QueueConfig]


class ProbeVerdict(StrEnum):
    """What an agent's probe says of its broker."""

    UNKNOWN = "UNKNOWN"
    PASSING = "PASSING"
    FAILING = "FAILING"


class Evidence(StrEnum):
    """How much a failing probe proves (design, section 5)."""

    WEAK = "WEAK"
    """The fault may be the probe's, the network's or ours."""
    STRONG = "STRONG"
    """The broker itself refuses to serve."""


class Health(NamedTuple):
    """A probe's verdict and, for people, what it met."""

    verdict: ProbeVerdict = ProbeVerdict.UNKNOWN
    detail: str = ""
    evidence: Evidence = Evidence.WEAK
    """Of a failing probe."""
    ever_passed: bool | None = None
    """Whether the probe has passed since it was configured; None: its agent does not know."""

    @property
    def failing(self) -> Evidence | None:
        """The evidence on which the probe fails; None: it does not fail."""
        return self.evidence if self.verdict is ProbeVerdict.FAILING else None


class NodeState(StrEnum):
    """What this name server may be asked."""

    WARMING = "WARMING"
    """Just started: it answers what it knows, and says "not yet" of what it may not have heard of."""
    READY = "READY"
    DRAINING = "DRAINING"
    """About to stop, or told to send its clients elsewhere."""


class FromBroker(NamedTuple):
    """Marks a registration that a RocketMQ broker made itself, over RocketMQ's own wire."""

    acting_master: bool = False
    """``enableActingMaster`` as it was sent. Its slaves stand in for their master whatever it says: that is how
    RocketMQ's consumers go on reading from them."""


@dataclass(frozen=True, slots=True, kw_only=True, weakref_slot=True)
class Registration:
    """Everything a broker says of itself. Times are seconds."""

    identity: BrokerIdentity
    topics: TopicTable
    data_version: DataVersion = DataVersion()
    heartbeat_interval: float = 30.0
    expiry: float = 120.0
    acting_master: bool = True
    """Whether this replica, with the lowest id and no master alive, brings its topics read-only."""
    incarnation: str = ""
    """The broker's process; empty when the agent does not know it."""
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

    @property
    def shown_acting_master(self) -> bool:
        """The acting-master flag as clients are shown it."""
        return self.acting_master if self.from_broker is None else self.from_broker.acting_master
