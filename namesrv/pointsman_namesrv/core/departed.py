"""Departed brokers: lost, not retired. They count as down until they return, or an operator evicts them.

A broker that unregistered or was evicted is retired and not remembered. One that left in any other way may return.
Its topics are known for a time, but no broker is up: a client in the middle of an outage must not get "not found" for
them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

from pointsman_namesrv.core.events import BrokerFacts
from pointsman_namesrv.core.group import Group
from pointsman_namesrv.core.model import MASTER_ID, BrokerIdentity, GroupKey, Position, Reason, Registration
from pointsman_namesrv.core.replica_state import Phase, ReplicaState

REMEMBER_SECONDS = 72 * 3_600.0
"""How long topics are remembered."""
DOWN_SECONDS = 30 * 86_400.0
"""How long a broker counts as down: the days over which the report adds up an error budget (``health.slo_days``)."""


class DepartedBroker(NamedTuple):
    """A broker that was lost."""

    registration: Registration
    """Its last registration."""
    reason: Reason | None
    """None: unknown, at a name server that is observed by polling."""
    at: float
    """When it was removed, monotonic seconds."""
    planned: bool = False
    """Whether it was removed in a maintenance window that is still open."""
    unplanned_at: float | None = None
    """When the window ended that it was removed in, monotonic seconds; None: it was in none, or that is open."""

    @property
    def state(self) -> ReplicaState:
        """Return the state that counts now."""
        return ReplicaState(Phase.GONE, self.reason, self.planned)

    def facts(self, *, now: float) -> BrokerFacts:
        """Return the facts that an event records."""
        last, since = self.registration, self.at if self.unplanned_at is None else self.unplanned_at
        return BrokerFacts(
            last.identity,
            None,
            last.incarnation,
            last.zone,
            last.host,
            last.broker_version,
            last.data_version,
            self.state,
            now - since,
        )


class AbsentBroker(NamedTuple):
    """Why a broker is not in the routes."""

    registration: Registration
    """Its last registration, of a departed one without what :meth:`DepartedBrokers.note` drops."""
    phase: Phase
    """OUT (registered) or GONE."""
    reason: Reason | None
    since: float | None
    """Monotonic seconds; None: unknown after a restart."""

    @property
    def identity(self) -> BrokerIdentity:
        """Return who it is."""
        return self.registration.identity


class DepartedBrokers:
    """The brokers that were lost, the first to leave first; their topics for ``seconds``."""

    def __init__(self, *, seconds: float = REMEMBER_SECONDS) -> None:
        self._seconds = seconds
        self._brokers: OrderedDict[Position, DepartedBroker] = OrderedDict()
        self._with_topics: OrderedDict[Position, None] = OrderedDict()
        self._of_group: dict[GroupKey, dict[int, DepartedBroker]] = {}
        """Those with topics."""
        self._planned: dict[Position, None] = {}
        self.topics = 0
        """Topics of all of them; one that several brokers had counts for each."""
        self.dropped = 0
        """Brokers that were dropped for others, or lost their topics."""

    def __len__(self) -> int:
        return len(self._brokers)

    def all(self) -> list[DepartedBroker]:
        """Return all of them, the first to leave first."""
        return list(self._brokers.values())

    def get(self, position: Position) -> DepartedBroker | None:
        """Return the broker that was lost at a position."""
        return self._brokers.get(position)

    def note(self, broker: DepartedBroker) -> None:
        """Remember a broker that was lost, with its agent and topics."""
        last = broker.registration
        position = last.identity.position
        self.drop(position)
        lean = Registration(
            identity=last.identity,
            topics=last.topics if self._seconds else {},
            data_version=last.data_version,
            acting_master=last.acting_master,
            agent_addr=last.agent_addr,
            from_broker=last.from_broker,
            incarnation=last.incarnation,
            zone=last.zone,
            host=last.host,
            broker_version=last.broker_version,
        )
        broker = self._brokers[position] = broker._replace(registration=lean)
        if broker.planned:
            self._planned[position] = None
        if lean.topics:
            self._with_topics[position] = None
            self._of_group.setdefault(last.identity.group_key, {})[position.broker_id] = broker
            self.topics += len(lean.topics)

    def keep_within(self, *, brokers: int, topics: int) -> list[GroupKey]:
        """Drop the first to leave, or their topics, until these limits hold; return their groups."""
        dropped = []
        while len(self) > brokers:
            dropped.append(self._drop_first())
        while self.topics > topics:
            dropped.append(self._forget_topics(next(iter(self._with_topics))))
        self.dropped += len(dropped)
        return dropped

    def drop(self, position: Position) -> None:
        """Drop a broker that is back, or retired."""
        if position in self._with_topics:
            self._forget_topics(position)
        self._planned.pop(position, None)
        self._brokers.pop(position, None)

    def forget_topics_of(self, key: GroupKey) -> None:
        """Forget the topics of all brokers of a name."""
        for broker_id in list(self._of_group.get(key, ())):
            self._forget_topics(Position(*key, broker_id))

    def end_overdue(self, *, now: float) -> list[GroupKey]:
        """Forget topics, and drop brokers, of which both have their time; return the groups."""
        ended = []
        while self._with_topics and now - self._brokers[next(iter(self._with_topics))].at > self._seconds:
            ended.append(self._forget_topics(next(iter(self._with_topics))))
        longest = max(DOWN_SECONDS, self._seconds)
        while self._brokers and now - next(iter(self._brokers.values())).at > longest:
            ended.append(self._drop_first())
        return ended

    def end_windows(self, is_covered: Callable[[GroupKey], bool], *, at_most: int, now: float) -> list[DepartedBroker]:
        """Return those whose maintenance window has ended: from now on their absence is not planned."""
        ended = (who for who in self._planned if not is_covered(GroupKey(who.cluster, who.broker_name)))
        over = list(islice(ended, at_most))
        for position in over:
            del self._planned[position]
            broker = self._brokers[position]._replace(planned=False, unplanned_at=now)
            self._brokers[position] = broker
            if position in self._with_topics:
                self._of_group[broker.registration.identity.group_key][position.broker_id] = broker
        return [self._brokers[position] for position in over]

    def _drop_first(self) -> GroupKey:
        position = next(iter(self._brokers))
        self.drop(position)
        return GroupKey(position.cluster, position.broker_name)

    def _forget_topics(self, position: Position) -> GroupKey:
        broker, key = self._brokers[position], GroupKey(position.cluster, position.broker_name)
        self._brokers[position] = broker._replace(registration=replace(broker.registration, topics={}))
        del self._with_topics[position]
        del self._of_group[key][position.broker_id]
        if not self._of_group[key]:
            del self._of_group[key]
        self.topics -= len(broker.registration.topics)
        return key

    def registration_of(self, group: Group) -> Registration | None:
        """Return the registration whose topics a group without topics would have if its brokers were up.

        That of the lowest broker id, registered or lost, if it may act as master.
        """
        found = {broker_id: broker.registration for broker_id, broker in self._of_group.get(group.key, {}).items()}
        found |= {broker_id: replica.registration for broker_id, replica in group.replicas.items()}
        lowest = min(found, default=None)
        if lowest is None or not (lowest == MASTER_ID or found[lowest].acting_master):
            return None
        return found[lowest]

    def all_absent(self, groups: Mapping[GroupKey, Group], cluster: str = "") -> list[AbsentBroker]:
        """Return the lost brokers and those of ``groups`` that are not routed, of one cluster or all, by identity."""
        keys = sorted(key for key in {*groups, *self._of_group} if not cluster or key.cluster == cluster)
        return [each for key in keys for each in self.absent(key, groups.get(key))]

    def absent(self, key: GroupKey, group: Group | None) -> list[AbsentBroker]:
        """Return each broker of a group that is lost or not routed, by broker id."""
        found = [
            AbsentBroker(broker.registration, Phase.GONE, broker.reason, broker.at)
            for broker in self._of_group.get(key, {}).values()
        ]
        if group is not None:
            found += [
                AbsentBroker(replica.registration, replica.state.phase, replica.state.reason, replica.state_since)
                for replica in group.replicas.values()
                if not replica.is_routed
            ]
        return sorted(found, key=lambda broker: broker.identity)
