"""What the pages are made of: facts that the event loop hands over and HTTP threads only read."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Generic, NamedTuple, TypeVar

from pointsman.v1 import admin_service_pb2, broker_pb2
from pointsman_namesrv.core.departed import AbsentBroker
from pointsman_namesrv.core.flap_penalties import FlapScore
from pointsman_namesrv.core.fleet_queues import BrokerLag, BrokerQueue, Finding, GroupNow, TopicNow
from pointsman_namesrv.core.model import BrokerIdentity, GroupKey, Health, QueueConfig, Registration
from pointsman_namesrv.core.replica_state import Phase, ReplicaState
from pointsman_namesrv.history.row import Record
from pointsman_namesrv.rpc.watch_hub import WatcherFacts
from pointsman_namesrv.web.peer_comparison import PeerResult

T = TypeVar("T")
ALARM, WARNING = "alarm", "warning"
MAX_HOLDERS = 100
"""Broker names with a topic that its page shows."""


class Link(NamedTuple):
    """A text that leads to a page."""

    text: str
    path: str


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong, in one sentence."""

    severity: str
    """ALARM or WARNING."""
    text: str
    path: str = ""
    """The page that shows it; empty: none."""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """The name server itself."""

    node: str
    addr: str
    version: str
    state: str
    uptime: float
    """Seconds."""
    at: datetime
    """When the facts were collected, UTC."""
    report_url: str
    broker_url: str
    """Template of a link for one broker; empty: none."""
    runbook_url: str
    """Address of the runbook; empty: unknown."""
    is_reading: bool
    """Whether it still reads its history, so that earlier events are missing."""
    servers: tuple[str, ...]
    """Addresses of all name servers, for commands: itself, and those that it compares itself with."""
    observes: tuple[str, ...] = ()
    """Addresses of the name servers that it polls; empty: it is a name server itself."""

    @property
    def started_at(self) -> datetime:
        """Return when this process started."""
        return self.at - timedelta(seconds=self.uptime)


class BrokerRow(NamedTuple):
    """One replica, registered or lost. Objects of the core that never change are shared with it."""

    registration: Registration
    state: ReplicaState
    state_for: float | None
    """Seconds; None: unknown after a restart."""
    silence: float | None
    """Seconds since its last heartbeat; None: it is lost, or heartbeats are unknown."""
    health: Health
    score: FlapScore | None
    write_wiped: bool
    in_window: bool
    has_stream: bool

    @property
    def identity(self) -> BrokerIdentity:
        """Return who it is."""
        return self.registration.identity

    @property
    def is_lost(self) -> bool:
        """Return whether it is no longer registered."""
        return self.state.phase is Phase.GONE

    @property
    def penalty(self) -> float:
        """Return its flap penalty."""
        return 0.0 if self.score is None else self.score.penalty


@dataclass(frozen=True, slots=True)
class EventsData:
    """The events in memory."""

    node: NodeFacts
    by_name: Mapping[GroupKey, Sequence[Record]]
    """Oldest first; an empty broker name: those of the complete cluster."""
    known_since: datetime
    """The time from which on events are in memory: the start, or before it what was read back from the history."""


@dataclass(frozen=True, slots=True)
class FleetData:
    """All brokers, and what is wrong."""

    node: NodeFacts
    problems: Sequence[Problem]
    rows: Sequence[BrokerRow]
    """Unsorted."""
    headless: Sequence[GroupKey]
    """Broker names without a routed master."""
    guards: Mapping[str, admin_service_pb2.GuardStatus]
    peers: Sequence[PeerResult]
    peers_checked: Sequence[float | None]
    """Age of each comparison in seconds."""
    events: EventsData


@dataclass(frozen=True, slots=True)
class BrokerData:
    """One broker name with everything that is known about it."""

    node: NodeFacts
    key: GroupKey
    statuses: Sequence[broker_pb2.BrokerStatus]
    rows: Sequence[BrokerRow]
    """Registered and lost replicas, by broker id."""
    guard: admin_service_pb2.GuardStatus | None
    windows: Sequence[admin_service_pb2.MaintenanceWindow]
    records: Sequence[Record]
    """Oldest first."""
    topics: Mapping[str, QueueConfig]
    hidden: frozenset[str]
    read_only: bool
    """Whether its topics cannot be written at the moment."""
    peers: Sequence[PeerResult]


