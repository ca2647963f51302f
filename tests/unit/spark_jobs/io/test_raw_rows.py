"""Raw history files without Spark: which days are read, and which of several rows with one number counts."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest

from pointsman_report.hadoop_files import local_files
from pointsman_report.io.raw_rows import rows_of
from tests.spark.histories import MIDNIGHT, NameServer, Row, broker, moment, write_history

DAY = MIDNIGHT.date()


def registered(**fields: Any) -> Row:
    return NameServer().say("REGISTERED", moment(1.5), broker("a"), **fields)


def read(history: Path, first_day: date = DAY, last_day: date = DAY) -> list[Row]:
    return list(rows_of(local_files(history / "raw"), first_day=first_day, last_day=last_day).values())


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
