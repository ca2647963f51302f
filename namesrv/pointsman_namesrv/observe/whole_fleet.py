"""The fleet as all observed name servers list it together. Pure; time is an argument.

A broker is up while one of the watched name servers lists it, and has departed when none of them does. Name servers
that are not watched do not count: while none is watched, nothing changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime

from pointsman_namesrv.core.departed import DepartedBroker
from pointsman_namesrv.core.events import BrokerFacts, Event, EventKind, TopicsPayload
from pointsman_namesrv.core.flap_penalties import FlapScore, Penalties
from pointsman_namesrv.core.group import Replica
from pointsman_namesrv.core.lifecycle import NodeLifecycle
from pointsman_namesrv.core.model import BrokerIdentity, GroupKey, Position, QueueConfig
from pointsman_namesrv.core.replica_state import Phase, ReplicaState
from pointsman_namesrv.history.recent import RecentEvents
from pointsman_namesrv.history.row import Record
from pointsman_namesrv.observe.observed_brokers import ObservedBrokers
from pointsman_namesrv.observe.observed_server import ObservedServer
from pointsman_namesrv.observe.observer_metrics import FleetNumbers
from pointsman_namesrv.observe.polled_events import SOURCE

MAX_SERIES = 300
"""Of clusters and states, the largest: an observed name server may list any number of clusters."""
MAX_PENALTIES = 50
"""Brokers whose penalties are metrics, those with the highest."""


class WorstPenalties(Penalties):
    """The flap penalty of a broker: the highest that it has at one of the name servers."""

    def __init__(self, servers: Iterable[ObservedServer]) -> None:
        super().__init__()
        self._servers = servers

    def record(self, event: Event, *, now: float, in_window: bool = False) -> None:
        """Do nothing: each name server counts its own events."""

    def score(self, position: Position, *, now: float) -> FlapScore | None:
        """Return how much a broker flaps; None without points, or after they decayed."""
        scores = (server.brokers.penalties.score(position, now=now) for server in self._servers)
        return max((each for each in scores if each is not None), key=lambda each: each.penalty, default=None)

    def top(self, *, now: float, cluster: str = "", limit: int = 100) -> list[FlapScore]:
        """Return the brokers with the highest penalties first; equal ones by position."""
        found: dict[Position, FlapScore] = {}
        for server in self._servers:
            for score in server.brokers.penalties.top(now=now, cluster=cluster, limit=limit):
                known = found.get(score.position)
                if known is None or score.penalty > known.penalty:
                    found[score.position] = score
        return sorted(found.values(), key=lambda each: (-each.penalty, each.position))[:limit]

    def flapping_count(self, *, now: float) -> int:
        """Return how many brokers are flapping at one of the name servers."""
        tops = (server.brokers.penalties.top(now=now, limit=len(server.brokers.penalties)) for server in self._servers)
        return len({score.position for scores in tops for score in scores if score.flapping})

    def __len__(self) -> int:
        return max((len(server.brokers.penalties) for server in self._servers), default=0)


class WholeFleet:
    """The brokers of all observed name servers together."""

    def __init__(self, servers: Mapping[str, ObservedServer], *, now: float) -> None:
        self._servers = servers
        self.brokers = ObservedBrokers()
        self.brokers.penalties = WorstPenalties(servers.values())
        self.recent = RecentEvents()
        self.lifecycle = NodeLifecycle(started_at=now, warm_up_seconds=0.0)
        self._started_at = now
        self._seq = 0
        self._departures = 0
        self._returns = 0

    def took(self, event: Event, *, now: float, at: datetime) -> None:
        """Follow an event that the watch of one name server has just applied."""
        self.lifecycle.end_warm_up(now=now, still_provisional=0)
        facts = event.broker
        if facts is None:
            return
        listed = self.listed(facts.identity.position)
        if event.topics is not None:
            self._take_topics(facts, now=now)
        elif listed is None:
            if self.brokers.replica_of(facts.identity) is not None:
                gone = replace(facts, state=_gone(facts.state))
                self._apply(replace(event, broker=gone), now=now, at=at)
        elif facts.state.phase is not Phase.GONE and self._holder(facts.identity) != (listed.identity, facts.zone):
            self._apply(replace(event, broker=replace(facts, identity=listed.identity)), now=now, at=at)

    def went_away(self, addr: str, *, now: float, at: datetime) -> None:
        """Follow the end of a watch: the others decide alone, if there are any."""
        if not any(server.is_watched for server in self._servers.values()):
            return
        detail: dict[str, object] = {"source": SOURCE, "no_longer_watched": addr}
        for _, replica in list(self.brokers.members()):
            if self.listed(replica.identity.position) is None:
                facts = replace(replica.facts(now=now), state=ReplicaState(Phase.GONE), state_for=0.0)
                self._apply(Event(kind=EventKind.EXPIRED, broker=facts, detail=detail), now=now, at=at)

    def read_back(self, *, now: float) -> None:
        """Remember the brokers that an earlier run saw depart, and that are not up."""
        for server in self._servers.values():
            for lost in server.brokers.departed.all():
                position = lost.registration.identity.position
                known = self.brokers.departed.get(position)
                if known is None or lost.at > known.at:
                    self.brokers.absences.restore(DepartedBroker(lost.registration, lost.reason, lost.at), now=now)

    def numbers(self, missing: Collection[Position], *, now: float) -> FleetNumbers:
        """Count the brokers; ``missing``: at one of the watched name servers at least."""
        counts = Counter[tuple[str, str]]()
        for _, replica in self.brokers.members():
            position = replica.identity.position
            counts[position.cluster, "missing" if position in missing else "up"] += 1
        for lost in self.brokers.departed.all():
            counts[lost.registration.identity.cluster, "gone"] += 1
        shown = dict(counts.most_common(MAX_SERIES))
        return FleetNumbers(
            shown, self._departures, self._returns, self.brokers.penalties.top(now=now, limit=MAX_PENALTIES)
        )

    def listed(self, position: Position) -> Replica | None:
        """Return a broker as the first watched name server lists it; None: none of them does."""
        key = GroupKey(position.cluster, position.broker_name)
        for server in self._servers.values():
            group = server.brokers.routes.groups.get(key) if server.is_watched else None
            if group is not None and position.broker_id in group.replicas:
                return group.replicas[position.broker_id]
        return None

    def _holder(self, identity: BrokerIdentity) -> tuple[BrokerIdentity, str] | None:
        replica = self.brokers.replica_of(identity)
        return None if replica is None else (replica.identity, replica.registration.zone)

    def _take_topics(self, facts: BrokerFacts, *, now: float) -> None:
        """Give a broker name the topics that it has at any name server."""
        topics: dict[str, QueueConfig] = {}
        for table in self._tables(facts.identity.group_key):
            topics |= table
        event = Event(kind=EventKind.TOPICS, broker=facts, topics=TopicsPayload(topics))
        self.brokers.apply([event], now=now)

    def _tables(self, key: GroupKey) -> Iterator[Mapping[str, QueueConfig]]:
        for server in reversed(list(self._servers.values())):
            group = server.brokers.routes.groups.get(key)
            if group is not None:
                yield next(iter(group.replicas.values())).registration.topics

    def _apply(self, event: Event, *, now: float, at: datetime) -> None:
        self._departures += event.kind is EventKind.EXPIRED
        is_back = event.broker is not None and self.brokers.departed.get(event.broker.identity.position) is not None
        self._returns += is_back
        self.brokers.apply([event], now=now)
        self._seq += 1
        self.recent.add(Record(event, at, round((now - self._started_at) * 1000), self._seq))


def _gone(state: ReplicaState) -> ReplicaState:
    return state if state.phase is Phase.GONE else ReplicaState(Phase.GONE)
