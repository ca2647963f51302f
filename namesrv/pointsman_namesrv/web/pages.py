"""The pages by path: who may see them, their parameters, and what they are made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from pointsman_namesrv.web import (
    broker_name_page,
    change_page,
    connected_page,
    event_pages,
    fleet_page,
    group_pages,
    past_pages,
    topic_pages,
)
from pointsman_namesrv.web.page_links import names_at
from pointsman_namesrv.web.page_query import AT, PageQuery
from pointsman_namesrv.web.page_rendering import rendered
from pointsman_namesrv.web.page_source import PageSource
from pointsman_namesrv.web.past_source import PastSource

Names = tuple[str, ...]
"""Names in a path, in their order."""


@dataclass(frozen=True, slots=True)
class Page:
    """One kind of page."""

    listed: str
    """Its path, with words in capitals for names."""
    methods: tuple[str, ...]
    """The gRPC methods of the same content: a caller may see the page if it may call all of them."""
    parameters: tuple[str, ...]
    render: Callable[[PageSource, Names, PageQuery], bytes]
    render_past: Callable[[PastSource, Names, PageQuery, datetime], bytes] | None = None
    """None: it has no past."""

    def html(self, present: PageSource, past: PastSource, names: Names, query: PageQuery) -> bytes:
        """Return the page as it is, or as it was at the moment in its parameters. Blocks; raises Refusal."""
        at = None if self.render_past is None else query.moment(AT)
        if self.render_past is None or at is None:
            return self.render(present, names, query)
        return self.render_past(past, names, query, at)


def _fleet(source: PageSource, _names: Names, query: PageQuery) -> bytes:
    fleet = source.fleet()
    page = fleet_page.fleet_page(fleet, source.live_soon(fleet.node), query)
    return rendered("fleet.html", page, tab="/")


def _past_fleet(source: PastSource, _names: Names, query: PageQuery, at: datetime) -> bytes:
    page = past_pages.past_fleet_page(source.fleet(query.text("cluster"), at), query)
    return rendered("past_fleet.html", page, tab="/")


def _broker(source: PageSource, names: Names, query: PageQuery) -> bytes:
    page = broker_name_page.broker_page(source.broker(*names), source.events().known_since, query)
    return rendered("broker.html", page, tab="/")


def _past_broker(source: PastSource, names: Names, query: PageQuery, at: datetime) -> bytes:
    cluster, broker_name = names
    page = past_pages.past_broker_page(source.broker(cluster, broker_name, at), (cluster, broker_name), query)
    return rendered("past_broker.html", page, tab="/")


def _topics(source: PageSource, _names: Names, query: PageQuery) -> bytes:
    topics = source.topics(query.text("cluster"))
    page = topic_pages.topics_page(topics, source.live_soon(topics.node), query)
    return rendered("topics.html", page, tab="/topics")


def _topic(source: PageSource, names: Names, query: PageQuery) -> bytes:
    return rendered("topic.html", topic_pages.topic_page(source.topic(names[0]), query), tab="/topics")


def _past_topic(source: PastSource, names: Names, query: PageQuery, at: datetime) -> bytes:
    page = past_pages.past_topic_page(source.topic(names[0], at), names[0], query)
    return rendered("past_topic.html", page, tab="/topics")


def _groups(source: PageSource, _names: Names, query: PageQuery) -> bytes:
    return rendered("groups.html", group_pages.groups_page(source.live(), query), tab="/groups")


def _group(source: PageSource, names: Names, query: PageQuery) -> bytes:
    return rendered("group.html", group_pages.group_page(source.live(), names[0], query), tab="/groups")


def _events(source: PageSource, _names: Names, query: PageQuery) -> bytes:
    page = event_pages.events_page(source.listed_events(event_pages.checked(query)), query)
    return rendered("events.html", page, tab="/events")


def _changes(source: PageSource, _names: Names, query: PageQuery) -> bytes:
    page = change_page.changes_page(source.changes(change_page.checked(query)), query)
    return rendered("changes.html", page, tab="/changes")


def _connected(source: PageSource, _names: Names, query: PageQuery) -> bytes:
    return rendered("connected.html", connected_page.connected_page(source.connected(), query), tab="/connected")


_QUEUES = "ListLiveQueues"
_EVENTS = "ListBrokerEvents"
PAGES = (
    Page(
        "/",
        ("ListBrokers", _EVENTS, _QUEUES, "GetNodeInfo", "GetPastBroker"),
        fleet_page.PARAMETERS,
        _fleet,
        _past_fleet,
    ),
    Page(
        "/brokers/CLUSTER/BROKER",
        ("ListBrokers", _EVENTS, "ListMaintenance", "GetPastBroker"),
        broker_name_page.PARAMETERS,
        _broker,
        _past_broker,
    ),
    Page("/topics", ("ListTopics", "ListRouteDigests", _QUEUES), topic_pages.PARAMETERS, _topics),
    Page(
        "/topics/TOPIC",
        ("GetTopicRoute", "ListBrokers", _QUEUES, "ListWatchers", "GetPastRoute"),
        (AT,),
        _topic,
        _past_topic,
    ),
    Page("/groups", (_QUEUES,), group_pages.PARAMETERS, _groups),
    Page("/groups/GROUP", (_QUEUES,), (), _group),
    Page("/events", (_EVENTS, "ListPastEvents"), event_pages.PARAMETERS, _events),
    Page("/changes", (_EVENTS, "ListChanges"), change_page.PARAMETERS, _changes),
    Page("/connected", ("ListBrokers", "ListWatchers", "GetNodeInfo"), (), _connected),
)


def page_at(path: str) -> tuple[Page, Names] | None:
    """Return the page at a path, with the names in it; None: there is none."""
    found = ((page, names_at(page.listed, path)) for page in PAGES)
    return next(((page, names) for page, names in found if names is not None), None)
