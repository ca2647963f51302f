"""Tables on an object store, with a store in memory: what is published, and when nothing is."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import cast

import pytest
from py4j.protocol import Py4JJavaError

from pointsman_report.hadoop_files import Files, RawFile
from pointsman_report.io.day_objects import MANIFEST, DayFiles, DayObjects
from pointsman_report.report_errors import ReportError

ROOT = "s3a://bucket/warehouse"
DAY, NEXT = (date(2026, 3, 2) + timedelta(days=n) for n in range(2))
PREFIX = "0a1b" * 8


class Refused(Py4JJavaError):  # type: ignore[misc]  # Py4J has no types
    """As Hadoop refuses an object that has another tag."""

    def __init__(self) -> None:
        Exception.__init__(self)


class MemoryStore:
    """Implements what `DayObjects` uses of `Files`."""

    def __init__(self) -> None:
        self.objects: dict[str, tuple[str, str]] = {}
        self.unlisted: set[str] = set()
        self._tags = map(str, itertools.count())

    def put(self, path: str, text: str, *, replaces: str | None) -> None:
        if self.etag(path) != replaces:
            raise Refused
        self.objects[path] = text, next(self._tags)

    def etag(self, path: str) -> str | None:
        return self.objects[path][1] if path in self.objects else None

    def text(self, path: str) -> str | None:
        return self.objects[path][0] if path in self.objects else None

    def walk_if_any(self, folder: str) -> Iterator[RawFile]:
        for path in sorted(self.objects):
            if path.startswith(f"{folder}/") and path not in self.unlisted:
                yield RawFile(path, datetime(2026, 3, 3, tzinfo=UTC), 10)

    def delete(self, path: str) -> None:
        self.objects = {name: each for name, each in self.objects.items() if f"{name}/".removeprefix(path)[:1] != "/"}

    def add(self, table: str, day: date, name: str) -> str:
        path = f"{ROOT}/{table}/dt={day}/{name}"
        self.objects[path] = "", "0"
        return path


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


def opened(store: MemoryStore) -> DayObjects:
    return DayObjects(cast("Files", store), ROOT, f"{ROOT}/_staging/1")


def stage(tables: DayObjects, store: MemoryStore, table: str, *days: date, name: str) -> None:
    for day in days:
        store.add(table, day, name)
    tables._staged[table] = {day: DayFiles({name: 10}) for day in days}


def test_a_reader_keeps_the_tables_that_it_read_first(store: MemoryStore) -> None:
    writer, reader = opened(store), opened(store)
    stage(writer, store, "flapping", DAY, name="a")
    writer.publish({"flapping": {DAY}})
    assert reader.sizes("flapping", {DAY}) == [10]

    stage(writer, store, "flapping", DAY, NEXT, name="b")
    writer.publish({"flapping": {DAY, NEXT}})
    assert reader.days("flapping") == {DAY}
    assert opened(store).days("flapping") == writer.days("flapping") == {DAY, NEXT}


def test_published_days_without_staged_rows_are_removed_and_others_stay(store: MemoryStore) -> None:
    writer = opened(store)
    stage(writer, store, "flapping", DAY, NEXT, name="a")
    stage(writer, store, "incidents", DAY, name="a")
    writer.publish({"flapping": {DAY, NEXT}, "incidents": {DAY}})
    writer.publish({"flapping": {NEXT}})
    assert writer.days("flapping") == writer.days("incidents") == {DAY}


def test_recovery_deletes_what_runs_left_and_the_manifest_does_not_name(store: MemoryStore) -> None:
    writer = opened(store)
    name = f"{'f' * 32}-00000-uuid.parquet"
    stage(writer, store, "flapping", DAY, name=name)
    writer.publish({"flapping": {DAY}})
    store.add("flapping", DAY, f"{PREFIX}-00000-uuid.parquet")
    store.add("incidents", DAY, f"{PREFIX}-00001-uuid.parquet")
    store.objects[f"{ROOT}/incidents/__magic_job-1/tasks/a.pendingset"] = "", "0"
    foreign = store.add("incidents", DAY, "part-00000-uuid.parquet")
    writer.recover()
    assert set(store.objects) == {f"{ROOT}/{MANIFEST}", f"{ROOT}/flapping/dt={DAY}/{name}", foreign}


def test_a_run_does_not_replace_what_another_published_since_it_read_the_manifest(store: MemoryStore) -> None:
    first, second = opened(store), opened(store)
    assert first.days("flapping") == second.days("flapping") == set()
    stage(first, store, "flapping", DAY, name="a")
    first.publish({"flapping": {DAY}})
    stage(second, store, "flapping", NEXT, name="b")
    with pytest.raises(ReportError, match=f"another run published to {ROOT} during this one: run again"):
        second.publish({"flapping": {NEXT}})
    assert opened(store).days("flapping") == {DAY}


def test_a_write_waits_until_all_of_its_files_are_listed(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"{PREFIX}-{task:05d}-uuid.parquet" for task in range(2)]
    store.add("flapping", DAY, "of-an-earlier-run-00001-uuid.parquet")
    paths = [store.add("flapping", DAY, name) for name in names]
    store.unlisted = set(paths[1:])
    monkeypatch.setattr("time.sleep", lambda _: store.unlisted.clear())
    listed = opened(store)._listed(f"{ROOT}/flapping", PREFIX, {(DAY, 0), (DAY, 1)})
    assert listed == {DAY: dict.fromkeys(names, 10)}


def test_a_write_whose_files_are_never_listed_fails(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.unlisted = {store.add("flapping", DAY, f"{PREFIX}-00000-uuid.parquet")}
    monkeypatch.setattr("pointsman_report.io.day_objects.LISTING_SECONDS", -1.0)
    with pytest.raises(OSError, match=r"/flapping: 1 of 1 files written are not listed"):
        opened(store)._listed(f"{ROOT}/flapping", PREFIX, {(DAY, 0)})


def test_a_write_without_rows_has_no_files(store: MemoryStore) -> None:
    assert opened(store)._listed(f"{ROOT}/flapping", PREFIX, set()) == {}
