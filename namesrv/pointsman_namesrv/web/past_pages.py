"""The pages of a broker name and of a topic as they were at a moment in the past. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from pointsman.history.past_route import ROUTE, RouteResult, View, explanation_of
from pointsman.history.replay import ReplicaView
from pointsman.wire.broker_explanation import Fact, outage_facts
from pointsman.wire.operator_texts import counted, duration_text, explanation, perm_text, time_text
from pointsman.wire.outage_timeline import Outage, timeline_of
from pointsman_namesrv.rpc.past_queries import past_event
from pointsman_namesrv.web.broker_name_page import ShownEvent, shown_event
from pointsman_namesrv.web.page_data import NodeFacts
from pointsman_namesrv.web.page_links import broker_path, command, moment_text, option, with_parameters
from pointsman_namesrv.web.page_query import AT, PageQuery
from pointsman_namesrv.web.past_source import PastAnswer

UNKNOWN = "UNKNOWN"


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


@dataclass(frozen=True, slots=True)
class PastBrokerPage:
    """What the template shows."""

    node: NodeFacts
    query: PageQuery
    as_of: AsOf
    cluster: str
    broker_name: str
    wiped: bool
    replicas: Sequence[PastReplica]
    outages: Sequence[Outage]
    """The newest first."""
    events: Sequence[ShownEvent]
    """The newest first."""
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


def past_broker_page(found: PastAnswer, names: tuple[str, str], query: PageQuery) -> PastBrokerPage:
    """Show a broker name as it was, with its events up to then."""
    cluster, broker_name = names
    timeline = timeline_of([past_event(row) for row in found.answer["events"]])
    views = [view for broker in _route(found).brokers for view in broker.views]

    def shown(view: View, one: ReplicaView) -> PastReplica:
        outage = timeline.outage_of((cluster, broker_name, one.broker_id))
        return _replica(one, found.at, is_known=view.seen.is_known, outage=outage)

    return PastBrokerPage(
        node=found.node,
        query=query,
        as_of=_as_of(found, query),
        cluster=cluster,
        broker_name=broker_name,
        wiped=any(view.seen.wiped for view in views),
        replicas=[shown(view, one) for view in views for one in view.seen.replicas],
        outages=[outage for outage in reversed(timeline.outages) if not outage.is_first],
        events=[shown_event(step) for step in reversed(timeline.events)],
        command=_command(found, "why", *option("cluster", cluster), argument=broker_name),
    )


def past_topic_page(found: PastAnswer, topic: str, query: PageQuery) -> PastTopicPage:
    """Show the route of a topic as it was."""
    result = _route(found)
    holders = list(_holders(result, found.at))
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


def _holders(result: RouteResult, at: datetime) -> Iterator[PastHolder]:
    for broker in result.brokers:
        cluster, broker_name = broker.group
        for view in broker.views:
            seen = view.seen
            notes = (
                "" if seen.is_known else "unknown: rows of that time are missing",
                "write permission wiped by an operator" if seen.wiped else "",
                "topic deleted by an operator" if seen.hidden else "",
            )
            queues = None
            if seen.queues is not None and seen.is_known:
                read, write, perm = seen.queues
                queues = f"{read:,}", f"{write:,}", perm_text(perm)
            yield PastHolder(
                cluster,
                broker_name,
                with_parameters(broker_path(cluster, broker_name), {AT: moment_text(at)}),
                queues,
                "; ".join(filter(None, notes)),
                [_replica(one, at, is_known=seen.is_known) for one in seen.replicas],
            )


def _replica(one: ReplicaView, at: datetime, *, is_known: bool, outage: Outage | None = None) -> PastReplica:
    since = "since an unknown time, before a restart of the name server"
    if one.since is not None:
        seconds = max(0.0, (at - one.since).total_seconds())
        since = f"for {duration_text(seconds)}, since {time_text(one.since)} (UTC)"
    reason = one.reason or ""
    meaning = explanation(one.event, reason)
    facts = [
        ("last event", f"{one.event} {reason}".rstrip() + (f": {meaning}" if meaning else "")),
        ("recorded", f"{time_text(one.recorded_at)} (UTC)"),
        *outage_facts(outage, at),
    ]
    state = (one.state or UNKNOWN) if is_known else UNKNOWN
    return PastReplica(one.broker_id, one.addr or "", state, one.planned, since if is_known else "", facts)


def _route(found: PastAnswer) -> RouteResult:
    """Read the states in an answer; that of a broker name has no topic."""
    lacks: Mapping[str, None] = {"topic": None, "cluster": None}
    return RouteResult.from_dict({**lacks, **found.answer})


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
        yield f"This name server was not recording history at that moment{extent}."
    for node in nodes:
        if node.state != "READY":
            yield f"This name server was {node.state} at that moment."
        if node.rows_back_at is not None:
            yield f"Rows of that moment are missing, until {time_text(node.rows_back_at)} (UTC)."
        elif node.rows_missing:
            yield f"{counted(node.rows_missing, 'earlier row')} of this name server are missing."


def _command(found: PastAnswer, *words: str, argument: str) -> str:
    servers = found.node.peers or (found.node.addr,)
    return command(servers, *words, *option("at", moment_text(found.at.astimezone(UTC))), argument=argument)
