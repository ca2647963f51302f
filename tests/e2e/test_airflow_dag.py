"""The DAG of deploy/spark in a real Airflow, which is installed into a separate environment."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest

from tests.kit.report.command_line import parsed

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
DAG = ROOT / "deploy" / "spark" / "airflow_dag.py"
AIRFLOW = "apache-airflow==3.3.2"
NEWEST = "2026-11-28"
"""Packages of that day at the latest, as in Airflow's constraint files: later ones may break this Airflow."""

LOAD = """
import json, sys
from datetime import timedelta
from pathlib import Path
from airflow.dag_processing.dagbag import DagBag
from airflow.serialization.serialized_objects import DagSerialization
from airflow.timetables.base import DataInterval, TimeRestriction
from pendulum import datetime

bag = DagBag(sys.argv[1])
found = {"errors": bag.import_errors, "warnings": bag.captured_warnings}
for dag in bag.dags.values():
    (task,) = dag.tasks
    scheduled = DagSerialization.from_dict(DagSerialization.to_dict(dag)).timetable
    last = DataInterval(datetime(2026, 11, 19, 2, 30), datetime(2026, 11, 20, 2, 30))
    # With catchup, so that the clock does not matter.
    restriction = TimeRestriction(dag.start_date, None, catchup=True)
    run = scheduled.next_dagrun_info(last_automated_data_interval=last, restriction=restriction)
    task.render_template_fields({"data_interval_start": run.data_interval.start})
    found[dag.dag_id] = {
        "catchup": dag.catchup,
        "max_active_runs": dag.max_active_runs,
        "run_after": run.run_after.isoformat(),
        "task": task.task_id,
        "retries": task.retries,
        "retry_minutes": task.retry_delay / timedelta(minutes=1),
        "timeout_hours": task.execution_timeout / timedelta(hours=1),
        "command": task.bash_command,
    }
Path(sys.argv[2]).write_text(json.dumps(found), encoding="utf-8")
"""


def test_the_dag_loads_and_a_run_computes_the_day_before_with_a_command_that_parses(tmp_path: Path) -> None:
    environment, loaded = ROOT / ".build" / "airflow", tmp_path / "loaded.json"
    uv, python = Path(sys.executable).with_name("uv"), environment / "bin" / "python"
    subprocess.run([uv, "venv", "--quiet", "--clear", "--python", sys.executable, environment], check=True)
    install = [str(uv), "pip", "install", "--quiet", "--python", str(python), "--exclude-newer", NEWEST, AIRFLOW]
    subprocess.run(install, check=True)
    subprocess.run([python, "-c", LOAD, DAG, loaded], check=True, cwd=tmp_path, env={"AIRFLOW_HOME": str(tmp_path)})

    found = json.loads(loaded.read_text(encoding="utf-8"))
    assert (found["errors"], found["warnings"]) == ({}, {})
    command = found["pointsman_report"].pop("command")
    assert found["pointsman_report"] == {
        "catchup": False,
        "max_active_runs": 1,
        "run_after": "2026-11-21T02:30:00+00:00",
        "task": "nightly",
        "retries": 2,
        "retry_minutes": 10,
        "timeout_hours": 4,
    }
    program, *words = shlex.split(command)
    assert program == "/opt/pointsman/bin/pointsman-report"
    given = parsed(words)
    assert given["requested_day"] == date(2026, 11, 20)
    assert given["exit_zero"]
