"""Publishing: all of a run or none of it, and one run at a time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from datetime import date, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession, Window
from pyspark.sql.functions import col, date_add, lit, row_number

from pointsman_report import lock
from pointsman_report.hadoop_files import Files
from pointsman_report.io import FILE, Warehouse
from pointsman_report.io.local_rows import collected, no_rows
from pointsman_report.io.warehouse import divided
from pointsman_report.report_errors import ReportError
from pointsman_report.schemas import TABLES, WAREHOUSE_VERSION
from pointsman_report.schemas.history_tables import REGISTRATION_EVENTS
from pointsman_report.spark_session import MEMORY_SETTING
from pointsman_report.transforms.history_rows import each_once
from tests.spark.histories import Row
from tests.spark.typed import registration_events

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

DAY = date(2026, 3, 2)


def partition(root: Path, table: str, text: str) -> None:
    folder = root / table / f"dt={DAY}"
    folder.mkdir(parents=True)
    (folder / "part").write_text(text, encoding="utf-8")


def write_label(root: Path, version: int, **others: str) -> None:
    label = {"warehouse_version": version, **others}
    (root / "_warehouse.json").write_text(json.dumps(label), encoding="utf-8")


@pytest.fixture
def warehouse(spark: SparkSession, tmp_path: Path) -> Warehouse:
    """A warehouse with a day, and the same day staged again, without a Spark job."""
    write_label(tmp_path, WAREHOUSE_VERSION)
    found = Warehouse(spark, str(tmp_path))
    for table in TABLES:
        partition(tmp_path, table, "old")
        partition(Path(found._staging), table, "new")
    return found


def contents(root: Path) -> list[str]:
    return [path.read_text(encoding="utf-8") for table in TABLES for path in (root / table).rglob("part")]


def test_publishing_replaces_the_day_in_every_table(warehouse: Warehouse, tmp_path: Path) -> None:
    warehouse.publish(first_day=DAY, last_day=DAY)

    assert contents(tmp_path) == ["new"] * len(TABLES)
    assert warehouse.published


@pytest.mark.parametrize("version", [WAREHOUSE_VERSION - 1, WAREHOUSE_VERSION + 1])
def test_a_warehouse_of_another_version_is_refused(warehouse: Warehouse, tmp_path: Path, version: int) -> None:
    write_label(tmp_path, version)

    wanted = f"has version {version}, but this release needs version {WAREHOUSE_VERSION}: backfill a new folder"
    with pytest.raises(ReportError, match=wanted), warehouse.locked():
        pass


def test_a_warehouse_without_a_label_is_of_the_first_version(warehouse: Warehouse, tmp_path: Path) -> None:
    (tmp_path / "_warehouse.json").unlink()

    with pytest.raises(ReportError, match="has version 1, but this release"), warehouse.locked():
        pass


def test_an_interrupt_while_publishing_puts_every_table_back(
    warehouse: Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    move, moved = Files.move, []

    def interrupted(self: Files, source: str, target: str) -> None:
        moved.append(source)
        if len(moved) == 6:
            raise KeyboardInterrupt
        move(self, source, target)

    monkeypatch.setattr(Files, "move", interrupted)
    with pytest.raises(KeyboardInterrupt):
        warehouse.publish(first_day=DAY, last_day=DAY)
    assert contents(tmp_path) == ["old"] * len(TABLES)
    assert not warehouse.published


def test_an_interrupt_while_moves_are_undone_loses_nothing_because_the_next_run_continues(
    warehouse: Warehouse, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    move, moved = Files.move, []

    def interrupted(self: Files, source: str, target: str) -> None:
        moved.append(source)
        if len(moved) in {6, 7}:
            raise KeyboardInterrupt
        move(self, source, target)

    with monkeypatch.context() as patched:
        patched.setattr(Files, "move", interrupted)
        with pytest.raises(KeyboardInterrupt):
            warehouse.publish(first_day=DAY, last_day=DAY)
        warehouse.discard()

    with Warehouse(spark, str(tmp_path)).locked():
        assert contents(tmp_path) == ["new"] * len(TABLES)


def test_a_second_run_is_refused_and_leftovers_of_a_killed_one_are_removed(spark: SparkSession, tmp_path: Path) -> None:
    left = tmp_path / "_staging" / "of-a-killed-run"
    left.mkdir(parents=True)
    with Warehouse(spark, str(tmp_path)).locked():
        assert not left.exists()
        second = Warehouse(spark, str(tmp_path)).locked()
        with pytest.raises(ReportError, match=f"the warehouse is locked by another run .process {os.getpid()}"):
            second.__enter__()
    assert list((tmp_path / "_staging").iterdir()) == []


class Killed(BaseException):
    """Simulates the end of the process: no cleanup runs after it."""


def killed_after(moves: int, warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """Publish, and end the process before the move of this number."""
    move, made = Files.move, list[str]()

    def dies(*_: object) -> None:
        raise Killed

    def counted(self: Files, source: str, target: str) -> None:
        if len(made) == moves:
            for name in ("move", "exists", "delete"):
                monkeypatch.setattr(Files, name, dies)
            raise Killed
        made.append(source)
        move(self, source, target)

    with monkeypatch.context():
        monkeypatch.setattr(Files, "move", counted)
        with pytest.raises(Killed):
            warehouse.publish(first_day=DAY, last_day=DAY)
    monkeypatch.undo()


@pytest.mark.parametrize("moves", [0, 1, 2, 3, 10, 2 * len(TABLES) - 1])
def test_the_next_run_finishes_what_a_killed_one_was_publishing(
    warehouse: Warehouse, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moves: int
) -> None:
    killed_after(moves, warehouse, monkeypatch)

    assert contents(tmp_path).count("old") == len(TABLES) - (moves + 1) // 2
    with Warehouse(spark, str(tmp_path)).locked():
        assert contents(tmp_path) == ["new"] * len(TABLES)
    assert list((tmp_path / "_staging").iterdir()) == []


@pytest.mark.slow
def test_a_process_that_is_killed_while_it_publishes_leaves_what_the_next_one_needs(
    warehouse: Warehouse, spark: SparkSession, tmp_path: Path
) -> None:
    assert warehouse.days("quarantine") == {DAY}
    program = f"""
