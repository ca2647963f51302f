"""The pages of the fleet, of a broker name and of a topic as they were at a moment in the past. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from pointsman.history.past_route import ROUTE, RouteResult, explanation_of
from pointsman.history.replay import ReplicaView
from pointsman.wire.broker_explanation import Fact, outage_facts
from pointsman.wire.operator_texts import POLLED, counted, duration_text, explanation, perm_text, time_text
from pointsman.wire.outage_timeline import Outage, Timeline, timeline_of
from pointsman.wire.refusals import FieldViolation, refuse_if_any
from pointsman_namesrv.core.broker_events import OWNER
from pointsman_namesrv.core.model import Position
from pointsman_namesrv.history.past_questions import BROKER_EVENT_DAYS, MAX_EVENTS
from pointsman_namesrv.rpc.past_queries import past_event
from pointsman_namesrv.web.broker_name_page import DAY_HOURS, WEEK_HOURS, ShownEvent, shown_event
from pointsman_namesrv.web.page_data import WORST_FIRST, NodeFacts
from pointsman_namesrv.web.page_links import (
    broker_path,
    command,
    filled,
    moment_text,
    option,
    topic_path,
    with_parameters,
)
from pointsman_namesrv.web.page_query import AT, Paged, PageQuery, distinct, paged
from pointsman_namesrv.web.past_source import PastAnswer, records_of
from pointsman_namesrv.web.time_strip import Bar, Curve, penalty_curve, strip

UNKNOWN = "UNKNOWN"
PAST_STATES = (*(phase.value for phase in WORST_FIRST), UNKNOWN)
PAST_PARAMETERS = ("name", "state", "cluster", "zone", "owner", "page", AT)
"""Parameters of the fleet's page that its past has."""


@dataclass(frozen=True, slots=True)
class AsOf:
    """The moment, and where to go from it."""

    at: datetime
    ago: float
    """Seconds before now."""
    now: str
    """Address of the page as it is now."""
    previous: str
    """Address of the page at the event before the moment; empty: there is none within a week."""
    next: str
    warnings: Sequence[str]
    """What is missing of the history: sentences."""


@dataclass(frozen=True, slots=True)
class PastReplica:
    """A replica of a broker name at the moment."""

    broker_id: int
    addr: str
    state: str
    planned: bool
    since: str
    facts: Sequence[Fact]
    day: Sequence[Bar] = ()
    week: Sequence[Bar] = ()
    """Times out of the routes before the moment; of the page of a broker alone, like the curve."""
    curve: Curve | None = None


@dataclass(frozen=True, slots=True)
class PastTopic:
    """One topic of a broker at the moment."""

    name: str
    path: str
    """Its page at the same moment."""
    read: int
    write: int
    perm: str


@dataclass(frozen=True, slots=True)
class PastBrokerPage:
    """What the template shows."""

    node: NodeFacts
    query: PageQuery
    as_of: AsOf
    cluster: str
    broker_name: str
    is_known: bool
    """False: rows are missing that may have changed a state."""
    wiped: bool
    owner: str
    """The teams that own it; empty: the week before the moment does not name one."""
    dashboard: str
    replicas: Sequence[PastReplica]
    outages: Sequence[Outage]
    """The newest first."""
    events: Sequence[ShownEvent]
    """The newest first."""
    topics: Paged[PastTopic]
    more_topics: int
    """Topics that the answer leaves out."""
    command: str

    @property
    def title(self) -> str:
        """Return what is shown."""
        return self.broker_name


@dataclass(frozen=True, slots=True)
class PastHolder:
    """A broker name that had the topic."""

    cluster: str
    broker_name: str
    path: str
    """Its page at the same moment."""
    is_known: bool
    """False: rows are missing that may have changed it."""
    queues: tuple[str, str, str] | None
    """Read queues, write queues and permissions; None: it was not in the route."""
    note: str
    replicas: Sequence[PastReplica]

    @property
    def is_writable(self) -> bool:
        """Return whether producers sent to it."""
        return self.queues is not None and "w" in self.queues[2]


