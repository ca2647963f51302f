"""History read from and tables written to an S3 API: the same tables, and never half of a night."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, Self

import pytest

from pointsman_report.cli import main
from pointsman_report.io.day_objects import MANIFEST
from pointsman_report.schemas import TABLES
from pointsman_report.spark_session import MEMORY_SETTING, SMALL_SETTINGS
from tests.spark.s3_store import BUCKET, Store, s3_store
from tests.spark.tables import DayRunner
from tests.spark.two_days import FIRST, LAST, write_two_days

pytestmark = [pytest.mark.spark, pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(2_400)]

RUN_SECONDS = 600.0
WAREHOUSE = "warehouse"
KILLED_AT_TABLE = 12
SMALL = {name: value for name, value in SMALL_SETTINGS.items() if name != MEMORY_SETTING}
"""As a run chooses them for few rows on a disk, except that intermediate rows are written to the store."""
PROGRAM = """
import os, signal, sys
from pointsman_report.cli import main
from pointsman_report.io.day_objects import DayObjects

save, saved = DayObjects.save, []

def killed(self, table, rows, write):
    saved.append(table)
    if len(saved) == {table}:
        os.kill(os.getpid(), signal.SIGKILL)
    save(self, table, rows, write)

DayObjects.save = killed
sys.exit(main(sys.argv[1:]))
"""


@dataclass
class OnS3:
    """The nights of a warehouse on S3, and the same ones on a disk."""

    store: Store
    folder: Path
    here: Path
    first_night: Path
    """What a reader saw after the first night."""
    first_manifest: bytes
    killed: subprocess.CompletedProcess[str]
    after_kill: Path
    keys_after_kill: list[str]
    second_night: Path
    second_manifest: bytes
    manifests_seen: set[bytes]
    """All that were there while both runs of the second night ran, read again and again."""
    keys: list[str]
    """The objects of the tables after the second night."""


def _night(store: Store, day: date, program: str | None = None) -> subprocess.CompletedProcess[str]:
    given = SMALL | store.settings()
    settings = [word for name, value in given.items() for word in ("--conf", f"{name}={value}")]
    start = ["-m", "pointsman_report"] if program is None else ["-c", program]
    histories = [f"--history=s3a://{BUCKET}/history/{name}" for name in ("ns1", "ns2")]
    return subprocess.run(
        [
            sys.executable,
            *start,
            "nightly",
            f"--date={day}",
            *histories,
            f"--warehouse=s3a://{BUCKET}/{WAREHOUSE}",
            *settings,
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=RUN_SECONDS,
    )


class Reader:
    """Reads the manifest again and again."""

    def __init__(self, store: Store) -> None:
        self.seen: set[bytes] = set()
        self._store = store
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._read, name="reader")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _read(self) -> None:
        while not self._over.wait(0.2):
            self.seen.add(self._store.get(f"{WAREHOUSE}/{MANIFEST}") or b"")


@pytest.fixture(scope="module")
def on_s3(tmp_path_factory: pytest.TempPathFactory, run_days: DayRunner) -> Iterator[OnS3]:
    folder = tmp_path_factory.mktemp("s3")
    write_two_days(folder / "history")
    assert run_days.spark.sparkContext.master == "local[1]"
    both = [f"--from={FIRST}", f"--to={LAST}", *(f"--history={folder / 'history' / name}" for name in ("ns1", "ns2"))]
    assert main(["backfill", *both, f"--warehouse={folder / 'here'}", "--quiet"]) == 1
    with s3_store(folder) as store:
        store.upload(folder / "history", "history")
        ended = _night(store, FIRST)
        assert ended.returncode == 1, ended.stderr[-3_000:]
        first_manifest = store.get(f"{WAREHOUSE}/{MANIFEST}") or b""
        first_night = store.read(WAREHOUSE, folder / "first")
        with Reader(store) as reader:
            killed = _night(store, LAST, PROGRAM.format(table=KILLED_AT_TABLE))
            after_kill, keys_after_kill = store.read(WAREHOUSE, folder / "killed"), store.keys(WAREHOUSE)
            ended = _night(store, LAST)
            assert ended.returncode == 1, ended.stderr[-3_000:]
        yield OnS3(
            store,
            folder,
            folder / "here",
            first_night,
            first_manifest,
            killed,
            after_kill,
            keys_after_kill,
            store.read(WAREHOUSE, folder / "second"),
            store.get(f"{WAREHOUSE}/{MANIFEST}") or b"",
            reader.seen,
            store.keys(WAREHOUSE),
        )


def plain(rows: list[dict[str, Any]], *roots: str) -> list[dict[str, Any]]:
    """Rows without what differs between two stores: where the files are, and when they were written."""
    text = json.dumps(rows, default=str, sort_keys=True)
    for root in roots:
        text = text.replace(root, "")
    return [{name: value for name, value in row.items() if name != "modified_at"} for row in json.loads(text)]


@pytest.mark.parametrize("table", list(TABLES))
def test_a_table_is_the_same_on_s3_after_a_writer_was_killed(on_s3: OnS3, run_days: DayRunner, table: str) -> None:
    here, there = (run_days.rows(path, table, FIRST, LAST) for path in (on_s3.here, on_s3.second_night))
    roots = (f"file:{on_s3.folder}", f"s3a://{BUCKET}")
    assert plain(there, *roots) == plain(here, *roots)


def test_a_writer_killed_between_two_tables_has_changed_nothing_that_readers_see(on_s3: OnS3) -> None:
    assert on_s3.killed.returncode == -signal.SIGKILL, on_s3.killed.stderr[-3_000:]
    named = _files(on_s3.first_night)
    assert _files(on_s3.after_kill) == named
    assert len(_parts(on_s3.keys_after_kill)) > len(named), "it was killed after it had written tables"


def test_readers_see_the_first_night_or_the_second_and_each_is_published_by_one_request(on_s3: OnS3) -> None:
    assert on_s3.manifests_seen == {on_s3.first_manifest, on_s3.second_manifest}
    days = json.loads(on_s3.second_manifest)["tables"]["computed_days"]
    assert set(days) == {FIRST.isoformat(), LAST.isoformat()}
    assert on_s3.store.requests().count(f"PUT /{BUCKET}/{WAREHOUSE}/{MANIFEST}") == 2


def test_the_next_run_removes_what_the_killed_one_had_written(on_s3: OnS3) -> None:
    left = set(_parts(on_s3.keys_after_kill)) - set(_files(on_s3.first_night))
    assert left
    assert not left & set(_parts(on_s3.keys))
    replaced = set(_files(on_s3.first_night))
    assert set(_parts(on_s3.keys)) <= set(_files(on_s3.second_night)) | replaced


def test_the_report_is_beside_the_tables(on_s3: OnS3) -> None:
    written = on_s3.store.get(f"{WAREHOUSE}/report/dt={LAST}/report.json")
    (here,) = on_s3.here.glob("report/*/report.json")
    assert json.loads(written or b"").keys() == json.loads(here.read_text(encoding="utf-8")).keys()


def _files(copied: Path) -> list[str]:
    return sorted(path.relative_to(copied).as_posix() for path in copied.rglob("*.parquet"))


def _parts(keys: list[str]) -> list[str]:
    return [key for key in keys if key.endswith(".parquet") and not key.startswith("_staging/")]
