"""Where the HTTP threads take the facts of a page from: the event loop. Those of a moment: ``past_source.py``."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime
from typing import Protocol, cast

from pointsman.history.operator_changes import CHANGES, OperatorChange, operator_change
from pointsman.v1 import admin_service_pb2
from pointsman.wire.refusals import InvalidRequest, Refusal
from pointsman_namesrv.history.row import Record, to_rows
from pointsman_namesrv.rpc.broker_codec import timestamp
from pointsman_namesrv.web.loop_documents import LoopDocuments, Query
from pointsman_namesrv.web.page_data import (
    BrokerData,
    ChangesData,
    ConnectedData,
    EventsData,
    FleetData,
    LiveData,
    NodeFacts,
    TopicData,
    TopicsData,
    nothing_read,
)
from pointsman_namesrv.web.page_query import PageQuery, parameters_named
from pointsman_namesrv.web.past_source import PastSource

SOON_SECONDS = 0.5
"""Longest time for which a page about something else waits for measurements."""
HISTORY_SECONDS = 4.0
"""Longest time for which a page waits for the history before it shows what is in memory."""
MAX_CHANGES = 1_000
"""Read of the history for one page; of more, the newest."""


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

    def changes(self, query: PageQuery) -> ChangesData:
        """Return what operators changed, by the parameters of the page."""

    def connected(self) -> ConnectedData:
        """Return who is connected."""


class PresentSource:
    """The facts of now, from the event loop, and of changes from the history."""

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

    def changes(self, query: PageQuery) -> ChangesData:
        """Return what operators changed, by the parameters of the page: from the history, else from memory."""
        with parameters_named(broker_name="broker"):
            question = self._past.questions.changes(changes_request(query))
        if kind := query.text("kind"):
            question["kinds"] = [kind]
        try:
            node, answer = self._past.answer(question, within=HISTORY_SECONDS)
        except InvalidRequest:
            raise
        except Refusal as refusal:
            # Not longer than a connection lasts.
            events = cast("EventsData | None", self._documents.latest(Query("page events"), within=HISTORY_SECONDS))
            if events is None:
                raise
            records = (record for records in events.by_name.values() for record in records)
            return ChangesData(events.node, list(_changes_of(records)), None, None, is_cut=False, problem=str(refusal))
        changes = [OperatorChange.from_dict(change) for change in answer["events"]]
        first_day = answer["first_day"]
        return ChangesData(
            node,
            changes,
            since=datetime.fromisoformat(question["since"]),
            first_day=None if first_day is None else date.fromisoformat(first_day),
            is_cut=bool(answer["next_page_token"]),
            problem="",
        )

    def connected(self) -> ConnectedData:
        """Return who is connected."""
        return cast("ConnectedData", self._view("connected"))

    def _view(self, kind: str, **parameters: str) -> object:
        return self._documents.view(Query(f"page {kind}", tuple(sorted(parameters.items()))))


def changes_request(query: PageQuery) -> admin_service_pb2.ListChangesRequest:
    """Return the request of the same content over gRPC. Raises InvalidRequest."""
    request = admin_service_pb2.ListChangesRequest(
        cluster=query.text("cluster"),
        broker_name=query.text("broker"),
        by=query.text("by"),
        page_size=MAX_CHANGES,
    )
    for name in ("since", "until"):
        if (at := query.moment(name)) is not None:
            getattr(request, name).CopyFrom(timestamp(at))
    return request


def _changes_of(records: Iterator[Record]) -> Iterator[OperatorChange]:
    """Yield the changes among events in memory, the newest first."""
    found = [record for record in records if record.event.kind in CHANGES]
    for record in sorted(found, key=lambda record: record.order, reverse=True):
        for row in to_rows(record, node="", boot_id=record.boot_id):
            if (change := operator_change(row)) is not None:
                yield change