@dataclass(frozen=True, slots=True)
class PastTopicPage:
    """What the template shows."""

    node: NodeFacts
    query: PageQuery
    as_of: AsOf
    topic: str
    headline: str
    severity: str
    holders: Sequence[PastHolder]
    command: str

    @property
    def title(self) -> str:
        """Return what is shown."""
        return self.topic


@dataclass(frozen=True, slots=True)
class PastRow:
    """A broker in the list of the fleet."""

    name: str
    """Cluster, broker name and, where the state is known, its id."""
    path: str
    """The page of its broker name at the same moment."""
    addr: str
    state: str
    planned: bool
    since: str
    event: str
    zone: str
    owner: str


@dataclass(frozen=True, slots=True)
class PastFleetPage:
    """What the template shows."""

    node: NodeFacts
    query: PageQuery
    as_of: AsOf
    states: Mapping[str, int]
    """Number of brokers by state, the worst first."""
    brokers: Paged[PastRow]
    choices: Mapping[str, Sequence[str]]
    command: str

    @property
    def title(self) -> str:
        """Return what is shown."""
        return "Fleet"


def past_fleet_page(found: PastAnswer, query: PageQuery) -> PastFleetPage:
    """Show all brokers as they were, those that were not UP first. Raises InvalidRequest."""
    refuse_if_any(
        FieldViolation(f"?{name}", f"is of now: a moment of the past has {', '.join(PAST_PARAMETERS)}")
        for name, value in query.parameters.items()
        if value and name not in PAST_PARAMETERS
    )
    name, cluster = query.text("name").lower(), query.text("cluster")
    zone, owner = query.text("zone"), query.text("owner")
    state = query.choice("state", PAST_STATES)
    replicas: Sequence[Mapping[str, Any]] = found.answer["replicas"]
    counts = Counter(_state_of(one) for one in replicas)

    def is_shown(one: Mapping[str, Any]) -> bool:
        text = f"{one['cluster']}/{one['broker_name']} {one['addr'] or ''}".lower()
        is_there = (not zone or zone == one["zone"]) and (not owner or owner == one["owner"])
        return is_there and name in text and (not state or state == _state_of(one))

    rows = [one for one in replicas if is_shown(one)]
    rows.sort(key=lambda one: (PAST_STATES.index(_state_of(one)), one["cluster"], one["broker_name"]))
    part = paged(rows, query)
    return PastFleetPage(
        node=found.node,
        query=query,
        as_of=_as_of(found, query),
        states={each: counts[each] for each in PAST_STATES if counts[each]},
        brokers=Paged([_row(one, found.at) for one in part.rows], part.found, part.first, part.before, part.after),
        choices={each: distinct([one[each] for one in replicas]) for each in ("cluster", "zone", "owner")},
        command=_until(found, *option("cluster", cluster)),
    )


def _state_of(one: Mapping[str, Any]) -> str:
    return one["state"] if one["state"] in PAST_STATES else UNKNOWN


def _row(one: Mapping[str, Any], at: datetime) -> PastRow:
    cluster, broker_name, broker_id = one["cluster"], one["broker_name"], one["broker_id"]
    since = None if one["since"] is None else datetime.fromisoformat(one["since"])
    seconds = 0.0 if since is None else max(0.0, (at - since).total_seconds())
    at_nodes = f"at {', '.join(one['nodes'])}" if "nodes" in one else ""
    return PastRow(
        name=f"{cluster}/{broker_name}" if broker_id is None else f"{cluster}/{broker_name}/{broker_id}",
        path=_path_at(broker_path(cluster, broker_name), at),
        addr=one["addr"] or "",
        state=_state_of(one),
        planned=bool(one["planned"]),
        since="; ".join(
            filter(None, ("" if since is None else f"{time_text(since)}, for {duration_text(seconds)}", at_nodes))
        ),
        event=" ".join(filter(None, (one["event"], one["reason"]))),
        zone=one["zone"],
        owner=one["owner"],
    )


