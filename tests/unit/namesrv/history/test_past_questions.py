"""Questions about the past: the report's answers on the same files, and events and changes in pages."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pointsman_namesrv.history import folder
from pointsman_namesrv.history.past_files import PastFiles
from pointsman_namesrv.history.past_questions import Answer, answer
from pointsman_report.io.embedded_past import EmbeddedPast
from pointsman_report.questions.topic_questions import route_at
from tests.kit.history.own_files import write_own_files
from tests.spark.histories import NameServer, Row, broker, moment
from tests.spark.recorded_core import TOPICS, RecordedCore

SECOND_DAY = 86_400.0
LOST, TWICE = 0.02, 0.02
NODE = "ns1:9876"
MILLISECOND = timedelta(milliseconds=1)


def ask(files: PastFiles, **question: Any) -> Answer:
    """The answer as it arrives from the worker."""
    found: Answer = json.loads(json.dumps(answer(files, json.loads(json.dumps(question)))))
    return found


def moments(rng: random.Random, rows: list[Row]) -> Iterator[datetime]:
    """At rows and beside them, at midnight, and anywhere."""
    first, last = (datetime.fromisoformat(rows[place]["event_at"]) for place in (0, -1))
    while True:
        row = datetime.fromisoformat(rng.choice(rows)["event_at"])
        yield rng.choice((row, row - MILLISECOND, row + MILLISECOND))
        yield first + rng.random() * (last - first)
        yield rng.choice((moment(SECOND_DAY), first - MILLISECOND, last + timedelta(hours=1)))


def test_route_at_has_the_answers_of_the_report_on_the_same_files(
    tmp_path: Path, full: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder, "MEMBER_BYTES", 1_500)
    outcomes = set()
    worlds, questions = (20, 25) if full else (4, 20)
    for number in range(worlds):
        rng = random.Random(f"past-{number}")
        core = RecordedCore(
            random.Random(rng.random()), guard=rng.random() < 0.5, now=SECOND_DAY - rng.choice((300.0, 4_000.0))
        )
        core.live(150)
        rows = [row for row in core.rows if rng.random() > LOST]
        twice = [row for row in rows if rng.random() < TWICE] if number % 4 == 3 else []
        history = write_own_files(
            tmp_path / str(number), [*rows, *twice], rows_in_file=rng.choice((40, 10**9)), is_open=rng.random() < 0.5
        )
        files, report = PastFiles(history, NODE), EmbeddedPast(histories=[history])
        if rng.random() < 0.3:
            list(files.index_missing())
        chosen = moments(rng, rows)
        for _ in range(questions):
            at, topic = next(chosen), rng.choice((*TOPICS, "unknown"))
            cluster = rng.choice((None, None, "c1", "c2"))
            expected = route_at(report, topic, at, cluster=cluster).as_dict()
            found = ask(files, kind="route", topic=topic, at=at.isoformat(), cluster=cluster)
            assert found == json.loads(json.dumps(expected)), f"world {number}, {topic} at {at}, cluster {cluster}"
            outcomes.add(found["outcome"])
    assert len(outcomes) > 1


# --- events and changes -----------------------------------------------------------------------------------------


def days_of_rows(rng: random.Random) -> list[Row]:
    """Rows of some runs over two midnights, some rows lost, with operators' changes."""
    rows: list[Row] = []
    for number in range(5):
        server = NameServer(boot_id=f"b{rng.randrange(10**6)}", began_at=moment(number * 40_000)).start()
        for step in range(40):
            at = moment(number * 40_000 + step * 900 + rng.random() * 5)
            about = broker(rng.choice("abc"), cluster=rng.choice(("c1", "c2")))
            group = {**about, "broker_id": None, "broker_addr": None}
            match rng.randrange(6):
                case 0:
                    server.say(
                        "KV_CHANGED", at, detail={"namespace": "n", "key": "k", "by": rng.choice(("ann", "bob"))}
                    )
                case 1:
                    server.say("MAINTENANCE_ON", at, {**group, "broker_name": None}, detail={"by": "ann", "seconds": 9})
                case 2:
                    server.say("PERM_CHANGED", at, group, detail={"writable": False, "by": "bob", "claimed_by": "eve"})
                case 3:
                    server.say("PERM_CHANGED", at, group, detail={"writable": True})
                case 4:
                    server.say("HEARTBEATS", at, about)
                case _:
                    server.say(rng.choice(("REGISTERED", "EXPIRED", "SUSPECTED")), at, about)
        rows += server.rows
    return [row for row in rows if rng.random() > LOST]


QUIET = {"HEARTBEATS"}


def expected_events(rows: list[Row], asked: dict[str, Any]) -> list[tuple[str, int]]:
    """The events by a walk over all rows, the newest first: rows are in the order in which they were written."""

    def is_asked(row: Row) -> bool:
        at, detail = datetime.fromisoformat(row["event_at"]), row["detail"]
        kinds, by = asked.get("kinds"), asked.get("by")
        return (
            asked["since"] <= at <= asked["until"]
            and (row["event"] in kinds if kinds else row["event"] not in QUIET)
            and asked.get("cluster") in (None, row.get("cluster"))
            and asked.get("broker_name") in (None, row.get("broker_name"))
            and (by is None or by in (detail.get("by"), detail.get("claimed_by")))
            and (asked["kind"] == "events" or "by" in detail)
        )

    return [(row["boot_id"], row["seq"]) for row in reversed(rows) if is_asked(row)]


