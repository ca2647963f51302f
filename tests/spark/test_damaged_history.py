"""Damaged files and lines: each is reported, and none stops the run or is misinterpreted."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from pointsman_report.cli import main
from pointsman_report.hadoop_files import RawFile
from pointsman_report.io import History
from pointsman_report.jobs import pipeline
from pointsman_report.schemas import WAREHOUSE_VERSION
from tests.spark.histories import MIDNIGHT, NameServer, Row, broker, moment, write_history
from tests.spark.storybook import Stories, story
from tests.spark.tables import DayRunner

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

DAY = MIDNIGHT.date()
NAME = "$a$_{\x1b[31m"
BAD = {
    "two on a line": "more than one JSON object on the line",
    "text behind": "more than one JSON object on the line",
    "a brace behind": "more than one JSON object on the line",
    "single quotes": "torn or not JSON",
    "small letters": "event is not in capital letters",
}


def write_bad_lines(path: Path) -> None:
    row = NameServer().say("SOMETHING_NEW", moment(50), seq=900)
    good = json.dumps(row)
    lines = [good + good, good + " xx", good + "}", good.replace('"', "'"), json.dumps(row | {"event": "expired"})]
    path.write_text("\n".join(lines), encoding="utf-8")


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("damaged")
    server = NameServer().start()
    server.say("REGISTERED", moment(10), broker(NAME))
    server.outage(broker(NAME), moment(100), until=moment(160))
    server.say("NAMESRV_ALIVE", datetime.now(tz=UTC) + timedelta(days=900))
    server.say("NAMESRV_ALIVE", moment(5_000))
    write_history(folder, server.rows)
    raw = folder / "raw" / f"dt={DAY}"
    write_bad_lines(raw / "bad.jsonl")
    (raw / ".unfinished.jsonl.gz").write_bytes(b"\x1f\x8bxx")
    (raw / "_hidden.jsonl").write_text("not read\n", encoding="utf-8")
    (raw / "plain.jsonl.gz").write_text("this is not a gzip\n" * 50, encoding="utf-8")
    # Random text, because it is longer than a reader's buffer when packed too.
    other = NameServer(node="ns2:9876").start()
    for n in range(3_000):
        other.say("NAMESRV_ALIVE", moment(n), detail={"n": hash((n, "a")), "m": hash((n, "b"))})
    other.stop(moment(3_001))
    packed = gzip.compress("".join(json.dumps(row) + "\n" for row in other.rows).encode())
    (raw / "torn.jsonl.gz").write_bytes(packed[:-2_000])
    return folder


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("warehouse")


@pytest.fixture(scope="module")
def numbers(run_days: DayRunner, history: Path, warehouse: Path) -> dict[str, Any]:
    """A night as far as its reading, in which a name server packs a file between listing and reading."""
    assert run_days.spark is SparkSession.getActiveSession()
    packed: list[Path] = []
    read = History.lines

    def pack_then_read(self: History, files: list[RawFile], faults: dict[str, str] | None = None) -> DataFrame:
        lines = read(self, files, faults)
        if not packed:
            plain = next((history / "raw" / f"dt={DAY}").glob("ns1*.jsonl"))
            packed.append(plain.with_name(f"{plain.name}.gz"))
            packed[0].write_bytes(gzip.compress(plain.read_bytes()))
            plain.unlink()
        return lines

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(History, "lines", pack_then_read)
        patched.setattr(pipeline, "STAGES", ())
        places = ["--history", str(history), "--warehouse", str(warehouse)]
        assert main(["nightly", *places, "--date", str(DAY)]) == 1
    report = warehouse / "report" / f"dt={DAY}" / "report.json"
    document: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
    return document


def test_a_file_that_is_packed_between_listing_and_reading_is_still_read(
    numbers: dict[str, Any], warehouse: Path, run_days: DayRunner
) -> None:
    rows = run_days.rows(warehouse, "registration_events", DAY, DAY)

    assert [row["event"] for row in rows if row["broker_name"] == NAME] == ["REGISTERED", "EXPIRED", "REGISTERED"]
    assert numbers["completeness"]["rows"] == len(rows)


@story
def has_a_strange_name(one: NameServer, two: NameServer, b: Row) -> None:
    for server in (one, two):
        server.say("REGISTERED", moment(10), b | {"broker_name": NAME})
        server.outage(b | {"broker_name": NAME}, moment(100), until=moment(160))
        server.stop(moment(5_000))


def test_a_name_may_be_anything(stories: Stories) -> None:
    (down,) = stories.downs("has_a_strange_name")

    assert (down["broker_name"], down["start_at"], down["end_at"]) == (NAME, moment(100), moment(160))


def test_a_gzip_that_is_none_and_a_torn_one_are_named_and_read_up_to_the_tear(numbers: dict[str, Any]) -> None:
    data = numbers["completeness"]

    assert [Path(file).name for file in data["unreadable_files"]] == ["plain.jsonl.gz", "torn.jsonl.gz"]
    assert any(text.startswith("2 history files cannot be read to their end: ") for text in _findings(numbers))
    (other,) = [observer for observer in numbers["observers"] if observer["node"] == "ns2:9876"]
    assert 2_000 < other["rows"] < 3_000


def test_a_line_that_is_not_one_valid_object_is_in_quarantine_with_its_reason(numbers: dict[str, Any]) -> None:
    counts = {row["reason"]: row["lines"] for row in numbers["completeness"]["quarantined"]}

    assert {reason: counts.get(reason) for reason in BAD.values()} == {
        reason: list(BAD.values()).count(reason) for reason in BAD.values()
    }
    assert "5 history lines could not be read and are in quarantine" in _findings(numbers)


def test_files_that_spark_passes_over_are_not_counted(numbers: dict[str, Any]) -> None:
    assert numbers["completeness"]["files"] == 5


def test_a_row_from_the_future_and_a_silent_end_are_findings(numbers: dict[str, Any]) -> None:
    found = _findings(numbers)

    assert "1 history row dated in the future: a clock is or was wrong" in found
    assert any("ns1:9876) wrote no rows after 2026-03-02T01:23:20" in text for text in found)


def _findings(numbers: dict[str, Any]) -> list[str]:
    findings: list[str] = numbers["headline"]["findings"]
    return findings


def test_a_damaged_table_is_exit_2_with_its_cause_and_not_an_empty_warehouse(
    run_days: DayRunner, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_days.spark is SparkSession.getActiveSession()
    history = write_history(tmp_path / "h", NameServer().start().rows)
    state = tmp_path / "w" / "broker_state" / f"dt={DAY - timedelta(days=1)}"
    state.mkdir(parents=True)
    (state / "part-0.parquet").write_bytes(b"PAR1 only")
    label = {"warehouse_version": WAREHOUSE_VERSION}
    (tmp_path / "w" / "_warehouse.json").write_text(json.dumps(label), encoding="utf-8")

    assert main(["nightly", "--history", str(history), "--warehouse", str(tmp_path / "w"), "--date", str(DAY)]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert "part-0.parquet" in error
    assert "is not a Parquet file" in error
