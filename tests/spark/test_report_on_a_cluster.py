"""The jobs under ``spark-submit`` on a standalone cluster: the same tables as on one machine."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest

from deploy.spark import make_zip
from pointsman_report.cli import main
from pointsman_report.schemas import TABLES
from tests.spark.histories import MIDNIGHT, NameServer, broker, moment, write_history
from tests.spark.spark_cluster import SparkCluster, spark_cluster
from tests.spark.tables import DayRunner

pytestmark = [pytest.mark.spark, pytest.mark.e2e, pytest.mark.timeout(1_200)]

REPORT_JOB = Path(make_zip.__file__).with_name("report_job.py")
SUBMIT_SECONDS = 600.0
FIRST, LAST = (MIDNIGHT.date() + timedelta(days=n) for n in range(2))
QUEUES = {"orders": {"read_queues": 4, "write_queues": 4, "perm": 6}}


@dataclass(frozen=True)
class Warehouses:
    """The same days computed twice."""

    cluster: SparkCluster
    on_cluster: Path
    here: Path


def write_nights(history: Path) -> None:
    """Two days of two name servers: one broker flaps, one crashes, one is only late; some lines are bad."""
    servers = [NameServer(node=f"ns{n}:9876", boot_id=f"b{n}").start() for n in (1, 2)]
    for server in servers:
        for name in ("a", "b", "c"):
            server.say("REGISTERED", moment(10), broker(name))
            server.say("TOPICS", moment(11), broker(name), detail={"topics": QUEUES})
        for day in range(2):
            for n in range(6):
                server.outage(broker("a"), moment(1_000 + 60 * n, day=day), until=moment(1_020 + 60 * n, day=day))
            server.say("LATE_HEARTBEAT", moment(5_000, day=day), broker("c"), interval_ms=9_000)
        server.outage(broker("b"), moment(7_000, day=1), until=None)
        server.rows.sort(key=lambda row: row["event_at"])
        for number, row in enumerate(server.rows, start=1):
            row["seq"] = number
        server.stop(moment(80_000, day=1))
    write_history(history / "ns1", servers[0].rows)
    write_history(history / "ns2", servers[1].rows, packed=True)
    bad = history / "ns1" / "raw" / f"dt={LAST}" / "bad.jsonl"
    bad.write_text("{\n", encoding="utf-8")


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("zip") / "pointsman-spark.zip"
    make_zip.main([str(target)])
    return target


@pytest.fixture(scope="module")
def computed(tmp_path_factory: pytest.TempPathFactory, packed: Path, run_days: DayRunner) -> Iterator[Warehouses]:
    folder = tmp_path_factory.mktemp("cluster")
    write_nights(folder / "history")
    histories = [f"--history={folder / 'history' / name}" for name in ("ns1", "ns2")]
    runs = [["nightly", f"--date={FIRST}"], ["backfill", f"--from={LAST}", f"--to={LAST}"]]
    assert run_days.spark.sparkContext.master == "local[1]"
    for run in runs:
        assert main([*run, *histories, f"--warehouse={folder / 'here'}", "--quiet"]) == 1
    with spark_cluster(folder, workers=2) as cluster:
        for run in runs:
            words = [*run, *histories, f"--warehouse=file://{folder / 'there'}"]
            ended = cluster.submit(REPORT_JOB, *words, py_files=packed, seconds=SUBMIT_SECONDS)
            assert ended.returncode == 1, f"{ended.stdout[-2_000:]}\n{ended.stderr[-2_000:]}"
        yield Warehouses(cluster, folder / "there", folder / "here")


@pytest.mark.slow
@pytest.mark.parametrize("table", list(TABLES))
def test_a_table_is_the_same_from_a_cluster(computed: Warehouses, run_days: DayRunner, table: str) -> None:
    here, there = (run_days.rows(path, table, FIRST, LAST) for path in (computed.here, computed.on_cluster))
    assert there == here


@pytest.mark.slow
def test_the_tables_that_all_others_derive_from_are_not_empty(computed: Warehouses, run_days: DayRunner) -> None:
    for table in ("registration_events", "quarantine", "broker_intervals", "flapping", "broker_state"):
        assert run_days.rows(computed.on_cluster, table, FIRST, LAST), table


@pytest.mark.slow
def test_every_worker_had_a_part_in_it(computed: Warehouses) -> None:
    for worker in computed.cluster.workers:
        logs = [log.read_text(encoding="utf-8", errors="replace") for log in worker.glob("app-*/*/stderr")]
        assert any("Finished task" in text for text in logs), worker


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