def all_pages(files: PastFiles, asked: dict[str, Any], limit: int) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []
    question: dict[str, Any] = asked | {name: asked[name].isoformat() for name in ("since", "until")} | {"limit": limit}
    token = ""
    while True:
        page = ask(files, **question, page_token=token)
        assert len(page["events"]) <= limit
        found += [(event["boot_id"], event["seq"]) for event in page["events"]]
        token = page["next_page_token"]
        if not token:
            return found
        assert len(page["events"]) == limit
        assert len(found) < 1_000


@pytest.mark.parametrize("seed", range(6))
def test_pages_of_events_and_changes_have_each_asked_row_once_the_newest_first(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder, "MEMBER_BYTES", 1_500)
    rng = random.Random(seed)
    rows = days_of_rows(rng)
    twice = rng.sample(rows, 5)
    history = write_own_files(
        tmp_path, [*rows, *twice], rows_in_file=rng.choice((15, 10**9)), is_open=rng.random() < 0.5
    )
    files = PastFiles(history, NODE)
    first, last = (datetime.fromisoformat(rows[place]["event_at"]) for place in (0, -1))
    nonempty = 0
    for _ in range(25):
        moments = sorted(first + rng.random() * (last - first) for _ in range(2))
        since, until = rng.choice(((first, last), moments))
        asked: dict[str, Any] = {"kind": rng.choice(("events", "changes")), "since": since, "until": until}
        asked |= rng.choice(({}, {"cluster": "c1"}, {"broker_name": "b"}, {"cluster": "c2", "broker_name": "a"}))
        asked |= rng.choice(({}, {}, {"by": "ann"}, {"by": "eve"}))
        if asked["kind"] == "events":
            asked |= rng.choice(({}, {}, {"kinds": ["EXPIRED", "HEARTBEATS"]}, {"kinds": ["KV_CHANGED"]}))
        found = all_pages(files, asked, rng.choice((1, 3, 1_000)))
        assert found == expected_events(rows, asked), asked
        nonempty += bool(found)
    assert nonempty > 10


def test_events_of_a_topic_are_those_of_its_brokers_and_changes_of_the_topic(tmp_path: Path) -> None:
    server = NameServer().start(moment(0))
    for name, topic in (("a", "orders"), ("b", "payments")):
        server.say("REGISTERED", moment(1), broker(name), data_version="0.0.1")
        detail: dict[str, Any] = {"part": 1, "parts": 1, "full": True, "topics": {topic: [4, 4, 6, 0]}, "removed": []}
        server.say("TOPICS", moment(1), broker(name), detail=detail)
        server.say("EXPIRED", moment(60), broker(name), reason="SILENCE")
    delta: dict[str, Any] = {"part": 1, "parts": 1, "full": False, "base": "0.0.1", "topics": {}, "removed": ["orders"]}
    server.say("TOPICS", moment(70), broker("a"), detail=delta)
    group = {"cluster": "c1", "broker_name": "a", "broker_id": None}
    for topic in ("orders", "payments"):
        server.say("TOPIC_DELETED", moment(80), group, detail={"topic": topic, "by": "ann"})
    files = PastFiles(write_own_files(tmp_path, server.rows), NODE)
    span = {"since": moment(0).isoformat(), "until": moment(100).isoformat()}

    found = ask(files, kind="events", topic="orders", limit=100, **span)["events"]

    assert [(event["event"], event["broker_name"]) for event in reversed(found)] == [
        ("REGISTERED", "a"),
        ("EXPIRED", "a"),
        ("TOPICS", "a"),
        ("TOPIC_DELETED", "a"),
    ]
    assert [event["detail"].get("topic") for event in found][:1] == ["orders"]


def test_the_events_of_a_broker_up_to_a_moment_have_those_of_its_cluster(tmp_path: Path) -> None:
    server = NameServer().start(moment(0))
    server.say("REGISTERED", moment(1), broker("a"))
    server.say("REGISTERED", moment(2), broker("b", cluster="c2"))
    for cluster in ("c1", "c2"):
        server.say("GUARD_ON", moment(3), {"cluster": cluster, "broker_name": None}, detail={"lost": 3})
    server.say("EXPIRED", moment(9), broker("a"), reason="SILENCE")
    files = PastFiles(write_own_files(tmp_path, server.rows), NODE)

    found = ask(files, kind="broker", broker_name="a", at=moment(5).isoformat(), limit=10)

    assert [(event["event"], event["cluster"]) for event in found["events"]] == [
        ("REGISTERED", "c1"),
        ("GUARD_ON", "c1"),
    ]
    ((replica,),) = [view["replicas"] for view in found["brokers"][0]["views"]]
    assert (replica["state"], found["name_servers"][0]["state"]) == ("UP", "READY")


