"""Events: filters, the way to earlier ones, the command."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pointsman.wire.refusals import InvalidRequest
from pointsman_namesrv.core.events import BrokerFacts, Event, EventKind
from pointsman_namesrv.core.model import BrokerIdentity, GroupKey, Reason
from pointsman_namesrv.core.replica_state import UP, Phase, ReplicaState
from pointsman_namesrv.history.row import Record
from pointsman_namesrv.web.event_pages import OFFERED_KINDS, checked, events_page
from pointsman_namesrv.web.page_data import HistoryRows
from pointsman_namesrv.web.page_query import PageQuery
from tests.kit.ctl.command_line import parsed
from tests.kit.name_server.page_facts import NODE

NOW = datetime(2026, 11, 28, 12, tzinfo=UTC)
A, WHOLE = GroupKey("c1", "a"), GroupKey("c1", "")


def facts(state: ReplicaState) -> BrokerFacts:
    return BrokerFacts(BrokerIdentity(*A, 0, "a:1"), 1, "", "", "", "", None, state, 0.0)


def record(seq: int, kind: EventKind, reason: Reason | None = None, **more: Any) -> Record:
    return Record(Event(kind=kind, reason=reason, **more), NOW + timedelta(minutes=seq), 0, seq)


GONE = ReplicaState(Phase.GONE, Reason.ADMIN, planned=True)
RECORDS = [
    record(1, EventKind.REGISTERED, broker=facts(UP)),
    record(2, EventKind.PERM_CHANGED, Reason.ADMIN, group=A, detail={"by": "zoe", "writable": False}),
    record(3, EventKind.PERM_CHANGED, Reason.INCARNATION, group=A, detail={"writable": True}),
    record(4, EventKind.TOPIC_DELETED, Reason.ADMIN, group=A, detail={"by": "max", "topic": "orders"}),
    record(5, EventKind.UNREGISTERED, Reason.ADMIN, broker=facts(GONE), detail={"by": "zoe"}),
]
OF_CLUSTER = [
    record(6, EventKind.GUARD_ON, Reason.SHARE, group=WHOLE),
    record(7, EventKind.GUARD_OFF, Reason.ADMIN, group=WHOLE, detail={"by": "max", "mode": "OFF"}),
    record(8, EventKind.MAINTENANCE_OFF, Reason.TIME_OVER, group=WHOLE),
]
ALL = [*RECORDS, *OF_CLUSTER][::-1]
DATA = HistoryRows(NODE, ALL, problem="it is off")
SPAN = (NOW - timedelta(days=1), NOW)


def numbers(**parameters: str) -> list[int]:
    page = events_page(DATA, checked(PageQuery("/events", parameters)))
    return [(each.at - NOW) // timedelta(minutes=1) for each in page.records.rows]


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({}, [8, 7, 6, 5, 4, 3, 2, 1]),
        ({"broker": "a"}, [5, 4, 3, 2, 1]),
        ({"cluster": "c2"}, []),
        ({"kind": "PERM_CHANGED"}, [3, 2]),
        ({"topic": "orders"}, [4]),
        ({"by": "zoe"}, [5, 2]),
        ({"state": "GONE"}, [5]),
        ({"since": "2026-11-28T12:07Z"}, [8, 7]),
        ({"until": "2026-11-28T12:02Z"}, [2, 1]),
        ({"page": "2"}, []),
    ],
)
def test_those_in_memory_are_filtered(parameters: dict[str, str], expected: list[int]) -> None:
    assert numbers(**parameters) == expected


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="kind must be one of"):
        numbers(kind="EXPLODED")
    assert numbers(kind="KV_CHANGED") == []


def test_the_commands_are_read_by_the_command_line() -> None:
    parameters = {"broker": "-a", "cluster": "c1", "kind": "EXPIRED", "by": "zoe $x", "since": "2026-11-28T11:07Z"}
    read, found = parsed(events_page(DATA, PageQuery("/events", parameters)).command)
    assert (read, found["broker"], found["cluster"], found["kinds"]) == ("events", "-a", "c1", ("EXPIRED",))
    assert (found["by"], found["since"]) == ("zoe $x", datetime(2026, 11, 28, 11, 7, tzinfo=UTC))


def test_what_the_command_line_refuses_is_not_in_the_command() -> None:
    odd = {"broker": "<b>", "topic": "a b", "until": "2126-01-01T00:00Z"}
    read, found = parsed(events_page(DATA, PageQuery("/events", odd)).command)
    assert (read, found["broker"], found["topic"], found["until"]) == ("events", "", "", None)


def test_those_of_the_history_are_shown_as_the_history_answered() -> None:
    page = events_page(HistoryRows(NODE, ALL, SPAN, NOW.date()), PageQuery("/events", {"topic": "orders"}))
    assert page.records.found == len(ALL)
    assert page.earlier == "", "the history begins in that time"
    assert page.kinds == OFFERED_KINDS
    assert [each.then for each in page.records.rows[2:4]] == ["", "/brokers/c1/a?at=2026-11-28T12%3A05%3A00Z"]
    assert not {"HEARTBEATS", "TOPICS"} & set(OFFERED_KINDS)


def test_the_way_to_earlier_events_keeps_the_filter() -> None:
    def earlier(token: str, **parameters: str) -> str:
        data = HistoryRows(NODE, ALL, SPAN, SPAN[0].date(), token)
        return events_page(data, PageQuery("/events", parameters)).earlier

    assert earlier("2026-11-28/5/b1/7", by="zoe", page="3") == (
        "/events?by=zoe&until=2026-11-28T12%3A00%3A00Z&page_token=2026-11-28%2F5%2Fb1%2F7"
    )
    assert earlier("", by="zoe", page_token="x") == "/events?by=zoe&until=2026-11-27T12%3A00%3A00Z"
    assert earlier("", since="2026-11-27") == ""
    assert events_page(DATA, PageQuery("/events", {})).earlier == ""
