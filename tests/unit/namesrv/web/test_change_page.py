"""What operators changed: values, targets, filters, the way to earlier changes."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pointsman.history.operator_changes import OperatorChange, operator_change
from pointsman.names import printable
from pointsman.wire.refusals import InvalidRequest
from pointsman_namesrv.web.change_page import ChangesPage, changes_page, checked
from pointsman_namesrv.web.page_data import HistoryRows
from pointsman_namesrv.web.page_query import PageQuery
from pointsman_namesrv.web.page_rendering import rendered
from tests.kit.ctl.command_line import parsed
from tests.kit.name_server.page_facts import NODE

MARKUP = "<b onclick=x>\x1b[31m"
ABSENT = ("cluster", "broker_name", "broker_id")


def change(minute: int, event: str, *, by: str = "zoe", claimed_by: str | None = None, **more: Any) -> OperatorChange:
    facts = {name: more.pop(name, None) for name in ABSENT}
    at = f"2026-11-28T12:{minute:02}:00.000Z"
    names = {"by": by, "claimed_by": claimed_by} if claimed_by else {"by": by}
    found = operator_change(
        {"event": event, "event_at": at, "boot_id": "b", "seq": minute, **facts, "detail": more | names}
    )
    assert found is not None
    return found


OF_A = {"cluster": "c1", "broker_name": "a"}
CHANGES = [
    change(6, "UNREGISTERED", **OF_A, broker_id=1),
    change(5, "KV_CHANGED", by="ops", claimed_by=MARKUP, namespace="n", key="k", value=MARKUP, before={"length": 2000}),
    change(4, "KV_CHANGED", namespace="ORDER_TOPIC_CONFIG", key="orders", value="a:4", before=None),
    change(3, "TOPIC_DELETED", **OF_A, topic="orders"),
    change(2, "GUARD_OFF", cluster="c2", mode="OFF", before={"mode": "AUTO"}),
    change(1, "PERM_CHANGED", by="max", **OF_A, writable=False),
]
SINCE = datetime(2026, 11, 21, 12, tzinfo=UTC)
SPAN = (SINCE, SINCE + timedelta(days=7))
FIRST_DAY = SINCE.date()


def page(parameters: Mapping[str, str] | None = None, *, token: str = "", problem: str = "") -> ChangesPage:
    span, first_day = (None, None) if problem else (SPAN, FIRST_DAY)
    data = HistoryRows(NODE, CHANGES, span, first_day, token, problem)
    return changes_page(data, checked(PageQuery("/changes", parameters or {})))


def test_old_and_new_value_and_the_command_that_undoes_it() -> None:
    rows = page().changes.rows
    assert [(row.what, row.before, row.after, row.undo) for row in rows] == [
        ("registration", "unknown", "-", ""),
        ("key k of n", "length 2000", printable(MARKUP), ""),
        ("order topic orders", "-", "a:4", "pointsmanctl order-topic remove orders"),
        ("topic orders", "unknown", "-", ""),
        ("guard", "mode AUTO", "mode OFF", "pointsmanctl guard auto --cluster c2"),
        ("write permission", "yes", "no", "pointsmanctl add-write-perm a --cluster c1"),
    ]


def test_a_change_leads_to_what_was_changed() -> None:
    assert [(row.place, row.path) for row in page().changes.rows] == [
        ("c1/a/1", "/brokers/c1/a"),
        ("", ""),
        ("", "/topics/orders"),
        ("c1/a", "/brokers/c1/a"),
        ("c2", "/?cluster=c2"),
        ("c1/a", "/brokers/c1/a"),
    ]


@pytest.mark.parametrize(
    ("parameters", "minutes"),
    [
        ({}, [6, 5, 4, 3, 2, 1]),
        ({"broker": "a"}, [6, 3, 1]),
        ({"cluster": "c2"}, [2]),
        ({"kind": "KV_CHANGED"}, [5, 4]),
        ({"topic": "orders"}, [4, 3]),
        ({"by": "max"}, [1]),
        ({"by": MARKUP}, [5]),
        ({"since": "2026-11-28T12:04Z"}, [6, 5, 4]),
        ({"until": "2026-11-28T12:02Z"}, [2, 1]),
        ({"page": "2"}, []),
    ],
)
def test_changes_are_filtered(parameters: dict[str, str], minutes: list[int]) -> None:
    assert [each.at.minute for each in page(parameters).changes.rows] == minutes


def test_a_kind_that_is_not_of_a_change_is_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"kind must be one of BROKER_DATA_CHANGED, .*, not 'EXPIRED'"):
        page({"kind": "EXPIRED"})


def test_the_way_to_earlier_changes_keeps_the_filter() -> None:
    assert page({"by": "zoe", "page": "2"}).earlier == "/changes?by=zoe&until=2026-11-21T12%3A00%3A00Z"
    assert page(token="t/1").earlier == "/changes?until=2026-11-28T12%3A00%3A00Z&page_token=t%2F1"
    assert page({"page_token": "t/1"}).earlier == "/changes?until=2026-11-21T12%3A00%3A00Z"
    assert page({"since": "2026-11-01"}).earlier == ""
    assert page({"since": "2026-11-01"}, token="t").earlier
    assert page(problem="it is off").earlier == ""
    begins_later: HistoryRows[OperatorChange] = HistoryRows(NODE, [], SPAN, FIRST_DAY + timedelta(days=1))
    assert changes_page(begins_later, PageQuery("/changes", {})).earlier == ""


def test_the_command_asks_for_the_same() -> None:
    read, found = parsed(page({"broker": "a", "by": "zoe $x", "until": "2026-11-28T11:07Z"}).command)
    assert (read, found["broker"], found["by"]) == ("changes", "a", "zoe $x")
    assert found["until"] == datetime(2026, 11, 28, 11, 7, tzinfo=UTC)


def test_texts_of_operators_are_escaped_and_the_page_says_what_it_shows() -> None:
    html = rendered("changes.html", page(), tab="/changes").decode()
    assert "&lt;b onclick=x&gt;" in html
    assert not [part for part in ("<b onclick", "\x1b") if part in html]
    assert "from 2026-11-21 12:00:00" in html
    of_memory = rendered("changes.html", page(problem="this name server records no history"), tab="/changes").decode()
    assert "This name server records no history. These are changes in memory" in of_memory


def test_a_change_survives_the_way_as_a_dictionary() -> None:
    assert [OperatorChange.from_dict(each.as_dict()) for each in CHANGES] == CHANGES
