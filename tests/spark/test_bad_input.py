"""Damaged raw history: good rows are ingested once, bad lines are reported."""

from __future__ import annotations

import gzip
import json
import random
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pointsman_report.hadoop_files import local_files
from pointsman_report.io import GZIP_FAULT
from pointsman_report.io.raw_files import raw_files_of
from pointsman_report.io.raw_rows import rows_of
from pointsman_report.jobs.ingest_history import IngestResult, ingest
from tests.spark.histories import MIDNIGHT, NameServer, Row, broker, moment, write_history
from tests.spark.tables import DayRunner

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

DAY = MIDNIGHT.date()
SINCE_EVER = date(1960, 1, 1)
CLOCK_RUNS_AHEAD = datetime.now(tz=UTC) + timedelta(days=900)


@dataclass(frozen=True)
class Taken:
    """A history that was ingested, and the tables computed from it."""

    history: Path
    warehouse: Path
    result: IngestResult
    rows: list[Row]
    quarantine: list[Row]

    def of(self, node: str) -> list[Row]:
        return [row for row in self.rows if row["node"] == node]


def taken(run_days: DayRunner, history: Path, warehouse: Path) -> Taken:
    result = ingest(run_days.spark, [str(history)], str(warehouse), log=lambda _: None)
    rows, bad = (
        run_days.rows(warehouse, table, SINCE_EVER, date(2100, 1, 1)) for table in ("registration_events", "quarantine")
    )
    return Taken(history, warehouse, result, rows, bad)


def embedded(history: Path, rows: list[Row]) -> list[tuple[Any, ...]]:
    """The numbers that the reader without Java finds of the days of these rows."""
    days = {row["dt"] for row in rows}
    files = raw_files_of(local_files(history / "raw"), first_day=SINCE_EVER)
    found = rows_of(files, first_day=SINCE_EVER, last_day=date(2100, 1, 1))
    return sorted(number for number in found if number[0] in days)


def numbers(rows: list[Row]) -> list[tuple[Any, ...]]:
    return sorted((row["dt"], row["node"], row["boot_id"], row["seq"]) for row in rows)


def lines_of(node: str, count: int = 2) -> bytes:
    server = NameServer(node=node)
    for n in range(count):
        server.say("X", moment(n))
    rows = ({key: row[key] for key in row if key not in ("detail", "uptime_ms")} for row in server.rows)
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


