"""Rows of earlier runs, the newest first: order, ages, bounds, and files that cannot be read."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import time
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from pointsman.manual_clock import ManualClock
from pointsman_namesrv.core.events import Event, EventKind
from pointsman_namesrv.core.model import GroupKey
from pointsman_namesrv.history import newest_rows, past_lines
from pointsman_namesrv.history.folder import history_files
from pointsman_namesrv.history.newest_rows import NewestRows, Question
from tests.kit.history.past_runs import BEGAN, PastRun, question_about
from tests.kit.name_server.events import broker_event, facts, topics_event

EXPIRED, REGISTERED = EventKind.EXPIRED, EventKind.REGISTERED


def read(question: Question) -> tuple[list[tuple[int, int, dict[str, Any]]], NewestRows]:
    reading = NewestRows(question, clock=ManualClock())
    return [(run, age, json.loads(line)) for run, age, line in reading.read()], reading


def names(question: Question) -> list[tuple[int, str]]:
    """Run and broker name of each row about a broker, in the order of reading."""
    return [(run, row["broker_name"]) for run, _, row in read(question)[0] if row["broker_name"]]


def ages(question: Question) -> list[int]:
    return [age for _, age, row in read(question)[0] if row["broker_name"]]


def test_rows_come_by_run_and_number_with_their_ages(tmp_path: Path) -> None:
    first = PastRun(tmp_path, "b1").add(broker_event(name="a"), broker_event(name="b"), uptime=60.0)
    first.close()
    first.add(broker_event(name="c"), uptime=120.0).close(packed=False)
    second = PastRun(tmp_path, "a2", began=BEGAN + timedelta(minutes=10), previous="b1")
    second.add(broker_event(name="d"), uptime=1.5).close()
    question = question_about(tmp_path, previous_boot_id="a2")
    assert names(question) == [(-1, "d"), (-2, "c"), (-2, "b"), (-2, "a")]
    assert ages(question) == [50 * 60_000 - 1_500, 58 * 60_000, 59 * 60_000, 59 * 60_000]


def test_a_clock_that_was_set_back_changes_no_order_and_counts_as_no_time(tmp_path: Path) -> None:
    PastRun(tmp_path, "b1").add(broker_event(name="a"), uptime=60.0).close()
    later = PastRun(tmp_path, "b2", began=BEGAN - timedelta(hours=3), previous="b1")
    later.add(broker_event(name="b"), uptime=30.0).close()
    question = question_about(tmp_path, previous_boot_id="b2")
    assert names(question) == [(-1, "b"), (-2, "a")]
    hours = 4 * 3_600_000
    assert ages(question) == [hours - 30_000, hours]


def test_without_a_link_the_run_that_began_last_is_the_one_before(tmp_path: Path) -> None:
    PastRun(tmp_path, "b1").add(broker_event(name="a"), uptime=60.0).close()
    PastRun(tmp_path, "a2", began=BEGAN + timedelta(minutes=5)).add(broker_event(name="b"), uptime=1.0).close()
    PastRun(tmp_path, "c0", began=BEGAN - timedelta(days=1)).add(broker_event(name="c"), uptime=1.0).close()
    assert names(question_about(tmp_path)) == [(-1, "b"), (-2, "a"), (-3, "c")]
    assert names(question_about(tmp_path, previous_boot_id="lost")) == [(-1, "b"), (-2, "a"), (-3, "c")]


def test_routine_rows_and_those_of_this_run_are_not_read(tmp_path: Path) -> None:
    PastRun(tmp_path, "now").add(broker_event(name="x"), uptime=0.0).close()
    routine = [Event(kind=kind, broker=facts()) for kind in (EventKind.HEARTBEATS, EventKind.CHECKPOINT)]
    PastRun(tmp_path, "b1").add(broker_event(), *routine, topics_event(600), uptime=1.0).close()
    assert names(question_about(tmp_path)) == [(-1, "a")]


def test_a_row_that_was_written_twice_is_read_once(tmp_path: Path) -> None:
    run = PastRun(tmp_path, "b1").add(broker_event(name="a"), broker_event(name="b"), uptime=1.0)
    path = run.close(packed=False)
    run.add(broker_event(name="c"), uptime=2.0)
    again = run.close(packed=False)
    again.write_bytes(path.read_bytes() + again.read_bytes())
    assert names(question_about(tmp_path)) == [(-1, "c"), (-1, "b"), (-1, "a")]


def test_a_torn_last_line_costs_that_line(tmp_path: Path) -> None:
    PastRun(tmp_path, "b1").add(broker_event(), uptime=1.0).close(packed=False, torn=b'{"schema_version": 2, "event')
    rows, reading = read(question_about(tmp_path))
    assert [row["event"] for _, _, row in rows] == ["REGISTERED", "NAMESRV_STARTED"]
    assert (reading.done.files, reading.done.files_damaged, reading.done.rows_invalid) == (1, 0, 0)


@pytest.mark.parametrize("damage", ["cut", "content", "not gzip"])
def test_a_damaged_file_is_skipped_and_counted(tmp_path: Path, damage: str) -> None:
    run = PastRun(tmp_path, "b1").add(broker_event(name="a"), uptime=1.0)
    run.close()
    path = run.add(*[broker_event(name="b", detail={"text": str(n)}) for n in range(200)], uptime=2.0).close()
    content = path.read_bytes()
    half = len(content) // 2
    torn = {"cut": content[:half], "content": content[:half] + b"\xff" * 9 + content[half + 9 :], "not gzip": b"x" * 99}
    path.write_bytes(torn[damage])
    run.add(broker_event(name="c"), uptime=3.0).close()
    rows, reading = read(question_about(tmp_path))
    assert [row["broker_name"] for _, _, row in rows if row["broker_name"]] == ["c", "a"]
    assert (reading.done.files, reading.done.files_damaged, reading.done.ended_by) == (2, 1, "start")


def test_a_huge_file_is_skipped_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(newest_rows, "MAX_FILE_BYTES", 50_000)
    run = PastRun(tmp_path, "b1").add(broker_event(name="a"), uptime=1.0)
    run.close()
    run.add(*[broker_event(name="b")] * 200, uptime=2.0).close()
    rows, reading = read(question_about(tmp_path))
    assert {row["broker_name"] for _, _, row in rows} == {"a", None}
    assert (reading.done.files, reading.done.files_huge) == (1, 1)


def test_an_overlong_line_costs_that_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(newest_rows, "MAX_LINE_BYTES", 2_000)
    monkeypatch.setattr(past_lines, "PIECE_BYTES", 1_000)
    long = broker_event(name="long", detail={"text": "x" * 10_000})
    PastRun(tmp_path, "b1").add(broker_event(name="a"), long, broker_event(name="b"), uptime=1.0).close()
    rows, reading = read(question_about(tmp_path))
    assert [row["broker_name"] for _, _, row in rows] == ["b", "a", None]
    assert reading.done.rows_invalid == 1


def test_a_file_that_is_removed_or_compressed_while_the_folder_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = PastRun(tmp_path, "b1").add(broker_event(name="a"), uptime=1.0)
    run.close()
    removed = run.add(broker_event(name="b"), uptime=2.0).close(packed=False)
    packed = run.add(broker_event(name="c"), uptime=3.0).close(packed=False)
    listed = history_files(tmp_path / "raw")
    monkeypatch.setattr(newest_rows, "history_files", lambda _: listed)
    removed.unlink()
    packed.with_name(f"{packed.name}.gz").write_bytes(gzip.compress(packed.read_bytes()))
    packed.unlink()
    rows, reading = read(question_about(tmp_path))
    assert [row["broker_name"] for _, _, row in rows if row["broker_name"]] == ["c", "a"]
    assert (reading.done.files, reading.done.files_gone) == (2, 1)


def test_a_file_that_is_there_compressed_and_plain_is_read_once(tmp_path: Path) -> None:
    path = PastRun(tmp_path, "b1").add(broker_event(), uptime=1.0).close(packed=False)
    path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
    path.write_bytes(b"torn")
    empty = path.with_name(path.name.replace("-1.jsonl", "-2.jsonl"))
    empty.write_bytes(b"")
    path.with_name(path.name.replace("-1.jsonl", "-0.jsonl")).write_bytes(b"torn")
    PastRun(tmp_path, "b0", began=BEGAN - timedelta(minutes=1)).add(broker_event(name="b"), uptime=0.0).close()
    assert names(question_about(tmp_path)) == [(-1, "a"), (-2, "b")]
    assert ages(question_about(tmp_path)) == [3_599_000, 3_660_000]


def test_rows_and_files_of_other_name_servers_are_counted(tmp_path: Path) -> None:
    PastRun(tmp_path, "b1").add(broker_event(name="a"), uptime=1.0).close()
    PastRun(tmp_path, "b2", node="m:1").add(broker_event(name="b"), uptime=1.0).close()
    # Its file names are ours.
    PastRun(tmp_path, "b3", node="n_1").add(broker_event(name="c"), uptime=1.0).close()
    rows, reading = read(question_about(tmp_path))
    assert [row["broker_name"] for _, _, row in rows if row["broker_name"]] == ["a"]
    assert (reading.done.files_of_others, reading.done.rows_of_others) == (1, 2)


def test_foreign_content_is_counted_and_skipped(tmp_path: Path) -> None:
    path = PastRun(tmp_path, "b1").add(broker_event(), uptime=1.0).close(packed=False)
    (row,) = [json.loads(line) for line in path.read_bytes().splitlines() if b"REGISTERED" in line]
    odd = [
        b"",
        b"[]",
        b"null",
        b"{",
        b"[" * 100_000,
        *(json.dumps(row | {f: None}).encode() for f in ("seq", "event", "detail")),
    ]
    path.write_bytes(b"\n".join(odd) + b"\n" + path.read_bytes())
    rows, reading = read(question_about(tmp_path))
    assert [row["broker_name"] for _, _, row in rows if row["broker_name"]] == ["a"]
    assert reading.done.rows_invalid == len(odd)


def test_of_each_name_the_last_rows_are_read_and_more_where_penalties_need_them(tmp_path: Path) -> None:
    run = PastRun(tmp_path, "b1")
    for n in range(10):
        run.add(broker_event(name="a"), Event(kind=EventKind.PERM_CHANGED, group=GroupKey("c1", "b")), uptime=n * 60.0)
    run.close()
    few = question_about(tmp_path, per_broker=2, exact_seconds=3_600.0 - 5 * 60)
    assert [name for _, name in names(few)] == ["b", "a", "b", "a", "a", "a", "a"]


@pytest.mark.parametrize(
    ("bounds", "ended_by", "rows"),
    [
        ({}, "start", 13),
        ({"max_age_seconds": 3_600.0 - 5 * 60 + 1}, "age", 6),
        ({"max_rows": 3}, "rows", 3),
        ({"max_bytes": 3_000}, "bytes", 12),
        ({"max_seconds": -1.0}, "seconds", 0),
    ],
)
def test_each_bound_ends_the_reading_with_the_newest_rows(
    tmp_path: Path, bounds: dict[str, Any], ended_by: str, rows: int
) -> None:
    PastRun(tmp_path, "b0", began=BEGAN - timedelta(hours=1)).close()
    run = PastRun(tmp_path, "b1", previous="b0")
    for n in range(10):
        run.add(broker_event(detail={"text": "x" * 300}), uptime=n * 60.0)
    run.close()
    PastRun(tmp_path, "b2", previous="b1", began=BEGAN + timedelta(minutes=30)).close()
    found, reading = read(question_about(tmp_path, previous_boot_id="b2", **bounds))
    assert reading.done.ended_by == ended_by
    assert len(found) == rows == reading.done.rows
    assert [age for _, age, _ in found] == sorted(age for _, age, _ in found)


def test_of_a_file_with_very_many_rows_the_last_ones_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(newest_rows, "KEPT_BYTES", 2_000)
    run = PastRun(tmp_path, "b1")
    run.add(*(broker_event(name=f"b{n}") for n in range(20)), uptime=1.0).close()
    rows, reading = read(question_about(tmp_path))
    assert [row["broker_name"] for _, _, row in rows] == ["b19", "b18", "b17", "b16"]
    assert reading.done.ended_by == "bytes"


def test_the_program_prints_its_rows_and_what_it_read(tmp_path: Path) -> None:
    PastRun(tmp_path, "b1").add(broker_event(), uptime=1.0).close()
    question = json.dumps(asdict(question_about(tmp_path)))
    ended = subprocess.run(
        [sys.executable, "-m", "pointsman_namesrv.history.newest_rows", question], capture_output=True, check=True
    )
    first, second, end = ended.stdout.splitlines()
    assert (first[:11], second[:11], end[:4]) == (b"-1 3599000 ", b"-1 3600000 ", b"end ")
    assert json.loads(end[4:])["rows"] == 2
    assert json.loads(first[11:])["event"] == "REGISTERED"


def test_where_priorities_are_forbidden_the_program_rests_as_long_as_it_works(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(_: int) -> int:
        raise PermissionError

    rests: list[float] = []
    monkeypatch.setattr(os, "nice", forbidden)
    monkeypatch.setattr(time, "sleep", rests.append)
    clock = ManualClock()
    pace = newest_rows._Pace(clock)
    for worked in (0.04, 0.02, 0.01):
        clock.now += worked
        pace.pause()
    assert rests == [pytest.approx(0.06)]


def test_the_program_ends_with_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    def ended(code: int) -> None:
        raise SystemExit(code)

    monkeypatch.setattr(os, "nice", lambda _: 0)
    pace = newest_rows._Pace(ManualClock())
    pace.pause()
    monkeypatch.setattr(os, "getppid", lambda: 1)
    monkeypatch.setattr(os, "_exit", ended)
    with pytest.raises(SystemExit):
        pace.pause()