@dataclass(frozen=True, slots=True)
class TopicsData:
    """All topics, each as a place in parallel arrays: 100,000 objects would take ten times the memory."""

    node: NodeFacts
    names: Sequence[str]
    """Sorted."""
    known: array[int]
    """Broker names that have the topic."""
    up: array[int]
    """Of these, those with a routed broker."""
    writable: array[int]
    """Of these, those whose master is routed and takes messages."""
    queues: array[int]
    """Queues that can be written."""
    clusters: Sequence[str]


@dataclass(frozen=True, slots=True)
class LiveData:
    """Topics, groups and lags as agents measured them last; of a large fleet the busiest and those furthest behind."""

    node: NodeFacts
    topics: Mapping[tuple[str, str], TopicNow]
    """By cluster and topic."""
    groups: Sequence[tuple[GroupNow, Sequence[Finding]]]
    """Those furthest behind first."""
    queues: Sequence[BrokerQueue]
    """Of one topic; none of all topics together."""
    lags: Sequence[BrokerLag]
    broker_count: int
    measured_count: int
    is_read: bool = True
    """False: the measurements are being read for the first time, and nothing is known yet."""


class Holder(NamedTuple):
    """One broker name that has a topic."""

    key: GroupKey
    queues: QueueConfig
    """As the broker registered them."""
    perm: int
    """Permissions as clients see them."""
    replicas: Sequence[BrokerRow]
    wiped: bool


@dataclass(frozen=True, slots=True)
class TopicData:
    """One topic."""

    node: NodeFacts
    topic: str
    holders: Sequence[Holder]
    live: LiveData
    """What the agents of the first MAX_HOLDERS of them measured of the topic."""
    absent: Sequence[tuple[AbsentBroker, float | None]]
    """Brokers that had it and are not routed, with the seconds since when."""
    order: str
    """Its order configuration; empty: none."""
    surpluses: Sequence[str]
    """Sentences about queues that the order configuration has and brokers lack."""
    is_static: bool
    hidden_on: Sequence[GroupKey]
    watchers: int


@dataclass(frozen=True, slots=True)
class HistoryRows(Generic[T]):
    """Events, or changes by operators, from the history, or as far as they are in memory."""

    node: NodeFacts
    rows: Sequence[T]
    """The newest first."""
    span: tuple[datetime, datetime] | None = None
    """The time of the history that was asked for; None: these are in memory."""
    first_day: date | None = None
    """Of the history; None: there is none."""
    next_token: str = ""
    """With which the same question continues to older ones of that time; empty: there are none."""
    problem: str = ""
    """Why they are those in memory; empty: they are from the history."""


class ClientKind(NamedTuple):
    """RocketMQ clients of one kind and version."""

    language: str
    version: str
    brokers: int
    """Connections of brokers that register themselves."""
    clients: int


@dataclass(frozen=True, slots=True)
class ConnectedData:
    """Who is connected."""

    node: NodeFacts
    agents: Mapping[tuple[str, str], tuple[int, int]]
    """By kind of source (agent, or the broker itself) and version: registrations, and those with an open stream."""
    keep_alive_streams: int
    watchers: Sequence[WatcherFacts]
    """The oldest, at most some."""
    watcher_count: int
    watched_topics: int
    watcher_hosts: Sequence[tuple[str, int]]
    """The most frequent first."""
    rocketmq: Sequence[ClientKind]
    rocketmq_count: int | None
    """None: RocketMQ's wire is off."""
    now: float
    """Monotonic seconds."""


def row_of_lost(registration: Registration, state: ReplicaState, gone_for: float, score: FlapScore | None) -> BrokerRow:
    """Return the row of a broker that was lost."""
    return BrokerRow(
        registration,
        state,
        gone_for,
        None,
        registration.health,
        score,
        write_wiped=False,
        in_window=False,
        has_stream=False,
    )


WORST_FIRST = (Phase.OUT, Phase.GONE, Phase.PROTECTED, Phase.SUSPECT, Phase.PROVISIONAL, Phase.UP)
RANKS = {phase: rank for rank, phase in enumerate(WORST_FIRST)}


def nothing_read(node: NodeFacts) -> LiveData:
    """Return that the measurements are not read yet."""
    return LiveData(
        node=node, topics={}, groups=[], queues=[], lags=[], broker_count=0, measured_count=0, is_read=False
    )
