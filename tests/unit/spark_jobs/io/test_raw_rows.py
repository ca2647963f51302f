"""Lines of raw history without Spark: which are rows, and which of several with one number counts."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from pointsman_report.hadoop_files import local_files
from pointsman_report.io.raw_rows import good_row, rows_of
from tests.spark.histories import MIDNIGHT, NameServer, Row, broker, moment, write_history

DAY = MIDNIGHT.date()


def registered(**fields: Any) -> Row:
    return NameServer().say("REGISTERED", moment(1.5), broker("a"), **fields)


def read(history: Path, first_day: date = DAY, last_day: date = DAY) -> list[Row]:
    return list(rows_of(local_files(history / "raw"), first_day=first_day, last_day=last_day).values())


def test_a_row_has_its_fields_its_day_and_its_time() -> None:
    row = good_row(f" {json.dumps(registered(detail={'a': 1}))}\r\n")

    assert row is not None
    assert (row["dt"], row["at"], row["detail"]) == (DAY, 1_772_409_601_500_000, {"a": 1})
    assert (row["broker_name"], row["zone"]) == ("a", None)


def test_a_text_that_is_not_one_is_kept_as_json() -> None:
    row = good_row(json.dumps(registered(host={"n": [1]}, zone=7)))

    assert row is not None
    assert (row["host"], row["zone"]) == ('{"n":[1]}', "7")


@pytest.mark.parametrize(
    "fields",
    [
        {"schema_version": 1},
        {"node": None},
        {"seq": 0},
        {"seq": 1.5},
        {"seq": True},
        {"seq": 2**63},
        {"schema_version": 2**31},
        {"planned": 1},
        {"event": "registered"},
        {"event_at": "2026-03-02 00:00:00Z"},
        {"event_at": "2026-13-02T00:00:00Z"},
        {"broker_id": None},
        {"state": None},
        {"state": "BETTER"},
        {"event": "TOPICS", "state": None},
    ],
    ids=str,
)
def test_a_row_against_the_rules_is_left_out(fields: Row) -> None:
    assert good_row(json.dumps(registered() | fields)) is None


@pytest.mark.parametrize("line", ["", "[]", "7", "{", "\ufeff{}", "{'a': 1}", "{}{}", "{} x"])
def test_a_line_that_is_not_one_object_is_left_out(line: str) -> None:
    assert good_row(line) is None


def test_rows_of_other_days_are_left_out_whatever_their_file_and_zone(tmp_path: Path) -> None:
    server = NameServer()
    server.say("A", moment(-1))
    server.say("B", moment(1))
    # Written in another form, and in a zone in which its day is another one.
    server.say("C", moment(2), event_at="2026-03-01T23:00:00-02:00")
    history = write_history(tmp_path, server.rows, one_file_a_day=True)

    assert sorted(row["event"] for row in read(history)) == ["B", "C"]


@pytest.mark.parametrize("turned", [False, True])
def test_of_different_rows_with_one_number_the_smallest_counts(tmp_path: Path, turned: bool) -> None:
    one, other = registered(reason="B"), registered(reason=None)
    rows = [other, one] if turned else [one, other]
    history = write_history(tmp_path, [*rows, one])

    assert [row["reason"] for row in read(history)] == [None]


def test_a_row_that_routes_do_not_need_is_counted_and_not_kept(tmp_path: Path) -> None:
    server = NameServer()
    server.say("HEARTBEATS", moment(1), broker("a"), detail={"count": 7})
    (row,) = read(write_history(tmp_path, server.rows))

    assert row["seq"] == 1
    assert "detail" not in row