def past_broker_page(found: PastAnswer, names: tuple[str, str], query: PageQuery) -> PastBrokerPage:
    """Show a broker name as it was, with its events up to then."""
    cluster, broker_name = names
    rows = found.answer["events"]
    timeline = timeline_of([past_event(row) for row in rows])
    views = [view for broker in _route(found).brokers for view in broker.views]
    records = list(records_of(rows))
    begin = found.at - timedelta(days=BROKER_EVENT_DAYS)
    first_day = found.answer["first_day"]
    # Else a state is known from the first event on.
    is_recorded = first_day is not None and date.fromisoformat(first_day) < begin.date()
    times = {"now": found.at, "known_since": begin if is_recorded else found.at}

    def shown(one: ReplicaView, nodes: Sequence[str]) -> PastReplica:
        position, mine, of_node = Position(cluster, broker_name, one.broker_id), records, timeline
        if found.node.observes:
            # Each name server has its own events; those that agree on a state have the same.
            mine = [record for record in records if record.node == nodes[0]]
            of_node = timeline_of([past_event(row) for row in rows if row["node"] == nodes[0]])
        return replace(
            _replica(one, found, nodes=nodes, outage=of_node.outage_of(position)),
            day=strip(mine, position, hours=DAY_HOURS, most=MAX_EVENTS, **times),
            week=strip(mine, position, hours=WEEK_HOURS, most=MAX_EVENTS, **times),
            curve=penalty_curve(mine, position, now=found.at, hours=DAY_HOURS),
        )

    return PastBrokerPage(
        node=found.node,
        query=query,
        as_of=_as_of(found, query),
        cluster=cluster,
        broker_name=broker_name,
        is_known=all(view.seen.is_known for view in views),
        wiped=any(view.seen.wiped for view in views),
        owner=", ".join(sorted({str(record.event.detail.get(OWNER, "")) for record in records} - {""})),
        dashboard=filled(found.node.broker_url, cluster, broker_name),
        replicas=[shown(one, view.nodes) for view in views for one in view.seen.replicas],
        outages=list(_outages(found, timeline)),
        events=[shown_event(step) for step in reversed(timeline.events)],
        topics=_topics(found, query),
        more_topics=found.answer["topic_count"] - len(found.answer["topics"]),
        command=_command(found, "why", *option("cluster", cluster), argument=broker_name),
    )


def _outages(found: PastAnswer, timeline: Timeline) -> Iterator[Outage]:
    """Yield the outages, the newest first; none of several name servers, whose events are not of one timeline."""
    if not found.node.observes:
        yield from (outage for outage in reversed(timeline.outages) if not outage.is_first)


def _topics(found: PastAnswer, query: PageQuery) -> Paged[PastTopic]:
    name = query.text("name").lower()
    part = paged([row for row in found.answer["topics"] if name in row[0].lower()], query)
    rows = [
        PastTopic(topic, _path_at(topic_path(topic), found.at), read, write, perm_text(perm))
        for topic, read, write, perm in part.rows
    ]
    return Paged(rows, part.found, part.first, part.before, part.after)


def past_topic_page(found: PastAnswer, topic: str, query: PageQuery) -> PastTopicPage:
    """Show the route of a topic as it was."""
    result = _route(found)
    holders = list(_holders(result, found))
    routed, writable = sum(each.queues is not None for each in holders), sum(each.is_writable for each in holders)
    headline = f"{counted(routed, 'broker name')} of {len(holders):,} in its route, {writable:,} can be written"
    if result.outcome != ROUTE:
        reason = explanation_of(result, ZoneInfo("UTC"))
        headline = f"{result.outcome[:1].upper()}{result.outcome[1:]}: {reason}"
    return PastTopicPage(
        node=found.node,
        query=query,
        as_of=_as_of(found, query),
        topic=topic,
        headline=headline,
        severity="ok" if result.outcome == ROUTE and writable == len(holders) else "warning",
        holders=holders,
        command=_command(found, "route", argument=topic),
    )


