"""Where the HTTP threads take the facts of a page from: the event loop. Those of the past: ``past_source.py``."""

from __future__ import annotations

from typing import Protocol, cast

from pointsman_namesrv.web.loop_documents import LoopDocuments, Query
from pointsman_namesrv.web.page_data import (
    BrokerData,
    ConnectedData,
    EventsData,
    FleetData,
    LiveData,
    NodeFacts,
    TopicData,
    TopicsData,
    nothing_read,
)

SOON_SECONDS = 0.5
"""Longest time for which a page about something else waits for measurements."""


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

    def connected(self) -> ConnectedData:
        """Return who is connected."""


class PresentSource:
    """The facts of now, from the event loop."""

    def __init__(self, documents: LoopDocuments) -> None:
        self._documents = documents

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

    def connected(self) -> ConnectedData:
        """Return who is connected."""
        return cast("ConnectedData", self._view("connected"))

    def _view(self, kind: str, **parameters: str) -> object:
        return self._documents.view(Query(f"page {kind}", tuple(sorted(parameters.items()))))