import os, signal
from datetime import date
from pointsman_report.hadoop_files import Files
from pointsman_report.io import FILE, Warehouse
from pointsman_report.io.local_rows import collected, no_rows
from pointsman_report.io.warehouse import divided
from pointsman_report.spark_session import spark_session

move, made = Files.move, []

def killed(self, source, target):
    made.append(source)
    if len(made) == 8:
        os.kill(os.getpid(), signal.SIGKILL)
    move(self, source, target)

Files.move = killed
day = date.fromisoformat("{DAY}")
with spark_session("local[1]", name="killed") as spark:
    found = Warehouse(spark, {str(tmp_path)!r})
    found._tables._staging = {warehouse._staging!r}
    found.publish(first_day=day, last_day=day)
"""
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=100)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert set(contents(tmp_path)) == {"old", "new"}
    with Warehouse(spark, str(tmp_path)).locked():
        assert contents(tmp_path) == ["new"] * len(TABLES)


def test_a_lock_of_another_host_is_never_taken_over_and_the_error_names_its_owner(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = str(tmp_path / "lock")
    files = Files(spark)
    with lock.locked_remotely(files, path):
        os.utime(path, times=(0, 0))
        second = lock.locked_remotely(files, path)
        with pytest.raises(ReportError, match=rf"process {os.getpid()} on .*, for \d+ h.; .* remove {path}"):
            second.__enter__()
    assert not files.exists(path)


def test_a_warehouse_that_is_labelled_parquet_is_read_and_one_of_another_format_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    stage_windows(Warehouse(spark, str(tmp_path)))
    write_label(tmp_path, WAREHOUSE_VERSION, table_format="parquet")
    assert Warehouse(spark, f"file://{tmp_path}").read("ingested_files", first_day=DAY, last_day=DAY).count() == 1

    write_label(tmp_path, WAREHOUSE_VERSION, table_format="orc")
    wanted = f"tables of {tmp_path} are in orc format, but this release reads only Parquet: backfill a new folder"
    with pytest.raises(ReportError, match=wanted):
        Warehouse(spark, str(tmp_path)).read("ingested_files", first_day=DAY, last_day=DAY)
    with pytest.raises(ReportError, match=wanted), Warehouse(spark, str(tmp_path)).locked():
        pass


def test_a_path_with_a_scheme_is_the_folder_that_it_names(spark: SparkSession, tmp_path: Path) -> None:
    assert Files(spark).local(f"file://{tmp_path}/report") == tmp_path / "report"
    assert Files(spark).local(f"{tmp_path}/report") == tmp_path / "report"


def stage_windows(warehouse: Warehouse) -> None:
    blank = [None] * (len(TABLES["ingested_files"].schema) - 2)
    warehouse.stage("ingested_files", warehouse.rows([(DAY, "a", *blank)], TABLES["ingested_files"].schema))
    warehouse.publish(first_day=DAY, last_day=DAY)


def test_a_big_day_lies_in_a_few_files_of_one_size_and_a_small_one_in_one(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pointsman_report.io.warehouse.MAX_ROWS_PER_FILE", 1_000)
    monkeypatch.setattr("pointsman_report.io.warehouse.MAX_ROWS_ON_DRIVER", 1_000)
    other = DAY + timedelta(days=1)
    schema = TABLES["quarantine"].schema
    rows = [(day, f"f{n}", "r", None) for day, count in ((DAY, 3_500), (other, 50)) for n in range(count)]
    found = Warehouse(spark, str(tmp_path))
    found.stage("quarantine", found.rows(rows, schema), days={DAY, other}, counts={DAY: 3_500, other: 50})
    found.publish_own()

    by_day = {
        day: [
            spark.read.parquet(str(path)).count() for path in (tmp_path / "quarantine" / f"dt={day}").glob("*.parquet")
        ]
        for day in (DAY, other)
    }
    assert len(by_day[DAY]) == 4
    assert max(by_day[DAY]) < 1_000
    assert by_day[other] == [50]


@pytest.mark.parametrize("most", [10, 1_000])
def test_copies_of_a_row_are_written_once_and_all_rows_divided_and_sorted_once(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr("pointsman_report.io.warehouse.MAX_ROWS_PER_FILE", most)
    at = f"{DAY}T10:00:00+00:00"
    row: Row = {"schema_version": 2, "event": "HEARTBEATS", "node": "ns-1:9876", "boot_id": "b", "event_at": at}
    rows = registration_events(spark, [row | {"seq": n % 60, "uptime_ms": n} for n in range(100)]).repartition(3)
    once = each_once(divided(rows, REGISTRATION_EVENTS.keys, {DAY: 100}, spark), FILE)
    written = once.drop(FILE).sortWithinPartitions("dt", *REGISTRATION_EVENTS.keys)

    assert sorted((found["seq"], found["uptime_ms"]) for found in written.collect()) == [(n, n) for n in range(60)]
    plan = written._jdf.queryExecution().executedPlan().toString()
    assert (plan.count("Exchange "), plan.count("Sort [")) == (2, 1), "with the one that mixed the rows"


def test_rows_that_a_transform_divided_by_day_are_not_divided_again(spark: SparkSession) -> None:
    rows = spark.range(9).select(date_add(lit(DAY), col("id").cast("int")).alias("dt"), "id").repartition(4, "dt")
    numbered = rows.withColumn("nth", row_number().over(Window.partitionBy("dt").orderBy("id")))
    partitions = spark.conf.get("spark.sql.shuffle.partitions")
    assert partitions is not None
    spark.conf.set("spark.sql.shuffle.partitions", "4")
    try:
        plan = divided(numbered, ("id",), {}, spark)._jdf.queryExecution().executedPlan().toString()
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", partitions)
    assert plan.count("Exchange ") == 1


@pytest.mark.parametrize(
    ("in_memory", "most", "files", "held"),
    [
        pytest.param("true", 3, 0, 0, id="few-in-the-plan"),
        pytest.param("true", 2, 0, 1, id="in-memory"),
        pytest.param("false", 3, 1, 0, id="in-files"),
    ],
)
def test_intermediates_are_the_same_rows_in_memory_and_in_files(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    in_memory: str,
    most: int,
    files: int,
    held: int,
) -> None:
    held_before = persistent(spark)
    monkeypatch.setattr("pointsman_report.io.warehouse.MAX_ROWS_ON_DRIVER", most)
    with monkeypatch.context() as patched:
        patched.setattr(spark.conf, "get", lambda key, default=None: in_memory if key == MEMORY_SETTING else default)
        found = Warehouse(spark, str(tmp_path))
    rows = spark.range(3).selectExpr("id", "reflect('java.lang.System', 'nanoTime') AS now", "array(struct(id)) AS ids")
    kept = found.materialize("a", rows)
    first, again, later = (sorted(table.collect()) for table in (kept, kept, rows))

    assert first == again != later, "computed once"
    assert len(list(Path(found._staging).glob("_a"))) == files
    assert persistent(spark) == held_before + held
    found.materialize("a", rows)
    found.discard()
    assert persistent(spark) == held_before
    assert not Path(found._staging).exists()


TWO_DAYS = [DAY, DAY + timedelta(days=1)]


@pytest.mark.parametrize("most", [3, 2], ids=["few-in-the-plan", "in-files"])
def test_staged_rows_are_read_and_published_the_same_whether_few_or_many(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr("pointsman_report.io.warehouse.MAX_ROWS_ON_DRIVER", most)
    schema, first, last = TABLES["computed_days"].schema, *TWO_DAYS
    rows = [(day, count, WAREHOUSE_VERSION, "1", "{}", False) for day, count in ((first, 1), (last, 2))]
    found = Warehouse(spark, str(tmp_path))
    with found.locked():
        staged = found.stage("computed_days", found.rows([*rows, rows[0]], schema))
        nothing = found.stage("incidents", no_rows(spark, TABLES["incidents"].schema))
        both = sorted(tuple(row) for row in staged.select(*schema.fieldNames()).collect())
        assert (both, nothing.count()) == (sorted([*rows, rows[0]]), 0)
        assert found.read("computed_days", first_day=first, last_day=last).isEmpty(), "not published yet"
        found.publish(first_day=first, last_day=last)

    for reader in (found, Warehouse(spark, str(tmp_path))):
        of_last = reader.read("computed_days", first_day=last, last_day=last)
        assert [tuple(row) for row in of_last.collect()] == [rows[1]]
        assert reader.days("computed_days") == {first, last}
        assert not reader.days("incidents")


def test_days_of_an_earlier_run_are_read_with_the_few_rows_of_this_one(spark: SparkSession, tmp_path: Path) -> None:
    schema, first, last = TABLES["computed_days"].schema, *TWO_DAYS
    for day in TWO_DAYS:
        found = Warehouse(spark, str(tmp_path))
        with found.locked():
            found.stage("computed_days", found.rows([(day, 1, WAREHOUSE_VERSION, "1", "{}", False)], schema))
            found.publish(first_day=day, last_day=day)

    both = found.read("computed_days", first_day=first, last_day=last)
    assert {row["dt"] for row in both.collect()} == {first, last}


def test_times_of_few_rows_are_those_of_the_rows(spark: SparkSession) -> None:
    rows = spark.sql(
        "SELECT TIMESTAMP '2026-03-29T00:59:59.123456Z' AS at, DATE '1899-12-30' AS day, "
        "map('a', array(struct(1 AS n, double('NaN') AS x))) AS deep, CAST(NULL AS STRING) AS nothing"
    )
    kept = collected(rows, most=1)

    assert kept is not None
    assert repr(kept[0].collect()) == repr(rows.collect())
    assert kept[0].schema == rows.schema


def persistent(spark: SparkSession) -> int:
    return int(spark._jsc.sc().getPersistentRDDs().size())


def test_a_warehouse_that_cannot_be_created_is_reported_immediately(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")

    held = Warehouse(spark, str(tmp_path / "file" / "w")).locked()
    with pytest.raises(ReportError, match="cannot write to the warehouse"):
        held.__enter__()


def test_the_last_day_before_another_is_found_by_its_folder(warehouse: Warehouse) -> None:
    assert warehouse.last_day_before(date(2026, 3, 5)) == DAY
    assert warehouse.last_day_before(DAY) is None
