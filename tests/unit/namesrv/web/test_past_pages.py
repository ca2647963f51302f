"""The pages of the past, from answers of the worker: states, steps, what is missing, hostile texts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pointsman.wire.refusals import InvalidRequest
from pointsman_namesrv.history.past_files import PastFiles
from pointsman_namesrv.history.past_questions import answer
from pointsman_namesrv.web.page_query import PageQuery
from pointsman_namesrv.web.page_rendering import rendered
from pointsman_namesrv.web.past_pages import UNKNOWN, past_broker_page, past_fleet_page, past_topic_page
from pointsman_namesrv.web.past_source import PastAnswer
from tests.kit.history.own_files import write_own_files
from tests.kit.name_server.page_facts import NODE
from tests.spark.histories import NameServer, broker, moment

MARKUP = "<b onclick=x>\x1b[31m\u202e"
QUERY = PageQuery("/topics/orders", {"at": "then", "name": "x"})
FULL: dict[str, Any] = {"part": 1, "parts": 1, "full": True, "topics": {"orders": [4, 8, 6, 0]}, "removed": []}


def recorded(server: NameServer, tmp_path: Path, at: datetime, **question: Any) -> PastAnswer:
    if question["kind"] == "broker":
        question["topics"] = True
    files = PastFiles(write_own_files(tmp_path, server.rows), server.node)
    return PastAnswer(NODE, at, answer(files, {"at": at.isoformat(), "steps": True, **question}))


@pytest.fixture
def server() -> NameServer:
    """Broker a with orders, lost at 60 s; broker b with orders."""
    server = NameServer().start(moment(0))
    for name in "ab":
        server.say("REGISTERED", moment(1), broker(name), data_version="0.0.1")
        server.say("TOPICS", moment(1), broker(name), detail=FULL)
    server.say("EXPIRED", moment(60), broker("a"), reason="SILENCE")
    return server


def test_a_replica_has_its_state_and_outage_of_the_moment(server: NameServer, tmp_path: Path) -> None:
    found = recorded(server, tmp_path, moment(90), kind="broker", broker_name="a", cluster="c1")
    page = past_broker_page(found, ("c1", "a"), QUERY)

    (replica,) = page.replicas
    assert (replica.broker_id, replica.addr, replica.state) == (0, "a:6379", "GONE")
    assert replica.since.startswith("for 30.0s, since ")
    assert dict(replica.facts)["last event"].startswith("EXPIRED SILENCE: ")
    assert dict(replica.facts)["outage"].startswith("for 30.0s, since ")
    assert [event.event for event in page.events] == ["EXPIRED", "REGISTERED"]
    assert [outage.ended_at for outage in page.outages] == [None]


def test_a_replica_has_its_times_out_of_the_routes_and_its_penalty_before_the_moment(tmp_path: Path) -> None:
    server = NameServer().start(moment(0))
    about = broker("a") | {"zone": "z1", "host": "", "broker_version": ""}
    server.say("REGISTERED", moment(1), about, data_version="0.0.1")
    server.say("TOPICS", moment(1), about, detail=FULL)
    server.say("EXPIRED", moment(60), about, reason="SILENCE")
    server.say("REGISTERED", moment(90), about, detail={"owner": "team-a"})
    for second in (100, 120, 140, 160):
        server.say("PROBE_FAILED", moment(second), about, reason="REFUSED", detail={"probe": MARKUP})
        server.say("RECOVERED", moment(second + 10), about, reason="PROBE")
    found = recorded(server, tmp_path, moment(200), kind="broker", broker_name="a", cluster="c1")
    page = past_broker_page(found, ("c1", "a"), QUERY)

    (replica,) = page.replicas
    assert [bar.kind for bar in replica.day] == ["unknown", "out", "out", "out", "out", "out"]
    assert replica.day[1].title == "out from 03-02 00:01:00 to 03-02 00:01:30 UTC: EXPIRED SILENCE"
    assert replica.curve is not None
    assert replica.curve.highest == replica.curve.now > 4_900
    assert (page.owner, page.dashboard) == ("team-a", "https://grafana/c1/a")
    html = rendered("past_broker.html", page, tab="/").decode()
    assert "Flap penalty then 4,9" in html
    assert "Flapping above 3,000 (upper line) until below 1,000" in html
    reason = "its probe failed: strong evidence, the broker refuses to serve: &lt;b onclick=x&gt;"
    assert html.count(f'data-label="Reason" class="long">{reason}') == 4


def test_a_broker_has_the_topics_of_the_moment_which_lead_to_them(server: NameServer, tmp_path: Path) -> None:
    changed = {"part": 1, "parts": 1, "full": False, "topics": {"paid": [2, 2, 4, 0], "odd": 7}, "removed": ["orders"]}
    server.say("TOPICS", moment(20), broker("b"), detail=changed, data_version="0.0.2")
    server.say("TOPICS", moment(25), broker("b"), detail={"part": 1, "parts": 1, "full": False})
    for number in (1, 2):
        part: dict[str, Any] = {
            "part": number,
            "parts": 2,
            "full": True,
            "topics": {f"t{number}": [1, 1, 6, 0]},
            "removed": [],
        }
        server.say("TOPICS", moment(40), broker("b"), detail=part, data_version="0.0.3")

    def topics(second: int, name: str = "b", **parameters: str) -> list[tuple[str, int, int, str]]:
        found = recorded(server, tmp_path, moment(second), kind="broker", broker_name=name, cluster="c1")
        page = past_broker_page(found, ("c1", name), PageQuery("/", parameters))
        return [(each.name, each.read, each.write, each.perm) for each in page.topics.rows]

    assert topics(10) == [("orders", 4, 8, "rw")]
    assert topics(30) == [("paid", 2, 2, "r")]
    assert topics(50) == [("t1", 1, 1, "rw"), ("t2", 1, 1, "rw")]
    assert topics(50, name="a") == [("orders", 4, 8, "rw")]
    assert topics(70, name="a") == []
    found = recorded(server, tmp_path, moment(50), kind="broker", broker_name="b", cluster="c1")
    page = past_broker_page(found, ("c1", "b"), PageQuery("/", {"name": "T2"}))
    assert [each.path for each in page.topics.rows] == ["/topics/t2?at=2026-03-02T00%3A00%3A50Z"]


def test_a_topic_has_its_queues_of_the_moment_and_its_brokers_lead_to_it(server: NameServer, tmp_path: Path) -> None:
    server.say("PERM_CHANGED", moment(70), {"cluster": "c1", "broker_name": "b"}, detail={"writable": False})
    found = recorded(server, tmp_path, moment(90), kind="route", topic="orders")
    page = past_topic_page(found, "orders", QUERY)

    a, b = page.holders
    assert (a.queues, [one.state for one in a.replicas]) == (None, ["GONE"])
    assert (b.queues, b.note) == (("4", "8", "r"), "write permission wiped by an operator")
    assert b.path == "/brokers/c1/b?at=2026-03-02T00%3A01%3A30Z"
    assert (page.headline, page.severity) == ("1 broker name of 2 in its route, 0 can be written", "warning")


def test_steps_keep_the_other_parameters_and_now_has_no_moment(server: NameServer, tmp_path: Path) -> None:
    found = recorded(server, tmp_path, moment(30), kind="route", topic="orders")
    as_of = past_topic_page(found, "orders", QUERY).as_of

    assert as_of.now == "/topics/orders?name=x"
    assert as_of.previous == "/topics/orders?at=2026-03-02T00%3A00%3A01Z&name=x"
    assert as_of.next == "/topics/orders?at=2026-03-02T00%3A01%3A00Z&name=x"
    assert list(as_of.warnings) == []


def test_a_moment_of_which_nothing_was_recorded_says_so(server: NameServer, tmp_path: Path) -> None:
    found = recorded(server, tmp_path, moment(80_000), kind="route", topic="orders")
    page = past_topic_page(found, "orders", QUERY)
    (warning,) = page.as_of.warnings

    assert warning.startswith("This name server was not recording history at that moment; its last row of that day is")
    assert page.headline.startswith("No history was read for that time: the history ends at 2026-03-02 00:01:00 UTC")
    assert (page.holders, page.as_of.next) == ([], "")


def test_a_state_that_missing_rows_may_have_changed_is_unknown(server: NameServer, tmp_path: Path) -> None:
    server.lost += 5
    server.say("EXPIRED", moment(100), broker("b"), reason="SILENCE")
    found = recorded(server, tmp_path, moment(90), kind="route", topic="orders")
    page = past_topic_page(found, "orders", QUERY)

    holder = page.holders[1]
    assert (holder.is_known, holder.queues, holder.replicas) == (False, None, [])
    assert holder.note == "rows of that time are missing"
    html = rendered("past_topic.html", page, tab="/").decode()
    assert ("not in the route" in html, 'data-label="Permission">unknown' in html) == (False, True)
    assert any(text.startswith("Rows of that moment are missing, until ") for text in page.as_of.warnings)


@pytest.mark.parametrize(
    ("name", "text"),
    [("b", "Its state is unknown: rows of that time are missing."), ("c", "knows no broker of this name")],
)
def test_a_broker_of_unknown_state_is_not_taken_for_one_that_was_not_there(
    server: NameServer, tmp_path: Path, name: str, text: str
) -> None:
    server.lost += 5
    server.say("EXPIRED", moment(100), broker("b"), reason="SILENCE")
    found = recorded(server, tmp_path, moment(90), kind="broker", broker_name=name, cluster="c1")
    page = past_broker_page(found, ("c1", name), QUERY)

    assert page.replicas == []
    assert text in rendered("past_broker.html", page, tab="/").decode()


def test_a_name_server_that_was_warming_up_is_named(tmp_path: Path) -> None:
    server = NameServer()
    server.say("NAMESRV_STARTED", moment(0))
    server.say("NAMESRV_ALIVE", moment(60))
    page = past_topic_page(recorded(server, tmp_path, moment(30), kind="route", topic="t"), "t", QUERY)
    assert "This name server was WARMING at that moment." in page.as_of.warnings


def test_texts_of_the_history_are_escaped(server: NameServer, tmp_path: Path) -> None:
    about = broker("a") | {"broker_addr": MARKUP}
    server.say("REGISTERED", moment(70), about, detail={"note": MARKUP})
    server.say("TOPICS", moment(70), about, detail=FULL)
    asked = {"kind": "broker", "broker_name": "a", "cluster": "c1"}
    of_broker = past_broker_page(recorded(server, tmp_path, moment(90), **asked), ("c1", "a"), QUERY)
    of_topic = past_topic_page(recorded(server, tmp_path, moment(90), kind="route", topic="orders"), MARKUP, QUERY)

    of_fleet = past_fleet_page(recorded(server, tmp_path, moment(90), kind="fleet"), PageQuery("/", {}))

    pages = (("past_broker.html", of_broker), ("past_topic.html", of_topic), ("past_fleet.html", of_fleet))
    for template, page in pages:
        html = rendered(template, page, tab="/").decode()
        assert "&lt;b onclick=x&gt;" in html
        assert not [part for part in ("<b onclick", "\x1b", "\u202e") if part in html]


def test_a_moment_after_the_facts_of_now_has_an_age_of_zero(server: NameServer, tmp_path: Path) -> None:
    at = NODE.at + timedelta(seconds=1)
    page = past_topic_page(
        recorded(server, tmp_path, at.astimezone(UTC), kind="route", topic="orders"), "orders", QUERY
    )
    assert page.as_of.ago == 0.0


def test_the_fleet_has_what_was_not_up_first_and_filters(server: NameServer, tmp_path: Path) -> None:
    found = recorded(server, tmp_path, moment(90), kind="fleet")
    page = past_fleet_page(found, PageQuery("/", {"at": "then"}))

    assert [(row.name, row.addr, row.state, row.event) for row in page.brokers.rows] == [
        ("c1/a/0", "a:6379", "GONE", "EXPIRED SILENCE"),
        ("c1/b/0", "b:6379", "UP", "REGISTERED"),
    ]
    assert page.brokers.rows[0].since == "2026-03-02 00:01:00.000, for 30.0s"
    assert page.brokers.rows[1].path == "/brokers/c1/b?at=2026-03-02T00%3A01%3A30Z"
    assert (page.states, page.as_of.next) == ({"GONE": 1, "UP": 1}, "")
    for parameters, names in (({"state": "UP"}, ["c1/b/0"]), ({"name": "A:63"}, ["c1/a/0"]), ({"name": "z"}, [])):
        of = past_fleet_page(found, PageQuery("/", {"at": "then", **parameters}))
        assert [row.name for row in of.brokers.rows] == names
        assert of.states == page.states


def test_the_fleet_is_filtered_by_the_zone_and_the_owner_of_that_time(server: NameServer, tmp_path: Path) -> None:
    server.say("REREGISTERED", moment(45), broker("b") | {"zone": "z0"}, detail={"owner": "before"})
    server.say("REREGISTERED", moment(50), broker("b") | {"zone": "z1"}, detail={"owner": 'the "b" team \u00e9'})
    server.say("SUSPECTED", moment(55), broker("b") | {"zone": "z1"}, detail={"probe": '"owner": "none"'})
    found = recorded(server, tmp_path, moment(90), kind="fleet")

    def names(**parameters: str) -> list[str]:
        return [row.name for row in past_fleet_page(found, PageQuery("/", parameters)).brokers.rows]

    page = past_fleet_page(found, PageQuery("/", {"zone": "z1"}))
    assert [(row.name, row.zone, row.owner) for row in page.brokers.rows] == [("c1/b/0", "z1", 'the "b" team \u00e9')]
    assert (names(owner='the "b" team \u00e9'), names(owner="none"), names(zone="z2")) == (["c1/b/0"], [], [])
    assert page.choices == {"cluster": ["c1"], "zone": ["z1"], "owner": ['the "b" team \u00e9']}


@pytest.mark.parametrize("parameters", [{"version": "7"}, {"sort": "name"}, {"state": "FLAPPING"}])
def test_a_filter_that_the_past_of_the_fleet_lacks_is_refused(
    server: NameServer, tmp_path: Path, parameters: dict[str, str]
) -> None:
    found = recorded(server, tmp_path, moment(90), kind="fleet")
    with pytest.raises(InvalidRequest, match=next(iter(parameters))):
        past_fleet_page(found, PageQuery("/", parameters))


def test_a_broker_of_which_rows_are_missing_is_unknown(server: NameServer, tmp_path: Path) -> None:
    server.lost += 5
    server.say("EXPIRED", moment(100), broker("b"), reason="SILENCE")
    page = past_fleet_page(recorded(server, tmp_path, moment(90), kind="fleet"), PageQuery("/", {}))

    assert [(row.name, row.state, row.since, row.event) for row in page.brokers.rows] == [
        ("c1/a", UNKNOWN, "", ""),
        ("c1/b", UNKNOWN, "", ""),
    ]
    assert page.as_of.warnings
