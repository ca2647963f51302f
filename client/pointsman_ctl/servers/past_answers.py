"""Answers of several name servers about the past, side by side: the same event at several servers is one. Pure."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Generic, TypeVar

from pointsman.v1 import admin_service_pb2 as admin

SAME_EVENT_WITHIN = timedelta(seconds=150)
"""Equal rows of several name servers within this time are one event: each notices a silence by its own clock."""

MessageT = TypeVar("MessageT", admin.BrokerEvent, admin.OperatorChange)
Replica = tuple[str, str, int]


@dataclass(frozen=True, slots=True)
class PastPage(Generic[MessageT]):
    """What one name server answered, the newest first."""

    node: str
    found: Sequence[MessageT]
    is_cut: bool
    """Whether there are older ones."""


@dataclass(slots=True)
class Merged(Generic[MessageT]):
    """One event, as the first name server recorded it."""

    at: datetime
    first: MessageT
    nodes: list[str]


def merged_events(pages: Iterable[PastPage[admin.BrokerEvent]]) -> list[Merged[admin.BrokerEvent]]:
    """Return the events of all name servers, oldest first, from where all of them are known."""

    def identity(event: admin.BrokerEvent) -> Hashable:
        who = event.identity
        return event.event, event.reason, who.cluster, who.broker_name, who.broker_id, who.addr, event.state

    return _merged(pages, lambda event: event.event_at.ToDatetime(UTC), identity)


def merged_changes(pages: Iterable[PastPage[admin.OperatorChange]]) -> list[Merged[admin.OperatorChange]]:
    """Return the changes at all name servers, oldest first, from where all of them are known."""

    def identity(change: admin.OperatorChange) -> Hashable:
        after = change.after.SerializeToString(deterministic=True)
        return change.event, change.what, change.cluster, change.broker_name, change.by, after

    return _merged(pages, lambda change: change.changed_at.ToDatetime(UTC), identity)


def _merged(
    pages: Iterable[PastPage[MessageT]], at: Callable[[MessageT], datetime], identity: Callable[[MessageT], Hashable]
) -> list[Merged[MessageT]]:
    pages = list(pages)
    # Before the oldest event of a page that was cut, that server's events are not known.
    horizon = max((at(page.found[-1]) for page in pages if page.is_cut and page.found), default=None)
    every = [(at(each), page.node, each) for page in pages for each in reversed(page.found)]
    merged: list[Merged[MessageT]] = []
    latest: dict[Hashable, Merged[MessageT]] = {}
    for moment, node, each in sorted(every, key=lambda one: one[:2]):
        if horizon is not None and moment < horizon:
            continue
        key = identity(each)
        known = latest.get(key)
        # Events of a name server itself are never those of another one.
        is_own = is_of_server(each.event)
        if known is None or is_own or node in known.nodes or moment - known.at > SAME_EVENT_WITHIN:
            latest[key] = Merged(moment, each, [node])
            merged.append(latest[key])
        else:
            known.nodes.append(node)
    return merged


def is_of_server(event: str) -> bool:
    """Return whether an event is about the name server that recorded it."""
    return event.startswith("NAMESRV_")


def states_of(broker: admin.GetPastBrokerResponse) -> dict[Replica, tuple[str, str, bool]] | None:
    """Return address, state and plan of each replica; None: the name server was not running, or does not know."""
    if not broker.node_state:
        return None
    known = (one for one in broker.replicas if one.state)
    return {
        (one.identity.cluster, one.identity.broker_name, one.identity.broker_id): (
            one.identity.addr,
            one.state,
            one.planned,
        )
        for one in known
    }


def agree(brokers: Iterable[admin.GetPastBrokerResponse]) -> bool:
    """Return whether all name servers that know the moment have the same states."""
    states = [each for each in map(states_of, brokers) if each is not None]
    return all(each == states[0] for each in states)
