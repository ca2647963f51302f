"""The page of a broker name: why it is in its state, what happened to it, what it registered. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from pointsman.names import PERM_WRITE
from pointsman.v1 import admin_service_pb2, broker_pb2
from pointsman.wire.broker_explanation import (
    Fact,
    event_sentence,
    gone_facts,
    gone_since,
    position_of_status,
    replica_facts,
    since_text,
)
from pointsman.wire.json_document import enum_name
from pointsman.wire.operator_texts import duration_text, guard_text, perm_text, time_text, utc_of
from pointsman.wire.outage_timeline import Outage, TimelineEvent, timeline_of
from pointsman.wire.wire_time import seconds_of
from pointsman_namesrv.core.broker_events import OWNER
from pointsman_namesrv.core.model import Position, QueueConfig
from pointsman_namesrv.core.replica_state import Phase
from pointsman_namesrv.rpc.admin_codec import broker_event
from pointsman_namesrv.web.fleet_page import at_peer
from pointsman_namesrv.web.page_data import BrokerData, BrokerRow
from pointsman_namesrv.web.page_links import (
    broker_path,
    command,
    filled,
    moment_text,
    option,
    topic_path,
    with_parameters,
)
from pointsman_namesrv.web.page_query import AT, Paged, PageQuery, paged
from pointsman_namesrv.web.time_strip import Bar, Curve, penalty_curve, strip

PARAMETERS = ("name", "page", AT)
DAY_HOURS, WEEK_HOURS = 24.0, 168.0
MAX_RUNBOOKS = 3
RUNBOOK: Mapping[str, str] = {
    "PROTECTED": "PointsmanExpiryGuardActive",
    "GONE": "PointsmanBrokersLost",
    "OUT": "PointsmanBrokersUnhealthy",
    "SUSPECT": "PointsmanBrokersUnhealthy",
    "PROVISIONAL": "PointsmanBrokersUnhealthy",
}
"""Sections of the runbook by state."""


@dataclass(frozen=True, slots=True)
class Replica:
    """One replica, registered or gone."""

    broker_id: int
    addr: str
    state: str
    since: str
    facts: Sequence[Fact]
    """As ``pointsmanctl why`` prints them."""
    registration: Sequence[Fact]
    day: Sequence[Bar]
    week: Sequence[Bar]
    curve: Curve | None
    penalty: float
    flapping: bool
    at_peers: Sequence[tuple[str, str, bool]]
    """Address and state at each other name server, and whether it differs."""
    runbook: Sequence[str]
    """Names of sections of the runbook."""


@dataclass(frozen=True, slots=True)
class ShownEvent:
    """One event with its effect, as ``pointsmanctl why`` prints it."""

    at: datetime
    event: str
    reason: str
    broker_id: str
    state: str
    planned: bool
    sentence: str


@dataclass(frozen=True, slots=True)
class ShownTopic:
    """One topic of the broker."""

    name: str
    path: str
    queues: QueueConfig
    perm: str


@dataclass(frozen=True, slots=True)
class BrokerPage:
    """What the template shows."""

    data: BrokerData
    query: PageQuery
    replicas: Sequence[Replica]
    settings: Sequence[str]
    """What operators set: sentences."""
    events: Sequence[ShownEvent]
    """The newest first."""
    outages: Sequence[Outage]
    topics: Paged[ShownTopic]
    owner: str
    dashboard: str
    events_path: str
    week_path: str
    """The page as of now, whose week is that of the history, not of what is in memory."""
    command: str


def broker_page(data: BrokerData, known_since: datetime, query: PageQuery) -> BrokerPage:
    """Explain a broker name. ``known_since``: from when on events are in memory. Raises InvalidRequest."""
    timeline = timeline_of([broker_event(record) for record in data.records])
    here = set(map(position_of_status, data.statuses))
    replicas = list[Replica]()
    rows = {row.identity.position: row for row in data.rows}
    now = data.node.at
    for status in data.statuses:
        position = Position(*position_of_status(status))
        facts = replica_facts(status, timeline.outage_of(position), data.guard, now)
        replicas.append(
            _replica(
                data, known_since, position, status.identity.addr, enum_name(status, "state"), since_text(status), facts
            )
        )
    for place, event in timeline.latest.items():
        if event.state == Phase.GONE.value and place not in here:
            facts = gone_facts(event, timeline.outage_of(place), now)
            since = f"since {time_text(gone_since(event))} (UTC)"
            replicas.append(
                _replica(data, known_since, Position(*place), event.identity.addr, event.state, since, facts)
            )
    explained = {replica.broker_id for replica in replicas}
    replicas += [_lost(data, known_since, row) for row in rows.values() if row.identity.broker_id not in explained]
    name = query.text("name").lower()
    topics = [
        ShownTopic(
            topic,
            topic_path(topic),
            queues,
            perm_text(queues.perm & ~PERM_WRITE if data.read_only else queues.perm),
        )
        for topic, queues in sorted(data.topics.items())
        if topic not in data.hidden and name in topic.lower()
    ]
    owners = {row.registration.labels.get(OWNER, "") for row in data.rows}
    owners |= {str(record.event.detail.get(OWNER, "")) for record in data.records}
    cluster, broker_name = data.key
    servers = data.node.servers
    return BrokerPage(
        data=data,
        query=query,
        replicas=replicas,
        settings=list(_settings(data)),
        events=[shown_event(step) for step in reversed(timeline.events)],
        outages=[outage for outage in reversed(timeline.outages) if not outage.is_first],
        topics=paged(topics, query),
        owner=", ".join(sorted(owners - {""})),
        dashboard=filled(data.node.broker_url, cluster, broker_name),
        events_path=with_parameters("/events", {"broker": broker_name, "cluster": cluster}),
        week_path=with_parameters(broker_path(cluster, broker_name), {AT: moment_text(data.node.at)}),
        command=command(servers, "why", *option("cluster", cluster), argument=broker_name),
    )


def _replica(
    data: BrokerData,
    known_since: datetime,
    position: Position,
    addr: str,
    state: str,
    since: str,
    facts: Iterator[Fact],
) -> Replica:
    row = next((row for row in data.rows if row.identity.position == position), None)
    status = next((each for each in data.statuses if position_of_status(each) == position), None)
    now = data.node.at
    score = None if row is None else row.score
    runbook = [RUNBOOK[state]] if state in RUNBOOK else []
    if score is not None and score.flapping:
        runbook.append("PointsmanBrokersFlapping")
    if status is not None and status.also_at_addr:
        runbook.append("PointsmanAddressConflict")
    return Replica(
        broker_id=position.broker_id,
        addr=addr,
        state=state,
        since=since,
        facts=list(facts),
        registration=list(_registration(status, row, is_observed=bool(data.node.observes))),
        day=strip(data.records, position, now=now, hours=DAY_HOURS, known_since=known_since),
        week=strip(data.records, position, now=now, hours=WEEK_HOURS, known_since=known_since),
        curve=penalty_curve(data.records, position, now=now, hours=DAY_HOURS),
        penalty=0.0 if score is None else score.penalty,
        flapping=score is not None and score.flapping,
        at_peers=[
            (peer.addr, *at_peer(peer, position, Phase(state))) for peer in data.peers if peer.brokers is not None
        ],
        runbook=runbook[:MAX_RUNBOOKS],
    )


def _lost(data: BrokerData, known_since: datetime, row: BrokerRow) -> Replica:
    """Return a broker that was lost, and whose events are no longer in memory."""
    reason = f"{row.state.reason or 'unknown'}{', planned' if row.state.planned else ''}"
    since = "since unknown" if row.state_for is None else f"for {duration_text(row.state_for)}"
    facts = iter([("reason", reason)])
    return _replica(data, known_since, row.identity.position, row.identity.addr, row.state.phase.value, since, facts)


def _registration(
    status: broker_pb2.BrokerStatus | None, row: BrokerRow | None, *, is_observed: bool
) -> Iterator[Fact]:
    if row is None:
        return
    registration = row.registration
    yield "zone", registration.zone
    if is_observed:
        yield "topics", f"{len(registration.topics):,}"
        return
    yield "host", registration.host
    yield "broker", registration.broker_version
    yield "agent", " ".join(filter(None, (registration.agent_addr, registration.agent_version)))
    if registration.from_broker is not None:
        yield "registered by", "the broker itself, over RocketMQ's protocol"
    yield "HA address", registration.ha_addr
    yield "topics", f"{len(registration.topics):,}, version {registration.data_version}"
    yield "incarnation", registration.incarnation
    if status is not None:
        yield "generation", f"{status.generation}"
        yield "registered", f"{time_text(utc_of(status.registered_at))} (UTC)"
    yield "acting master", "yes" if registration.shown_acting_master else "no"
    for name, value in sorted(registration.labels.items()):
        yield f"label {name}", value
    if registration.filter_servers:
        yield "filter servers", " ".join(registration.filter_servers)


def _settings(data: BrokerData) -> Iterator[str]:
    if any(row.write_wiped for row in data.rows):
        yield "An operator wiped the write permission of its topics: producers send to other brokers."
    for window in data.windows:
        what = "this broker name" if window.broker_name else "the complete cluster"
        note = f": {window.note}" if window.note else ""
        by = f", by {window.by}" if window.by else ""
        left = duration_text(seconds_of(window.remaining))
        yield f"A maintenance window of {what} is open for another {left}{by}{note}."
    guard = data.guard
    if guard is not None and (guard.active or guard.mode != admin_service_pb2.GUARD_MODE_AUTO):
        yield f"{guard_text(guard)}."
    if data.hidden:
        yield f"An operator deleted {len(data.hidden)} of its topics: they are hidden until it registers others."


def shown_event(step: TimelineEvent) -> ShownEvent:
    """Return an event as a row."""
    event = step.event
    return ShownEvent(
        utc_of(event.event_at),
        event.event,
        event.reason,
        str(event.identity.broker_id) if event.identity.addr else "",
        event.state,
        event.planned,
        event_sentence(step),
    )