def _holders(result: RouteResult, found: PastAnswer) -> Iterator[PastHolder]:
    for broker in result.brokers:
        cluster, broker_name = broker.group
        for view in broker.views:
            seen = view.seen
            notes = (
                "" if seen.is_known else "rows of that time are missing",
                "write permission wiped by an operator" if seen.wiped else "",
                "topic deleted by an operator" if seen.hidden else "",
            )
            queues = None
            if seen.queues is not None:
                read, write, perm = seen.queues
                queues = f"{read:,}", f"{write:,}", perm_text(perm)
            yield PastHolder(
                cluster,
                broker_name,
                _path_at(broker_path(cluster, broker_name), found.at),
                seen.is_known,
                queues,
                "; ".join(filter(None, notes)),
                [_replica(one, found, nodes=view.nodes) for one in seen.replicas],
            )


def _replica(one: ReplicaView, found: PastAnswer, *, nodes: Sequence[str], outage: Outage | None = None) -> PastReplica:
    """Show a replica as ``nodes`` had it; one of them unless several name servers are observed."""
    at, is_observed = found.at, bool(found.node.observes)
    since = "since an unknown time, before a restart of the name server"
    if one.since is not None:
        seconds = max(0.0, (at - one.since).total_seconds())
        since = f"for {duration_text(seconds)}, since {time_text(one.since)} (UTC)"
    if is_observed:
        since += f", at {', '.join(nodes)}"
    reason = one.reason or ""
    meaning = explanation(one.event, reason, POLLED if is_observed else "")
    facts = [
        ("last event", f"{one.event} {reason}".rstrip() + (f": {meaning}" if meaning else "")),
        ("recorded", f"{time_text(one.recorded_at)} (UTC)"),
        *outage_facts(outage, at),
    ]
    return PastReplica(one.broker_id, one.addr or "", one.state or UNKNOWN, one.planned, since, facts)


def _route(found: PastAnswer) -> RouteResult:
    """Read the states in an answer; that of a broker name has no topic, that of the fleet no routes."""
    lacks = {"topic": None, "cluster": None, "brokers": ()}
    return RouteResult.from_dict({**lacks, **found.answer})


def _path_at(path: str, at: datetime) -> str:
    return with_parameters(path, {AT: moment_text(at)})


def _as_of(found: PastAnswer, query: PageQuery) -> AsOf:
    steps = {
        side: query.change(**{AT: moment_text(datetime.fromisoformat(step))}) if step else ""
        for side, step in found.answer["steps"].items()
    }
    ago = max(0.0, (found.node.at - found.at).total_seconds())
    return AsOf(found.at, ago, query.change(**{AT: ""}), steps["previous"], steps["next"], list(_warnings(found)))


def _warnings(found: PastAnswer) -> Iterator[str]:
    nodes = _route(found).nodes
    if not nodes:
        last = found.answer["last_row_at"]
        extent = f"; its last row of that day is from {time_text(datetime.fromisoformat(last))} (UTC)" if last else ""
        who = "The observer" if found.node.observes else "This name server"
        yield f"{who} was not recording history at that moment{extent}."
    for node in nodes:
        who = f"name server {node.node}" if found.node.observes else "this name server"
        if node.state != "READY":
            yield f"{who[:1].upper()}{who[1:]} was {node.state} at that moment."
        if node.rows_back_at is not None:
            yield f"Rows of that moment are missing, until {time_text(node.rows_back_at)} (UTC)."
        elif node.rows_missing:
            yield f"{counted(node.rows_missing, 'earlier row')} of {who} are missing."


def _until(found: PastAnswer, *options: str) -> str:
    servers = found.node.servers
    return command(servers, "events", *options, *option("until", moment_text(found.at)))


def _command(found: PastAnswer, *words: str, argument: str) -> str:
    servers = found.node.servers
    return command(servers, *words, *option("at", moment_text(found.at)), argument=argument)
