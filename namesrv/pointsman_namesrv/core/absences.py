"""What happens to lost brokers until they return: their maintenance windows and their time end, operators retire them.

:class:`~pointsman_namesrv.core.departed.DepartedBrokers` is the list of them. This module changes it together with the
routes and emits the events.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pointsman_namesrv.core.broker_events import evicted_event, outlived_event
from pointsman_namesrv.core.departed import DepartedBroker, DepartedBrokers
from pointsman_namesrv.core.events import Event, EventKind
from pointsman_namesrv.core.group import Group
from pointsman_namesrv.core.holdings import PeerHoldings
from pointsman_namesrv.core.maintenance import MaintenanceWindows
from pointsman_namesrv.core.model import BrokerIdentity, GroupKey, Position, Reason
from pointsman_namesrv.core.node_refusals import BrokerUnknown
from pointsman_namesrv.core.route_table import RouteTable

MAX_ENDED_PER_SWEEP = 200
"""Maximum absences per sweep that outlive their window. The next sweep follows immediately."""


class Absences:
    """The lost brokers of one name server."""

    def __init__(
        self, departed: DepartedBrokers, routes: RouteTable, maintenance: MaintenanceWindows, held: PeerHoldings
    ) -> None:
        self._departed = departed
        self._routes = routes
        self._maintenance = maintenance
        self._held = held
        self.has_more = False
        """Whether the last sweep left some for the next one."""

    def restore(self, broker: DepartedBroker, *, now: float) -> None:
        """Remember a broker that an earlier run had lost, unless its position is held or it left too long ago."""
        identity = broker.registration.identity
        group = self._routes.groups.get(identity.group_key) or Group(identity.group_key)
        if identity.broker_id not in group.replicas:
            self._departed.note(broker)
            self._refresh([group.key, *self._departed.end_overdue(now=now)])
            self.make_room()

    def make_room(self) -> None:
        """Drop lost brokers where they and the registered ones together exceed a bound of the node."""
        self._refresh(self._departed.keep_within(brokers=self._held.brokers.room, topics=self._held.topics.room))

    def sweep(self, *, now: float) -> list[Event]:
        """End maintenance windows, the absences planned by them, and what is remembered for too long."""
        ended = [
            Event(kind=EventKind.MAINTENANCE_OFF, reason=Reason.TIME_OVER, group=window.key)
            for window in self._maintenance.end_overdue(now=now)
        ]
        self._refresh(self._departed.end_overdue(now=now))
        return [*ended, *self.end_windows(now=now)]

    def end_windows(self, *, now: float) -> tuple[Event, ...]:
        """Emit an event for each lost broker whose maintenance window has ended: its outage begins now.

        A start calls it before it records what the snapshot contains.
        """
        covers = self._maintenance.covers
        over = self._departed.end_windows(lambda key: covers(key, now=now), at_most=MAX_ENDED_PER_SWEEP, now=now)
        self.has_more = len(over) == MAX_ENDED_PER_SWEEP
        return tuple(outlived_event(broker, now=now) for broker in over)

    def retire(self, position: Position, *, detail: Mapping[str, object]) -> tuple[BrokerIdentity, tuple[Event, ...]]:
        """Forget a lost broker: it no longer counts as down. Raises BrokerUnknown."""
        broker = self._departed.get(position)
        if broker is None:
            raise BrokerUnknown(position)
        key = GroupKey(position.cluster, position.broker_name)
        if self._routes.registration_behind(key) is broker.registration:
            self._departed.forget_topics_of(key)
        self._departed.drop(position)
        self._refresh([key])
        return broker.registration.identity, (evicted_event(broker, detail=detail),)

    def _refresh(self, keys: Iterable[GroupKey]) -> None:
        for key in keys:
            self._routes.refresh(self._routes.groups.get(key) or Group(key))
