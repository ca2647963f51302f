"""The jobs under ``spark-submit`` on a standalone cluster: the same tables as on one machine."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from deploy.spark import make_zip
from pointsman_report.cli import main
from pointsman_report.schemas import TABLES
from tests.bench.nightly import event_log
from tests.spark.histories import NameServer, write_history
from tests.spark.spark_cluster import SparkCluster, spark_cluster
from tests.spark.tables import DayRunner
from tests.spark.two_days import FIRST, LAST, write_two_days

pytestmark = [pytest.mark.spark, pytest.mark.e2e, pytest.mark.timeout(1_200)]

REPORT_JOB = Path(make_zip.__file__).with_name("report_job.py")
SUBMIT_SECONDS = 600.0


@dataclass(frozen=True)
class Warehouses:
    """The same days computed three times."""

    workers: list[Path]
    on_cluster: Path
    """By two workers of one core."""
    on_one_worker: Path
    """By one worker of two cores, in one run, with more partitions."""
    here: Path
    stages: list[event_log.Stage]
    """Of the last run of two workers."""


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("zip") / "pointsman-spark.zip"
    make_zip.main([str(target)])
    return target


@pytest.fixture(scope="module")
def computed(tmp_path_factory: pytest.TempPathFactory, packed: Path, run_days: DayRunner) -> Warehouses:
    folder = tmp_path_factory.mktemp("cluster")
    write_two_days(folder / "history")
    histories = [f"--history={folder / 'history' / name}" for name in ("ns1", "ns2")]
    runs = [["nightly", f"--date={FIRST}"], ["backfill", f"--from={LAST}", f"--to={LAST}"]]
    assert run_days.spark.sparkContext.master == "local[1]"
    for run in runs:
        assert main([*run, *histories, f"--warehouse={folder / 'here'}", "--quiet"]) == 1
    two, one = folder / "two", folder / "one"
    for made in (two, one):
        made.mkdir()
    with spark_cluster(two, workers=2, cores=1) as cluster:
        for run in runs:
            logged = event_log.settings(two / run[0])
            submit(cluster, packed, [*run, *histories, f"--warehouse=file://{two / 'tables'}"], logged)
        workers = cluster.workers
    with spark_cluster(one, workers=1, cores=2) as cluster:
        both = ["backfill", f"--from={FIRST}", f"--to={LAST}", *histories, f"--warehouse=file://{one / 'tables'}"]
        submit(cluster, packed, both, {"spark.sql.shuffle.partitions": "5"})
    stages = event_log.stages(two / "backfill")
    return Warehouses(workers, two / "tables", one / "tables", folder / "here", stages)


def submit(cluster: SparkCluster, packed: Path, words: list[str], settings: dict[str, str]) -> None:
    ended = cluster.submit(REPORT_JOB, *words, py_files=packed, seconds=SUBMIT_SECONDS, settings=settings)
    assert ended.returncode == 1, f"{ended.stdout[-2_000:]}\n{ended.stderr[-2_000:]}"


@pytest.mark.slow
@pytest.mark.parametrize("table", list(TABLES))
def test_a_table_is_the_same_from_a_cluster(computed: Warehouses, run_days: DayRunner, table: str) -> None:
    places = (computed.here, computed.on_cluster, computed.on_one_worker)
    here, two_workers, two_cores = (run_days.rows(path, table, FIRST, LAST) for path in places)
    assert two_workers == here
    assert two_cores == here


@pytest.mark.slow
def test_the_tables_that_all_others_derive_from_are_not_empty(computed: Warehouses, run_days: DayRunner) -> None:
    for table in ("registration_events", "quarantine", "broker_intervals", "flapping", "broker_state"):
        assert run_days.rows(computed.on_cluster, table, FIRST, LAST), table


@pytest.mark.slow
def test_every_worker_had_a_part_in_it(computed: Warehouses) -> None:
    for worker in computed.workers:
        logs = [log.read_text(encoding="utf-8", errors="replace") for log in worker.glob("app-*/*/stderr")]
        assert any("Finished task" in text for text in logs), worker


@pytest.mark.slow
def test_the_event_log_has_tasks_and_bytes_of_each_stage(computed: Warehouses) -> None:
    by_name = {stage.name: stage for stage in computed.stages}
    assert by_name.keys() >= {"broker_intervals", "flapping", "broker_state"}
    assert max(len(stage.task_seconds) for stage in computed.stages) > 1
    # Some is read twice, and some by no later stage: a plan changes while it runs.
    read, written = (
        sum(getattr(stage, name) for stage in computed.stages) for name in ("shuffle_read", "shuffle_written")
    )
    assert written / 2 < read < written * 2


@pytest.mark.slow
def test_the_reports_of_a_cluster_have_the_same_numbers(computed: Warehouses) -> None:
    here, there = (
        {file.parent.name: json.loads(file.read_text(encoding="utf-8")) for file in path.glob("report/*/report.json")}
        for path in (computed.here, computed.on_cluster)
    )
    assert len(here) == 2
    assert there == here


def test_the_zip_has_the_data_files_and_the_version_and_is_the_same_twice(packed: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.zip"
    make_zip.main([str(again)])
    assert again.read_bytes() == packed.read_bytes()
    history = write_history(tmp_path / "history", NameServer().start().rows)
    (rows,) = history.rglob("*.jsonl")
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]);"
        "from importlib import resources; from pointsman_report import cli;"
        "assert cli.__file__.startswith(sys.argv[1]);"
        "assert resources.files('pointsman_report.report').joinpath('page.css').read_text();"
        "from pointsman_report.report.page import TEMPLATES; TEMPLATES.get_template('page.html');"
        "sys.exit(cli.main(['validate', sys.argv[2]]))"
    )
    ended = subprocess.run(
        [sys.executable, "-P", "-c", program, packed, rows], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert (ended.returncode, ended.stdout) == (0, "1 files: 2 good rows, 0 bad lines\n"), ended.stderr
