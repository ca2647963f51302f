"""The installed ``pointsman-report``, each command as a separate process, over one small history of three days."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.spark.histories import MIDNIGHT, NameServer, broker, moment, write_history

pytestmark = [pytest.mark.spark, pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(900)]

INSTALLED = Path(sys.executable).parent / "pointsman-report"
SECONDS = 300.0
FIRST, SECOND, LAST = (MIDNIGHT.date() + timedelta(days=n) for n in range(3))
QUEUES = {"orders": [4, 4, 6]}
LOST_AT, BACK_AT = moment(10_000, day=1), moment(13_600, day=1)
"""When b was down, within the second day."""

Run = Callable[..., subprocess.CompletedProcess[str]]


def write_histories(history: Path) -> None:
    """Two name servers; a flaps on the last day, b is down for an hour on the second; both have ``orders``."""
    for n in (1, 2):
        server = NameServer(node=f"ns{n}:9876", boot_id=f"b{n}").start()
        for name in ("a", "b"):
            server.say("REGISTERED", moment(10), broker(name), data_version="0-1-1")
            topics = {"part": 1, "parts": 1, "full": True, "topics": QUEUES}
            server.say("TOPICS", moment(10), broker(name), data_version="0-1-1", detail=topics)
        server.outage(broker("b"), LOST_AT, until=BACK_AT)
        for k in range(4):
            server.outage(broker("a"), moment(5_000 + 60 * k, day=2), until=moment(5_020 + 60 * k, day=2))
        server.stop(moment(80_000, day=2))
        write_history(history / f"ns{n}", server.rows, packed=n == 2)


@pytest.fixture(scope="module")
def histories(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("history")
    write_histories(folder)
    return [f"--history={folder / name}" for name in ("ns1", "ns2")]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Run the command in a separate folder; ``warehouse`` there is the warehouse."""
    folder = tmp_path_factory.mktemp("runs")
    # Java prints notices, which must not appear in a command's output.
    talkative = {"SPARK_SUBMIT_OPTS": "-Xlog:safepoint=info"}
    environment = {key: value for key, value in os.environ.items() if key != "SPARK_LOCAL_IP"} | talkative

    def command(*words: str, code: int) -> subprocess.CompletedProcess[str]:
        ended = subprocess.run(
            [INSTALLED, *words],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert ended.returncode == code, f"{ended.stdout}\n{ended.stderr}"
        return ended

    return command


@pytest.fixture(scope="module")
def computed(run: Run, histories: list[str]) -> dict[str, Any]:
    """The three days: the first two in one pass, the last separately; return its result."""
    run("backfill", f"--from={FIRST}", f"--to={SECOND}", *histories, "--warehouse=warehouse", "--exit-zero", code=0)
    last = run("nightly", f"--date={LAST}", *histories, "--warehouse=warehouse", "--output=json", code=1)
    assert "s  total" in last.stderr
    numbers: dict[str, Any] = json.loads(last.stdout)
    return numbers


def test_ingest_reads_what_is_new_once(run: Run, histories: list[str]) -> None:
    words = ["ingest", *histories, "--warehouse=fresh", "--output=json", "--quiet"]
    first, again = (json.loads(run(*words, code=0).stdout) for _ in range(2))

    rows = 2 * (2 + 4 + 2 + 8 + 1)
    assert (first["files"], first["rows"], first["new_rows"], first["bad_lines"]) == (6, rows, rows, 0)
    assert first["days"] == [str(day) for day in (FIRST, SECOND, LAST)]
    assert (again["files"], again["rows"], again["new_rows"], again["days"]) == (0, 0, 0, [])
    assert run(*words[:-2], code=0).stdout.startswith("files: 0\n")


def test_nightly_reports_the_broker_that_flaps(computed: dict[str, Any]) -> None:
    classes = {entry["broker_name"]: entry["class"] for entry in computed["brokers"]}
    assert classes["a"] == "flapping"
    assert classes["b"] != "flapping"


@pytest.mark.usefixtures("computed")
def test_route_at_and_explain_show_the_broker_that_was_down(run: Run) -> None:
    during = (LOST_AT + (BACK_AT - LOST_AT) / 2).isoformat()
    route = run("route-at", "orders", "--at", during, "--warehouse=warehouse", "--output=json", "--quiet", code=0)
    why = run("explain", "orders", "--at", during, "--warehouse=warehouse", "--quiet", "--exit-zero", code=0)

    views = {broker["broker_name"]: broker["views"] for broker in json.loads(route.stdout)["brokers"]}
    routed = {name: [view["queues"] is not None for view in seen] for name, seen in views.items()}
    assert routed == {"a": [True], "b": [False]}
    assert "SILENCE" in why.stdout
    assert route.stderr == why.stderr == ""


def test_a_query_can_read_files_that_no_nightly_run_has_read(run: Run, histories: list[str]) -> None:
    when = (LOST_AT + timedelta(minutes=1)).replace(tzinfo=None).isoformat()
    words = ["explain", "orders", "--at", when, *histories, "--timezone=UTC", "--output=json", "--exit-zero"]
    (gone,) = json.loads(run(*words, code=0).stdout)["departures"]
    assert (gone["broker_name"], len(gone["seen_by"])) == ("b", 2)


@pytest.mark.usefixtures("computed")
def test_an_unknown_topic_is_reported_and_not_a_failure(run: Run) -> None:
    words = ["route-at", "nosuch", "--at", LOST_AT.isoformat(), "--warehouse=warehouse", "--quiet"]
    assert "nosuch" in run(*words, code=1).stdout


@pytest.mark.usefixtures("computed")
def test_compare_finds_the_day_with_a_flapping_broker_worse(run: Run) -> None:
    output = run("compare", str(FIRST), str(LAST), "--warehouse=warehouse", "--output=json", code=1).stdout
    assert json.loads(output)["got_worse"]


@pytest.mark.usefixtures("computed")
def test_comparing_with_a_day_that_was_not_computed_fails_in_one_line(run: Run) -> None:
    other = str(LAST + timedelta(days=9))
    ended = run("compare", str(FIRST), other, "--warehouse=warehouse", "--quiet", code=2)
    assert other in ended.stderr
    assert ended.stderr.count("\n") == 1


@pytest.mark.usefixtures("computed")
def test_simulate_lists_brokers_that_would_not_have_been_flagged(run: Run) -> None:
    days = [f"--from={FIRST}", f"--to={LAST}", "--set=flapping.suppress_above=15000"]
    assert "c1/a/0" in run("simulate", *days, "--warehouse=warehouse", "--exit-zero", code=0).stdout


@pytest.mark.usefixtures("computed")
def test_compact_leaves_the_report_as_it_was(run: Run, histories: list[str], computed: dict[str, Any]) -> None:
    run("compact", "--before=2026-04-01", "--warehouse=warehouse", code=0)
    again = run("nightly", f"--date={LAST}", *histories, "--warehouse=warehouse", "--output=json", "--quiet", code=1)
    assert json.loads(again.stdout) == computed
