"""Restored brokers are corrected by their last events: the snapshot may be older than the end of the run before.

The snapshot is written at intervals, an event within a second. So a broker that was lost, left or began to refuse
service shortly before a crash is restored as if nothing had happened. The younger of the two counts, and only until
the broker itself is heard: what this run knows is never changed.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import NamedTuple

from pointsman_namesrv.core.broker_events import OUTLIVED_WINDOW
from pointsman_namesrv.core.broker_tables import BrokerTables
from pointsman_namesrv.core.departed import DOWN_SECONDS, DepartedBroker
from pointsman_namesrv.core.events import BrokerFacts, Event, EventKind
from pointsman_namesrv.core.group import Group, Replica
from pointsman_namesrv.core.model import DataVersion, Evidence, Health, ProbeVerdict, Reason, Registration
from pointsman_namesrv.core.replica_state import Facts, Phase, replica_state

SAME_SECONDS = 1.0
"""Times of one departure that differ by less are equal: they were converted between clocks."""


class LastEvent(NamedTuple):
    """The last event of a position in earlier runs, with the state after it."""

    event: Event
    """About a broker."""
    at: float
    """Monotonic seconds of this run; before its start."""
    order: tuple[int, int] = (0, 0)
    """Its place in the history: run and number."""

    @property
    def broker(self) -> BrokerFacts:
        """Return the broker that the event is about."""
        assert self.event.broker is not None, "an event about a broker"
        return self.event.broker

    @property
    def since(self) -> float:
        """Return when the state began, monotonic seconds."""
        return self.at - (self.broker.state_for or 0.0)


def apply_last_event(core: BrokerTables, last: LastEvent, *, is_younger: bool | None = None, now: float) -> str:
    """Correct what the snapshot restored for a position; return the difference for the log, empty if there is none.

    ``is_younger``: whether the event came after what the snapshot contains; None: unknown, then it is applied to the
    registration that it is about.

    No event is returned: the event that is applied is in the history already.
    """
    identity = last.broker.identity
    group = core.routes.groups.get(identity.group_key)
    replica = None if group is None else group.replicas.get(identity.broker_id)
    if group is None or replica is None:
        return "" if is_younger is False else _correct_absence(core, last, now=now)
    return _correct_replica(core, group, replica, last, is_younger=is_younger, now=now)


def _correct_replica(
    core: BrokerTables, group: Group, replica: Replica, last: LastEvent, *, is_younger: bool | None, now: float
) -> str:
    broker, was = last.broker, replica.state.phase
    is_same = broker.generation == replica.generation and broker.identity == replica.identity
    if broker.state.phase is Phase.OUT and was is Phase.OUT and replica.state_since is None:
        replica.state_since = last.since
        return ""
    if not replica.is_provisional or is_younger is False:
        return ""
    if is_younger is None and not is_same:
        return "the history has another registration, and which one is older is unknown"
    if broker.state.phase is Phase.GONE:
        del group.replicas[broker.identity.broker_id]
        core.held.count(replica, -1)
        core.addresses.discard(replica)
        if last.event.kind is EventKind.EXPIRED:
            core.departed.note(_departed(core, replace(replica.registration, identity=broker.identity), last))
        core.routes.refresh(group)
        return f"restored as {was}, but it left the routes later"
    if broker.state.phase is Phase.OUT and was is not Phase.OUT:
        health = Health(ProbeVerdict.FAILING, str(last.event.detail.get("probe", "")), _evidence(last.event), True)
        _enter(core, group, replica, health, planned=broker.state.planned, now=now)
        replica.state_since = last.since
        return f"restored as {was}, but its probe failed later"
    if broker.state.phase is not Phase.OUT and was is Phase.OUT:
        _enter(core, group, replica, Health(ever_passed=True), planned=False, now=now)
        return "restored as OUT, but it recovered later"
    return ""


def _enter(core: BrokerTables, group: Group, replica: Replica, health: Health, *, planned: bool, now: float) -> None:
    # As if the snapshot had contained this health.
    replica.health = health
    replica.failing_since = None if health.failing is None else -inf
    facts = Facts(failing=health.failing, is_provisional=True, in_window=planned)
    replica.enter(replica_state(facts), now=now)
    core.routes.refresh(group)


def _correct_absence(core: BrokerTables, last: LastEvent, *, now: float) -> str:
    broker, position = last.broker, last.broker.identity.position
    known = core.departed.get(position)
    if broker.state.phase is not Phase.GONE:
        if known is None:
            return "the snapshot does not contain it, and it was registered"
        # Its registration is not known. So much is certain: it was up until then, and is not registered now.
        core.departed.note(known._replace(reason=Reason.SILENCE, at=last.at, planned=False, unplanned_at=None))
        return "restored as lost, but it had returned later"
    if last.event.kind is not EventKind.EXPIRED:
        if known is None:
            return ""
        core.absences.retire(position, detail={})
        return "restored as lost, but it was retired later"
    if known is None:
        lost = _departed(core, _without_topics(broker), last)
        if now - lost.at > DOWN_SECONDS:
            return ""
        core.absences.restore(lost, now=now)
        return "the snapshot does not contain it, and it was lost"
    lost = _departed(core, replace(known.registration, identity=broker.identity), last)
    if known.reason is lost.reason and abs(known.at - lost.at) < SAME_SECONDS:
        return ""
    core.departed.note(lost)
    return "restored as lost, but it was lost again later"


def _departed(core: BrokerTables, registration: Registration, last: LastEvent) -> DepartedBroker:
    detail, reason = last.event.detail, last.event.reason
    outlived, absent = detail.get(OUTLIVED_WINDOW) is True, detail.get("absent_seconds")
    began = last.at - absent if isinstance(absent, int | float) else last.since
    if reason is None and core.hears_brokers:
        reason = Reason.SILENCE
    return DepartedBroker(registration, reason, began, last.broker.state.planned, last.at if outlived else None)


def _without_topics(broker: BrokerFacts) -> Registration:
    return Registration(
        identity=broker.identity,
        topics={},
        data_version=broker.data_version or DataVersion(),
        incarnation=broker.incarnation or "",
        zone=broker.zone,
        host=broker.host,
        broker_version=broker.broker_version,
    )


def _evidence(event: Event) -> Evidence:
    return Evidence.STRONG if event.reason is Reason.REFUSED else Evidence.WEAK
