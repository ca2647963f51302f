"""The page of what operators changed: the old and the new value, and the command that undoes it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from pointsman.history.operator_changes import CHANGES, OperatorChange
from pointsman.wire.operator_texts import setting_text
from pointsman_namesrv.web.event_pages import BY, earlier_path, same_command
from pointsman_namesrv.web.page_data import HistoryRows
from pointsman_namesrv.web.page_links import broker_path, fleet_path, topic_path
from pointsman_namesrv.web.page_query import PAGE_TOKEN, Paged, PageQuery, distinct, paged

PARAMETERS = ("broker", "cluster", "topic", "kind", BY, "since", "until", "page", PAGE_TOKEN)
KINDS = sorted(CHANGES)
UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class ShownChange:
    """One change."""

    at: datetime
    kind: str
    by: str
    claimed_by: str
    """Who the request says that its author is, if that differs; empty: the same."""
    what: str
    place: str
    """Cluster and broker name with its id, or the cluster; empty: the name server."""
    path: str
    """The page of the place, or of the topic; empty: none."""
    before: str
    after: str
    undo: str
    """The command; empty: there is none, or the old value is not known."""


@dataclass(frozen=True, slots=True)
class ChangesPage:
    """What the template shows."""

    data: HistoryRows[OperatorChange]
    query: PageQuery
    changes: Paged[ShownChange]
    kinds: Sequence[str]
    choices: Mapping[str, Sequence[str]]
    earlier: str
    """Address of the page with earlier changes; empty: the history or the time that was asked for begins here."""
    command: str


def checked(query: PageQuery) -> PageQuery:
    """Return the parameters, of which the kind is one of a change. Raises InvalidRequest."""
    query.choice("kind", KINDS)
    return query


def changes_page(data: HistoryRows[OperatorChange], query: PageQuery) -> ChangesPage:
    """Filter the changes, which the history was asked for by these parameters. Raises InvalidRequest."""
    found = list(_matched(data.rows, query))
    part = paged(found, query)
    return ChangesPage(
        data=data,
        query=query,
        changes=Paged([_shown(each) for each in part.rows], part.found, part.first, part.before, part.after),
        kinds=KINDS,
        choices={"cluster": distinct([each.cluster or "" for each in data.rows])},
        earlier=earlier_path(data, query),
        command=same_command(data.node, query, "changes", ("broker", "cluster", BY)),
    )


def _matched(changes: Sequence[OperatorChange], query: PageQuery) -> Iterator[OperatorChange]:
    broker, cluster, topic, by, kind = (query.text(name) for name in ("broker", "cluster", "topic", BY, "kind"))
    since, until = query.moment("since"), query.moment("until")
    for change in changes:
        at = datetime.fromisoformat(change.event_at)
        if (
            (cluster and change.cluster != cluster)
            or (broker and change.broker_name != broker)
            or (topic and not f" {change.what}".endswith(f" topic {topic}"))
            or (kind and change.event != kind)
            or (by and by not in {change.by, change.claimed_by})
            or (since is not None and at < since)
            or (until is not None and at > until)
        ):
            continue
        yield change


def _shown(change: OperatorChange) -> ShownChange:
    place = "/".join(filter(None, (change.cluster, change.broker_name)))
    if change.broker_id is not None:
        place = f"{place}/{change.broker_id}"
    return ShownChange(
        at=datetime.fromisoformat(change.event_at),
        kind=change.event,
        by=change.by,
        claimed_by=change.claimed_by or "",
        what=change.what,
        place=place,
        path=_path_of(change),
        before=setting_text(change.before) if change.is_before_known else UNKNOWN,
        after=setting_text(change.after),
        undo=change.undo or "",
    )


def _path_of(change: OperatorChange) -> str:
    if change.cluster and change.broker_name:
        return broker_path(change.cluster, change.broker_name)
    if change.cluster:
        return fleet_path(cluster=change.cluster)
    kind, _, topic = change.what.rpartition(" ")
    return topic_path(topic) if kind == "order topic" else ""