# --- steps in time ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_steps_lead_to_each_event_of_a_broker_and_back(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder, "MEMBER_BYTES", 1_500)
    rng = random.Random(f"steps-{seed}")
    rows = days_of_rows(rng)
    files = PastFiles(write_own_files(tmp_path, rows, rows_in_file=rng.choice((15, 10**9))), NODE)
    asked = {"kind": "events", "cluster": "c1", "broker_name": "b", "since": moment(0), "until": moment(0, day=9)}
    wanted = set(expected_events(rows, asked))
    times = sorted({datetime.fromisoformat(row["event_at"]) for row in rows if (row["boot_id"], row["seq"]) in wanted})
    whole = {"cluster": "c1", "broker_name": "b", "kind": "broker", "steps": True}
    wholes = {datetime.fromisoformat(row["event_at"]) for row in rows if row["event"] == "MAINTENANCE_ON"}

    def walk(start: datetime, side: str) -> list[datetime]:
        found, at = list[datetime](), start
        while (step := ask(files, **whole, at=at.isoformat())["steps"][side]) is not None:
            at = datetime.fromisoformat(step)
            found.append(at)
        return [each for each in found if each not in wholes]

    assert len(times) > 5
    assert walk(times[0] - MILLISECOND, "next") == times
    assert walk(times[-1] + MILLISECOND, "previous") == times[::-1]


def test_the_steps_of_a_topic_are_events_of_its_brokers_and_changes_of_it(tmp_path: Path) -> None:
    server = NameServer().start(moment(0))
    for name, topic in (("a", "orders"), ("b", "payments")):
        server.say("REGISTERED", moment(1), broker(name), data_version="0.0.1")
        detail: dict[str, Any] = {"part": 1, "parts": 1, "full": True, "topics": {topic: [4, 4, 6, 0]}, "removed": []}
        server.say("TOPICS", moment(1), broker(name), detail=detail)
    server.say("EXPIRED", moment(60), broker("b"), reason="SILENCE")
    server.say("EXPIRED", moment(70), broker("a"), reason="SILENCE")
    files = PastFiles(write_own_files(tmp_path, server.rows), NODE)

    def steps(seconds: float) -> Any:
        return ask(files, kind="route", topic="orders", at=moment(seconds).isoformat(), steps=True)["steps"]

    def stamp(seconds: float) -> str:
        return moment(seconds).isoformat(timespec="milliseconds").replace("+00:00", "Z")

    assert steps(50) == {"previous": stamp(1), "next": stamp(70)}
    assert steps(70) == {"previous": stamp(1), "next": None}
    assert "steps" not in ask(files, kind="route", topic="orders", at=moment(50).isoformat())


def test_a_step_ends_after_seven_days(tmp_path: Path) -> None:
    server = NameServer(began_at=moment(0)).start()
    server.say("REGISTERED", moment(1), broker("a"))
    files = PastFiles(write_own_files(tmp_path, server.rows), NODE)
    question = {"kind": "broker", "broker_name": "a", "steps": True}

    assert ask(files, **question, at=moment(1, day=7).isoformat())["steps"]["previous"] is not None
    assert ask(files, **question, at=moment(2, day=7).isoformat())["steps"]["previous"] is None


# --- the fleet ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_the_fleet_has_each_replica_as_the_question_about_its_broker_name_does(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder, "MEMBER_BYTES", 4_000)
    rng = random.Random(f"fleet-{seed}")
    core = RecordedCore(random.Random(rng.random()), guard=False, now=SECOND_DAY - 300.0)
    core.live(150)
    rows = [row for row in core.rows if rng.random() > rng.choice((0.0, LOST))]
    files = PastFiles(write_own_files(tmp_path, rows, rows_in_file=rng.choice((40, 10**9))), NODE)
    chosen, known = moments(rng, rows), 0
    for _ in range(20):
        at, cluster = next(chosen).isoformat(), rng.choice((None, "c1"))
        fleet = ask(files, kind="fleet", at=at, cluster=cluster)
        by_name: dict[tuple[str, str], list[Answer]] = {}
        for one in fleet["replicas"]:
            by_name.setdefault((one.pop("cluster"), one.pop("broker_name")), []).append(one)
        names = {(row["cluster"], row["broker_name"]) for row in rows if row.get("broker_id") is not None}
        for of, name in names if cluster is None else {each for each in names if each[0] == cluster}:
            found = ask(files, kind="broker", broker_name=name, cluster=of, at=at)
            views = [
                view for each in found["brokers"] for view in each["views"] if view["replicas"] or not view["known"]
            ]
            replicas = by_name.pop((of, name), [])
            assert bool(replicas) == bool(views), (at, name)
            assert fleet["name_servers"] == found["name_servers"], at
            if replicas and replicas[0]["state"] is not None:
                fields = replicas[0].keys() - {"zone", "owner"}
                shown = [{field: one[field] for field in fields} for one in replicas]
                assert shown == [{field: one[field] for field in fields} for one in views[0]["replicas"]], at
                known += 1
        assert not by_name
    assert known > 20
