"""Each command of ``pointsman-report`` over the shared history and its tables; with --full, all as processes."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.spark.histories import moment
from tests.spark.nights import Night, Run
from tests.spark.storybook import FIRST, LAST, SECOND, Stories
from tests.spark.tables import DayRunner

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

DURING = moment(5_300, day=1).isoformat()
"""When all brokers of ``has_topics`` but one are down."""
OF_STORY = ["orders", f"--at={DURING}", "--cluster=has_topics", "--quiet"]


def test_nightly_prints_its_progress_and_its_findings(night: Night) -> None:
    assert "1 flapping: c1/a/0" in night.output
    assert "s  Spark started" in night.progress
    assert "s  total" in night.progress


def test_backfill_of_days_to_come_fails_in_one_line(run_report: Run, stories: Stories, tmp_path: Path) -> None:
    to_come = datetime.now(tz=UTC).date() + timedelta(days=3)
    days = [f"--from={FIRST}", f"--to={to_come}"]
    ended = run_report("backfill", *days, f"--history={stories.history}", f"--warehouse={tmp_path / 'w'}", code=2)

    assert f"{to_come} is in the future" in ended.stderr
    assert ended.stderr.count("\n") == 1
    assert not (tmp_path / "w").exists()


def test_ingest_reads_what_is_there_and_prints_it(run_report: Run, night: Night, tmp_path: Path) -> None:
    words = ["ingest", f"--history={night.history}", f"--warehouse={tmp_path / 'w'}", "--output=json"]
    ended = run_report(*words, code=0)
    found = json.loads(ended.stdout)

    assert (found["new_rows"], found["bad_lines"]) == (night.numbers["completeness"]["rows"], 10)
    assert "read" in ended.stderr


def test_route_at_reads_the_routed_brokers_from_the_tables(run_report: Run, stories: Stories) -> None:
    # The name servers of the other stories do not know its brokers.
    ended = run_report("route-at", *OF_STORY, f"--warehouse={stories.warehouse}", "--output=json", code=1)
    own = "has_topics-ns1:9876"
    views = {broker["broker_name"]: broker["views"] for broker in json.loads(ended.stdout)["brokers"]}

    routed = {
        name: [view["queues"] is not None for view in seen if own in view["nodes"]] for name, seen in views.items()
    }
    assert routed == {"b": [False], "c": [False], "d": [False], "stays": [True]}
    assert ended.stderr == ""


def test_explain_reads_missing_brokers_from_files_that_no_nightly_run_has_read(
    run_report: Run, stories: Stories, tmp_path: Path
) -> None:
    folder = tmp_path / "h"
    for day in (FIRST, SECOND):
        raw = f"raw/dt={day}"
        shutil.copytree(stories.history / raw, folder / raw)
    words = [*OF_STORY, f"--history={folder}", "--timezone=UTC", "--output=json", "--exit-zero"]
    departures = json.loads(run_report("explain", *words, code=0).stdout)["departures"]

    assert {(gone["broker_name"], len(gone["seen_by"])) for gone in departures} == {("b", 2), ("c", 2), ("d", 2)}


def test_history_shows_the_same_with_and_without_java_and_writes_a_page(
    run_report: Run, stories: Stories, tmp_path: Path
) -> None:
    """Of a broker of every story, and of a day that no run has computed."""
    words = ["history", "b", f"--to={LAST + timedelta(days=1)}", "--days=4", f"--warehouse={stories.warehouse}"]
    words += [f"--history={stories.history}", "--output=json"]
    embedded, spark = (run_report(*words, f"--engine={engine}", code=1).stdout for engine in ("embedded", "spark"))

    assert json.loads(embedded) == json.loads(spark)
    assert len(json.loads(embedded)["replicas"]) > 100
    page = tmp_path / "page.html"
    one = [*words[2:], "--output=table", "--timezone=Asia/Tokyo", f"--html={page}"]
    text = run_report("history", "has_topics/b/0", *one, code=1).stdout
    assert text.startswith("has_topics/b/0, 2026-03-02 to 2026-03-05 (UTC days): ")
    assert "times are Asia/Tokyo" in page.read_text(encoding="utf-8")


def test_week_shows_the_same_with_and_without_java(run_report: Run, stories: Stories) -> None:
    """The incidents and the downtime of every story."""
    words = ["week", f"--to={LAST}", f"--warehouse={stories.warehouse}", "--output=json"]
    embedded, spark = (run_report(*words, f"--engine={engine}", code=1).stdout for engine in ("embedded", "spark"))
    found = json.loads(embedded)

    assert found == json.loads(spark)
    assert found["days"] == (LAST - FIRST).days + 1
    assert found["incidents"]["in_all"] == len(stories.tables["incidents"])
    downs = sum(row["down_seconds"] or 0.0 for row in stories.tables["availability"])
    assert sum(row["down_seconds"] for row in found["clusters"]) == pytest.approx(downs)


def test_compare_finds_the_day_with_more_outages_worse(run_report: Run, stories: Stories) -> None:
    words = ["compare", str(LAST), str(FIRST), f"--warehouse={stories.warehouse}", "--output=json"]
    ended = run_report(*words, code=1)
    assert json.loads(ended.stdout)["got_worse"]["brokers"] > 5
    assert run_report(*words, "--engine=spark", code=1).stdout == ended.stdout


def test_simulate_lists_brokers_that_would_not_have_been_flagged(run_report: Run, stories: Stories) -> None:
    days = [f"--from={FIRST}", f"--to={LAST}", "--set=flapping.suppress_above=15000"]
    assert (
        "flaps/b/0" in run_report("simulate", *days, f"--warehouse={stories.warehouse}", "--exit-zero", code=0).stdout
    )


def test_compact_packs_months_that_are_over(
    run_report: Run, stories: Stories, tmp_path: Path, run_days: DayRunner
) -> None:
    copied = tmp_path / "w"
    table = "registration_events"
    for day in (FIRST, SECOND):
        shutil.copytree(stories.warehouse / table / f"dt={day}", copied / table / f"dt={day}")
    shutil.copy(stories.warehouse / "_warehouse.json", copied)

    ended = run_report("compact", "--before=2026-04-01", f"--warehouse={copied}", "--output=json", code=0)
    assert json.loads(ended.stdout)["days"] == 2
    rows = [row for row in stories.tables[table] if row["dt"] in {FIRST, SECOND}]
    assert run_days.rows(copied, table, FIRST, SECOND) == rows
