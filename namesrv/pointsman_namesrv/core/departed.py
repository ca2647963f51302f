"""Departed brokers: lost, not retired. Their topics are known, but no broker is up.

A broker that unregistered or was evicted is retired and not remembered. One that left in any other way may return.
Until then a client in the middle of an outage must not get "not found" for its topics.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import NamedTuple

from pointsman_namesrv.core.events import Reason
from pointsman_namesrv.core.group import Group
from pointsman_namesrv.core.model import MASTER_ID, BrokerIdentity, GroupKey, Position, Registration
from pointsman_namesrv.core.replica_state import Phase

REMEMBER_SECONDS = 72 * 3_600.0


class DepartedBroker(NamedTuple):
    """A broker that was lost."""

    registration: Registration
    """Its last registration."""
    reason: Reason
    at: float
    """When it was removed, monotonic seconds."""


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
    """The brokers with topics that were lost within ``seconds``, the first to leave first."""

    def __init__(self, *, seconds: float = REMEMBER_SECONDS) -> None:
        self._seconds = seconds
        self._brokers: OrderedDict[Position, DepartedBroker] = OrderedDict()
        self._of_group: dict[GroupKey, dict[int, DepartedBroker]] = {}
        self.topics = 0
        """Topics of all of them; one that several brokers had counts for each."""
        self.dropped = 0
        """Brokers that were dropped for others."""

    def __len__(self) -> int:
        return len(self._brokers)

    def all(self) -> list[DepartedBroker]:
        """Return all of them, the first to leave first."""
        return list(self._brokers.values())

    def note(self, broker: DepartedBroker) -> None:
        """Remember the identity, topics and agent of a broker that was lost."""
        last = broker.registration
        position = last.identity.position
        self.drop(position)
        if not self._seconds or not last.topics:
            return
        lean = Registration(
            identity=last.identity,
            topics=last.topics,
            data_version=last.data_version,
            acting_master=last.acting_master,
            agent_addr=last.agent_addr,
            from_broker=last.from_broker,
        )
        self._brokers[position] = broker._replace(registration=lean)
        self._of_group.setdefault(last.identity.group_key, {})[position.broker_id] = self._brokers[position]
        self.topics += len(last.topics)

    def keep_within(self, *, brokers: int, topics: int) -> list[GroupKey]:
        """Drop the first to leave until these limits hold; return their groups."""
        dropped = []
        while self._brokers and (len(self) > brokers or self.topics > topics):
            dropped.append(self._drop_first())
        self.dropped += len(dropped)
        return dropped

    def drop(self, position: Position) -> None:
        """Drop a broker that is back, or retired."""
        broker = self._brokers.pop(position, None)
        if broker is None:
            return
        key = GroupKey(position.cluster, position.broker_name)
        del self._of_group[key][position.broker_id]
        if not self._of_group[key]:
            del self._of_group[key]
        self.topics -= len(broker.registration.topics)

    def drop_group(self, key: GroupKey) -> None:
        """Drop all brokers of a name."""
        for broker_id in list(self._of_group.get(key, ())):
            self.drop(Position(*key, broker_id))

    def end_overdue(self, *, now: float) -> list[GroupKey]:
        """Drop the brokers that left too long ago; return their groups."""
        ended = []
        while self._brokers and now - next(iter(self._brokers.values())).at > self._seconds:
            ended.append(self._drop_first())
        return ended

    def _drop_first(self) -> GroupKey:
        position = next(iter(self._brokers))
        self.drop(position)
        return GroupKey(position.cluster, position.broker_name)

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