@pytest.fixture(scope="module")
def odd(run_days: DayRunner, tmp_path_factory: pytest.TempPathFactory) -> Taken:
    """Every kind of bad line in one file, except a torn one."""
    folder = tmp_path_factory.mktemp("odd")
    history = folder / "history"
    strange = NameServer(node="strange:1")
    strange.say("SOMETHING_NEW", moment(1), colour="red", shape={"sides": [3, 4.5]}, empty=None)
    strange.say("NAMESRV_ALIVE", moment(2))
    strange.say("NAMESRV_ALIVE", moment(3), schema_version=3)
    strange.say("NAMESRV_ALIVE", moment(4), schema_version=1)
    strange.say("NAMESRV_ALIVE", moment(5), detail="text")
    strange.say("REGISTERED", moment(6), broker("a"), state=None)
    strange.say("TOPICS", moment(7), broker("a"), state="BETTER")
    clock = NameServer(node="clock:1")
    clock.say("NAMESRV_ALIVE", CLOCK_RUNS_AHEAD)
    clock.say("NAMESRV_ALIVE", datetime(1971, 1, 1, tzinfo=UTC))
    clock.say("NAMESRV_ALIVE", datetime(2020, 1, 1, tzinfo=UTC))
    clock.say("NAMESRV_ALIVE", moment(1), event_at="0000-01-01T00:00:00Z")
    clock.say("NAMESRV_ALIVE", moment(1), event_at="9999-12-31T23:59:59-14:00")
    clock.say("expired", moment(1), event_at="1975-01-01T00:00:00Z")
    one, two = (NameServer(node="twice:1", boot_id=boot) for boot in ("b1", "b2"))
    for server in (one, two):
        server.start().say("REGISTERED", moment(10), broker("a"))
    write_history(history, [*strange.rows, *clock.rows, *one.rows, *two.rows], one_file_a_day=True)
    raw = history / "raw" / f"dt={DAY}"
    old = NameServer(node="old:1").say("NAMESRV_ALIVE", datetime(1985, 1, 1, tzinfo=UTC))
    (raw / "old.jsonl").write_text(json.dumps(old) + "\n", encoding="utf-8")
    for name in ("[::1]:2-b 1%20+{x}.jsonl", "[::1]:3.jsonl.gz", "x#?.jsonl"):
        text = lines_of(name) + b"\nnot json\n"
        (raw / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    return taken(run_days, history, folder / "warehouse")


def test_fields_that_the_format_does_not_name_are_kept_unchanged(odd: Taken) -> None:
    strange, plain = odd.of("strange:1")[:2]

    assert json.loads(strange["other"]) == {"colour": "red", "shape": {"sides": [3, 4.5]}, "empty": None}
    assert plain["other"] is None
    assert strange["event"] == "SOMETHING_NEW"


def test_a_row_of_another_version_of_the_format_waits_in_quarantine(odd: Taken) -> None:
    reasons = {row["reason"] for row in odd.quarantine}

    assert {"schema_version is 3, not 2", "schema_version is 1, not 2"} <= reasons
    assert odd.result.bad_lines == len(odd.quarantine)


def test_a_row_about_a_replica_without_its_state_waits_in_quarantine(odd: Taken) -> None:
    reasons = {row["reason"] for row in odd.quarantine}

    assert {"no known state: null", "no known state: BETTER"} <= reasons


def test_a_wrong_clock_makes_no_folder_for_its_day_and_its_rows_are_counted(odd: Taken) -> None:
    # 9999-12-31T23:59:59-14:00 is in the year 10000.
    assert (odd.result.rows_ahead, odd.result.rows_misdated) == (2, 1)
    assert odd.of("old:1") == []
    assert [row["dt"] for row in odd.of("clock:1")] == [date(2020, 1, 1)]
    assert len(list((odd.warehouse / "registration_events").glob("dt=*"))) == 2


def test_two_machines_with_one_name_keep_their_rows_apart(odd: Taken) -> None:
    assert Counter(row["boot_id"] for row in odd.of("twice:1")) == {"b1": 3, "b2": 3}


@pytest.mark.parametrize("name", ["[::1]:2-b 1%20+{x}.jsonl", "[::1]:3.jsonl.gz", "x#?.jsonl"])
def test_a_files_name_may_be_anything(odd: Taken, name: str) -> None:
    bad = [Path(row["file"]).name for row in odd.quarantine if row["reason"] in ("empty line", "not a JSON object")]

    assert len(odd.of(name)) == 2
    assert Counter(bad)[name.removesuffix(".gz")] == 2


def test_the_reader_without_java_finds_the_same_rows(odd: Taken) -> None:
    assert embedded(odd.history, odd.rows) == numbers(odd.rows)


def test_nothing_is_read_or_changed_a_second_time(odd: Taken, run_days: DayRunner) -> None:
    again = taken(run_days, odd.history, odd.warehouse)

    assert (again.result.files, again.result.new_rows) == (0, 0)
    assert (again.rows, again.quarantine) == (odd.rows, odd.quarantine)


def test_duplicate_and_reordered_files_give_the_same_events(odd: Taken, run_days: DayRunner, tmp_path: Path) -> None:
    """Line by line the other way round, each twice, in other files, read in two runs, the second one grown."""
    lines = [line for path in sorted(odd.history.rglob("*.jsonl")) for line in path.read_bytes().splitlines()]
    lines += gzip.decompress(next(odd.history.rglob("*.gz")).read_bytes()).splitlines()
    random.Random(3).shuffle(lines)
    folder = tmp_path / "h" / "raw" / "loose"
    folder.mkdir(parents=True)
    (folder / "one.jsonl").write_bytes(b"\n".join(lines[::2]) + b"\n")
    taken(run_days, tmp_path / "h", tmp_path / "w")
    (folder / "one.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    (folder / "two.jsonl.gz").write_bytes(gzip.compress(b"\n".join(reversed(lines))))

    assert taken(run_days, tmp_path / "h", tmp_path / "w").rows == odd.rows


def cuts(whole: bytes) -> Iterator[int]:
    yield from range(1, len(whole) + 1)


def test_a_file_cut_at_any_byte_gives_the_rows_before_the_cut(run_days: DayRunner, tmp_path: Path) -> None:
    raw = tmp_path / "h" / "raw" / f"dt={DAY}"
    raw.mkdir(parents=True)
    wanted: dict[str, tuple[int, bool]] = {}
    for n in cuts(lines_of("n000")):
        node = f"n{n:03}"
        cut = lines_of(node)[:n]
        (raw / f"{node}.jsonl").write_bytes(cut)
        wanted[node] = _good_and_torn(cut)
    for n in cuts(gzip.compress(lines_of("g000"), mtime=0)):
        node = f"g{n:03}"
        packed = gzip.compress(lines_of(node), mtime=0)
        (raw / f"{node}.jsonl.gz").write_bytes(packed[:n])
        whole = n >= len(packed)
        wanted[node] = (len(lines_of(node).splitlines()) if whole else _unpacked_lines(packed[:n]), not whole)

    found = taken(run_days, tmp_path / "h", tmp_path / "w")
    good = Counter(row["node"] for row in found.rows)
    listed = {Path(row["file"]).name.split(".")[0] for row in found.quarantine}
    assert {node: good[node] for node in wanted} == {node: count for node, (count, _) in wanted.items()}
    assert listed == {node for node, (_, torn) in wanted.items() if torn}
    assert all(row["reason"].startswith((GZIP_FAULT, "torn or not JSON")) for row in found.quarantine)
    assert embedded(found.history, found.rows) == numbers(found.rows)


def _good_and_torn(cut: bytes) -> tuple[int, bool]:
    good, torn = 0, False
    for line in cut.splitlines():
        try:
            json.loads(line)
        except ValueError:
            torn = True
        else:
            good += 1
    return good, torn


def _unpacked_lines(cut: bytes) -> int:
    return zlib.decompressobj(wbits=31).decompress(cut).count(b"\n")


def test_an_empty_history_and_one_with_only_invalid_lines_are_accepted(run_days: DayRunner, tmp_path: Path) -> None:
    (tmp_path / "h" / "raw").mkdir(parents=True)
    assert taken(run_days, tmp_path / "h", tmp_path / "w").result.files == 0

    (tmp_path / "h" / "raw" / "rubbish.jsonl").write_bytes(bytes(range(256)) * 20)
    found: Any = taken(run_days, tmp_path / "h", tmp_path / "w")
    assert (found.result.files, found.rows, found.result.bad_lines > 0) == (1, [], True)


def test_lines_of_a_repaired_file_leave_the_quarantine(run_days: DayRunner, tmp_path: Path) -> None:
    path = tmp_path / "h" / "raw" / f"dt={DAY}" / "n.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(lines_of("n")[:-20])
    (path.parent / "other.jsonl").write_bytes(b"rubbish\n")
    assert len(taken(run_days, tmp_path / "h", tmp_path / "w").quarantine) == 2
    path.write_bytes(lines_of("n"))

    found = taken(run_days, tmp_path / "h", tmp_path / "w")
    assert [Path(row["file"]).name for row in found.quarantine] == ["other.jsonl"]
    assert len(found.rows) == 2
