"""Where the HTTP threads take the facts of a page from: the event loop. Those of a moment: ``past_source.py``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date, datetime
from functools import partial
from typing import Any, Protocol, TypeVar, cast

from pointsman.history.operator_changes import CHANGES, OperatorChange, operator_change
from pointsman.v1.admin_service_pb2 import ListChangesRequest, ListPastEventsRequest
from pointsman.wire.refusals import InvalidRequest, Refusal
from pointsman_namesrv.history.row import Record, to_rows
from pointsman_namesrv.rpc.broker_codec import timestamp
from pointsman_namesrv.rpc.past_queries import Question
from pointsman_namesrv.web.loop_documents import LoopDocuments, Query
from pointsman_namesrv.web.page_data import (
    BrokerData,
    ConnectedData,
    EventsData,
    FleetData,
    HistoryRows,
    LiveData,
    NodeFacts,
    TopicData,
    TopicsData,
    nothing_read,
)
from pointsman_namesrv.web.page_query import PAGE_TOKEN, PageQuery, parameters_named
from pointsman_namesrv.web.past_source import PastSource, records_of

SOON_SECONDS = 0.5
"""Longest time for which a page about something else waits for measurements."""
HISTORY_SECONDS = 4.0
"""Longest time for which a page waits for the history before it shows what is in memory."""
MAX_ROWS = 1_000
"""Read of the history at a time; of more, the newest."""

T = TypeVar("T")


class PageSource(Protocol):
    """The facts of all pages. Each method blocks for some seconds at most, and raises Refusal."""

    def fleet(self) -> FleetData:
        """Return all brokers."""

    def broker(self, cluster: str, broker_name: str) -> BrokerData:
        """Return one broker name."""

    def topics(self, cluster: str) -> TopicsData:
        """Return all topics of a cluster; empty: of all."""

    def topic(self, topic: str) -> TopicData:
        """Return one topic."""

    def live(self) -> LiveData:
        """Return what the agents measured."""

    def live_soon(self, node: NodeFacts) -> LiveData:
        """Return what the agents measured, of an earlier moment where the next takes long, or that nothing is known."""

    def events(self) -> EventsData:
        """Return the events."""

    def listed_events(self, query: PageQuery) -> HistoryRows[Record]:
        """Return the events that the parameters of their page ask for; those in memory may be others, too."""

    def changes(self, query: PageQuery) -> HistoryRows[OperatorChange]:
        """Return what operators changed, likewise."""

    def connected(self) -> ConnectedData:
        """Return who is connected."""


class PresentSource:
    """The facts of now, from the event loop, and events and changes from the history."""

    def __init__(self, documents: LoopDocuments, past: PastSource) -> None:
        self._documents = documents
        self._past = past

    def fleet(self) -> FleetData:
        """Return all brokers."""
        return cast("FleetData", self._view("fleet"))

    def broker(self, cluster: str, broker_name: str) -> BrokerData:
        """Return one broker name."""
        return cast("BrokerData", self._view("broker", broker=broker_name, cluster=cluster))

    def topics(self, cluster: str) -> TopicsData:
        """Return all topics of a cluster; empty: of all."""
        return cast("TopicsData", self._view("topics", cluster=cluster))

    def topic(self, topic: str) -> TopicData:
        """Return one topic."""
        return cast("TopicData", self._view("topic", topic=topic))

    def live(self) -> LiveData:
        """Return what the agents measured."""
        return cast("LiveData", self._view("live"))

    def live_soon(self, node: NodeFacts) -> LiveData:
        """Return what the agents measured, of an earlier moment where the next takes long, or that nothing is known."""
        found = self._documents.latest(Query("page live"), within=SOON_SECONDS)
        return cast("LiveData", found) if found is not None else nothing_read(node)

    def events(self) -> EventsData:
        """Return the events."""
        return cast("EventsData", self._view("events"))

    def listed_events(self, query: PageQuery) -> HistoryRows[Record]:
        """Return the events that the parameters of their page ask for; those in memory may be others, too."""
        kind = query.text("kind")
        request = ListPastEventsRequest(topic=query.text("topic"), kinds=[kind] if kind else [], **_span(query))
        with parameters_named(broker_name="broker", **{"kinds[0]": "kind"}):
            question = self._past.questions.events(request)
        question["state"] = query.text("state") or None
        return self._from_history(question, records_of, lambda records: records)

    def changes(self, query: PageQuery) -> HistoryRows[OperatorChange]:
        """Return what operators changed, likewise."""
        with parameters_named(broker_name="broker"):
            question = self._past.questions.changes(ListChangesRequest(**_span(query)))
        if kind := query.text("kind"):
            question["kinds"] = [kind]
        return self._from_history(question, partial(map, OperatorChange.from_dict), _changes_of)

    def _from_history(
        self,
        question: Question,
        of_rows: Callable[[Iterable[Mapping[str, Any]]], Iterable[T]],
        of_records: Callable[[Iterable[Record]], Iterable[T]],
    ) -> HistoryRows[T]:
        """Return the answer to a question for events or changes, or what is in memory where there is none in time."""
        try:
            node, answer = self._past.answer(question, within=HISTORY_SECONDS)
        except InvalidRequest:
            raise
        except Refusal as refusal:
            # Not longer than a connection lasts.
            events = cast("EventsData | None", self._documents.latest(Query("page events"), within=HISTORY_SECONDS))
            if events is None:
                raise
            records = [record for records in events.by_name.values() for record in records]
            records.sort(key=lambda record: record.order, reverse=True)
            return HistoryRows(events.node, list(of_records(records)), problem=str(refusal))
        first_day = answer["first_day"]
        return HistoryRows(
            node,
            list(of_rows(answer["events"])),
            span=(datetime.fromisoformat(question["since"]), datetime.fromisoformat(question["until"])),
            first_day=None if first_day is None else date.fromisoformat(first_day),
            next_token=answer["next_page_token"],
        )

    def connected(self) -> ConnectedData:
        """Return who is connected."""
        return cast("ConnectedData", self._view("connected"))

    def _view(self, kind: str, **parameters: str) -> object:
        return self._documents.view(Query(f"page {kind}", tuple(sorted(parameters.items()))))


def _span(query: PageQuery) -> dict[str, Any]:
    """Return the fields that requests for events and for changes share. Raises InvalidRequest."""
    moments = {name: at for name in ("since", "until") if (at := query.moment(name)) is not None}
    return {
        "cluster": query.text("cluster"),
        "broker_name": query.text("broker"),
        "by": query.text("by"),
        "page_size": MAX_ROWS,
        "page_token": query.text(PAGE_TOKEN),
        **{name: timestamp(at) for name, at in moments.items()},
    }


def _changes_of(records: Iterable[Record]) -> Iterator[OperatorChange]:
    for record in records:
        if record.event.kind in CHANGES:
            for row in to_rows(record, node="", boot_id=record.boot_id):
                if (change := operator_change(row)) is not None:
                    yield change
