"""The files that are read again."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime

import pytest

from pointsman.history.row_format import SCHEMA_VERSION
from pointsman_report.hadoop_files import RawFile
from pointsman_report.io.ledger import Entry, Window, file_day, key, modified_ms, most_by_name, plain_name, unread

AT = datetime(2026, 3, 2, 1, 2, 3, 456_000, tzinfo=UTC)
WINDOW = Window(date(2026, 3, 1), date(2026, 3, 3))
PLAIN = RawFile("file:/h/raw/dt=2026-03-02/n-b-1.jsonl", AT, 10)
PACKED = RawFile(f"{PLAIN.path}.gz", AT, 4)


def entry(file: RawFile) -> Entry:
    return Entry(file_day(file), plain_name(file), file.size, modified_ms(file))


def to_read(files: list[RawFile], *entries: Entry) -> list[RawFile]:
    return unread(files, {(e.file, e.size, e.modified_ms): e for e in entries}, WINDOW)


def test_a_file_of_the_same_size_and_time_is_not_read_again() -> None:
    assert to_read([PLAIN], entry(PLAIN)) == []


@pytest.mark.parametrize("changed", [replace(PLAIN, size=11), replace(PLAIN, modified_at=AT.replace(microsecond=0))])
def test_a_file_that_was_written_since_is_read_again(changed: RawFile) -> None:
    assert to_read([changed], entry(PLAIN)) == [changed]


def test_a_file_and_its_gzip_are_read_as_one() -> None:
    assert key(PLAIN)[0] == key(PACKED)[0]
    assert to_read([PLAIN, PACKED], entry(PLAIN)) == [PLAIN, PACKED]
    assert to_read([PLAIN, PACKED], entry(PLAIN), entry(PACKED)) == []


@pytest.mark.parametrize(
    ("change", "again"),
    [
        pytest.param({"older_to": date(2026, 2, 28)}, False, id="older-rows-that-are-still-too-old"),
        pytest.param({"older_to": date(2026, 3, 1)}, True, id="older-rows-that-are-wanted-now"),
        pytest.param({"ahead_from": date(2026, 3, 4)}, False, id="rows-that-are-still-ahead"),
        pytest.param({"ahead_from": date(2026, 3, 3)}, True, id="rows-that-are-ahead-no-more"),
        pytest.param({"bad_lines": 1}, False, id="bad-lines"),
        pytest.param({"bad_lines": 1, "schema_version": SCHEMA_VERSION - 1}, True, id="bad-to-an-older-reader"),
        pytest.param({"schema_version": SCHEMA_VERSION - 1}, False, id="good-to-an-older-reader"),
    ],
)
def test_rows_skipped_in_a_file_are_read_when_needed(change: dict[str, object], again: bool) -> None:
    known = replace(entry(PLAIN), **change)  # type: ignore[arg-type]

    assert bool(to_read([PLAIN], known)) is again


def test_a_file_belongs_to_its_folders_day_or_else_to_its_own() -> None:
    assert file_day(PLAIN) == date(2026, 3, 2)
    assert file_day(replace(PLAIN, path="/h/raw/dt=2001-01-01/x.jsonl")) == date(2001, 1, 1)
    assert file_day(replace(PLAIN, path="/h/raw/dt=2001-99-01/x.jsonl")) == date(2026, 3, 2)
    assert file_day(replace(PLAIN, path="/h/raw/loose.jsonl")) == date(2026, 3, 2)


def test_rows_of_a_file_and_its_gzip_count_once() -> None:
    entries = [replace(entry(PLAIN), ahead_rows=3), replace(entry(PACKED), ahead_rows=2)]

    assert most_by_name(entries, "ahead_rows") == 3
