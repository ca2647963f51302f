"""The nightly report as a DAG of Airflow 3.3: each run computes the day on which its data interval starts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG, CronDataIntervalTimetable

COMMAND = (
    "/opt/pointsman/bin/pointsman-report nightly --exit-zero --date {{ data_interval_start | ds }}"
    " --history /srv/pointsman/history/ns1 --history /srv/pointsman/history/ns2 --warehouse /srv/pointsman/warehouse"
)
TIMEZONE = "UTC"
"""With a report.timezone west of Greenwich: that zone. East of it, UTC stays."""

with DAG(
    "pointsman_report",
    # A cron string alone would give the run an empty data interval, which starts on the day of the run.
    schedule=CronDataIntervalTimetable("30 2 * * *", timezone=TIMEZONE),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
):
    BashOperator(
        task_id="nightly",
        bash_command=COMMAND,
        retries=2,
        retry_delay=timedelta(minutes=10),
        execution_timeout=timedelta(hours=4),
    )
