"""The page of events. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from pointsman.history.row_format import REPEATED
from pointsman.names import name_problem
from pointsman.wire.operator_texts import detail_text, explanation
from pointsman_namesrv.core.events import EventKind
from pointsman_namesrv.core.model import GroupKey
from pointsman_namesrv.history.past_lines import NOT_INDEXED
from pointsman_namesrv.history.row import Record
from pointsman_namesrv.web.page_data import WORST_FIRST, HistoryRows, NodeFacts
from pointsman_namesrv.web.page_links import broker_path, command, moment_text, option, with_parameters
from pointsman_namesrv.web.page_query import AT, PAGE_TOKEN, Paged, PageQuery, distinct, paged

PARAMETERS = ("broker", "cluster", "topic", "kind", "state", "by", "since", "until", "page", PAGE_TOKEN)
BY = "by"
KINDS = sorted(kind.value for kind in EventKind)
OFFERED_KINDS = [kind for kind in KINDS if kind not in NOT_INDEXED and kind not in REPEATED]
"""The others are not events of an operator's day, and many."""
STATES = [phase.value for phase in WORST_FIRST]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ShownRecord:
    """One event."""

    at: datetime
    kind: str
    reason: str
    place: str
    """Cluster and broker name with its id, or the cluster."""
    path: str
    """The page of the broker name; empty: of the complete cluster."""
    then: str
    """The same page as of the event."""
    addr: str
    state: str
    planned: bool
    by: str
    text: str
    node: str
    """The name server that recorded it; empty: this one."""


@dataclass(frozen=True, slots=True)
class EventsPage:
    """What the template shows."""

    data: HistoryRows[Record]
    query: PageQuery
    records: Paged[ShownRecord]
    kinds: Sequence[str]
    states: Sequence[str]
    oldest: datetime | None
    choices: Mapping[str, Sequence[str]]
    earlier: str
    """Address of the page with earlier events; empty: the history or the time that was asked for begins here."""
    command: str


def checked(query: PageQuery) -> PageQuery:
    """Return the parameters, of which kind and state are such of an event. Raises InvalidRequest."""
    query.choice("kind", KINDS)
    query.choice("state", STATES)
    return query


def events_page(data: HistoryRows[Record], query: PageQuery) -> EventsPage:
    """Show the events, of those in memory the ones that the parameters ask for. Raises InvalidRequest."""
    found = list(data.rows if data.span is not None else _matched(data.rows, query))
    part = paged(found, query)
    return EventsPage(
        data=data,
        query=query,
        records=Paged([shown(each) for each in part.rows], part.found, part.first, part.before, part.after),
        kinds=OFFERED_KINDS,
        states=STATES,
        oldest=min((record.event_at for record in data.rows), default=None),
        choices={"cluster": distinct([key_of(record).cluster for record in data.rows])},
        earlier=earlier_path(data, query),
        command=same_command(data.node, query, "events", ("broker", "topic", "cluster", "kind", BY)),
    )


def earlier_path(data: HistoryRows[T], query: PageQuery) -> str:
    """Return the address of the page with earlier rows of the history; empty: there are none, or none asked for."""
    if data.span is None:
        return ""
    since, until = data.span
    if data.next_token:
        return query.change(**{"until": moment_text(until), PAGE_TOKEN: data.next_token})
    is_first = data.first_day is None or since.date() < data.first_day
    return "" if is_first or query.text("since") else query.change(**{"until": moment_text(since), PAGE_TOKEN: ""})


def same_command(node: NodeFacts, query: PageQuery, name: str, options: Sequence[str]) -> str:
    """Return the command that shows the same from the files of the history; ``options``: those beside its times.

    It takes no name outside the grammar, and no time in the future.
    """
    values = {each: query.text(each) for each in options}
    usable = {each: value for each, value in values.items() if each in {"kind", BY} or name_problem(value) is None}
    for each in ("since", "until"):
        at = query.moment(each)
        if at is not None and at <= node.at:
            usable[each] = f"{at:%Y-%m-%dT%H:%M:%SZ}"
    words = [word for each, value in usable.items() for word in option(each, value)]
    return command(node.servers, name, *words)


def _matched(records: Iterable[Record], query: PageQuery) -> Iterator[Record]:
    broker, cluster, topic, by, kind = (query.text(name) for name in ("broker", "cluster", "topic", BY, "kind"))
    state, since, until = query.text("state"), query.moment("since"), query.moment("until")
    for record in records:
        event = record.event
        key = key_of(record)
        if (
            (cluster and key.cluster != cluster)
            or (broker and key.broker_name != broker)
            or (topic and event.detail.get("topic") != topic)
            or (kind and event.kind.value != kind)
            or (by and event.detail.get(BY) != by)
            or (state and (event.broker is None or event.broker.state.phase.value != state))
            or (since is not None and record.event_at < since)
            or (until is not None and record.event_at > until)
        ):
            continue
        yield record


def key_of(record: Record) -> GroupKey:
    """Return the broker name that an event is about; empty names: the cluster, or all."""
    event = record.event
    if event.broker is not None:
        return event.broker.identity.group_key
    return event.group or GroupKey("", "")


def shown(record: Record) -> ShownRecord:
    """Return an event as a row."""
    event, key = record.event, key_of(record)
    broker = event.broker
    place = f"{key}" if key.broker_name else key.cluster
    path = broker_path(*key) if key.broker_name else ""
    detail = {name: value for name, value in event.detail.items() if name != BY}
    reason = event.reason.value if event.reason is not None else ""
    texts = (explanation(event.kind.value, reason, detail.pop("source", "")), detail_text(detail))
    return ShownRecord(
        at=record.event_at,
        kind=event.kind.value,
        reason=reason,
        place=f"{place}/{broker.identity.broker_id}" if broker is not None else place,
        path=path,
        then=with_parameters(path, {AT: moment_text(record.event_at)}) if path else "",
        addr=broker.identity.addr if broker is not None else "",
        state=broker.state.phase.value if broker is not None else "",
        planned=broker is not None and broker.state.planned,
        by=str(event.detail.get(BY, "")),
        text="; ".join(filter(None, texts)),
        node=record.node,
    )
