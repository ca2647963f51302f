"""How well the report recognises incidents, rolling restarts and causes, on labelled faults.

A day's faults are injected into a fleet of agents that call real cores of name servers on a clock that moves by hand;
the history goes through the real nightly job, and its tables are compared with what was injected. The thresholds were
fixed before the first run; parameters are the defaults.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.bench.incidents.faults import Fault, Plan, faults_of
from tests.bench.incidents.rows import DAY_OF, broker_number, write_rows
from tests.bench.incidents.scores import Faults, Group, Outage, Score, all_scores
from tests.bench.nightly import runs
from tests.bench.report import Report

PRECISION, RECALL = 0.95, 0.95

PLAN = Plan()

Progress = Callable[[str], None]


async def measure(report: Report) -> None:
    """Print precision and recall of each, with its target."""
    faults = faults_of(PLAN)
    report.subject(
        f"Incidents and causes: {len(faults):,} labelled faults in one day, {PLAN.each} of each of "
        f"{len({fault.kind for fault in faults})} kinds, {PLAN.brokers} brokers in {PLAN.clusters} clusters, "
        f"seed {PLAN.seed}"
    )
    with tempfile.TemporaryDirectory() as folder:
        scores = run(PLAN, faults, Path(folder), say=report.progress)
    show(report, scores)


def run(
    plan: Plan, faults: list[Fault], folder: Path, *, say: Callable[[str], None] = lambda _: None
) -> dict[str, Score]:
    """Write the history, run the nightly job over it and compare its tables with the faults."""
    say("writing history")
    histories = write_rows(plan, faults, folder / "history")
    say("running the nightly job")
    warehouse = folder / "warehouse"
    runs.nightly(histories, warehouse, DAY_OF)
    say("reading the tables")
    return scores_of(warehouse, faults)


def scores_of(warehouse: Path, faults: list[Fault]) -> dict[str, Score]:
    """Read a warehouse and score it."""
    # Late: the other subjects need no Spark.
    from pyspark.sql.functions import explode, unix_micros  # noqa: PLC0415

    from pointsman_report.io import Warehouse  # noqa: PLC0415
    from pointsman_report.spark_session import spark_session  # noqa: PLC0415
    from pointsman_report.transforms.utc_days import start_of  # noqa: PLC0415

    began = start_of(DAY_OF)
    with spark_session("local[1]", name="incidents") as spark:
        tables = Warehouse(spark, str(warehouse))
        read = {
            name: tables.read(name, first_day=DAY_OF, last_day=DAY_OF)
            for name in ("outage_causes", "incidents", "rolling_restarts")
        }
        at = unix_micros("start_at").alias("at")
        rows = read["outage_causes"].select("broker_name", "broker_id", at, "cause", "planned").collect()
        outages = [Outage(_number(row), (row.at - began) / 1e6, row.cause, row.planned) for row in rows]
        groups = {}
        for name, key in (("incidents", "incident_id"), ("rolling_restarts", "rolling_restart_id")):
            members = read[name].select(key, explode("members").alias("member")).select(key, "member.*")
            found: dict[str, list[tuple[int, float]]] = {}
            for row in members.select(key, "broker_name", "broker_id", at).collect():
                found.setdefault(row[key], []).append((_number(row), (row.at - began) / 1e6))
            groups[name] = [Group(tuple(of)) for of in found.values()]
    return all_scores(outages, groups["incidents"], groups["rolling_restarts"], Faults(faults))


def show(report: Report, scores: dict[str, Score]) -> None:
    """Two lines for each."""
    for name, score in scores.items():
        for what, share, target, of in (
            ("precision", score.precision, PRECISION, f"{score.right:,} of {score.reported:,}"),
            ("recall", score.recall, RECALL, f"{score.found:,} of {score.injected:,}"),
        ):
            report.figure(f"{name}: {what}", f"{share:.1%} ({of})", target=f"{target:.0%}", is_met=share >= target)
        if score.mistaken_for:
            wrong = ", ".join(f"{what} {count}" for what, count in score.mistaken_for.most_common(5))
            report.figure(f"{name}: wrong", wrong)


def _number(row: Any) -> int:
    return broker_number(row.broker_name, row.broker_id)


__all__ = ["PLAN", "PRECISION", "RECALL", "measure", "run", "scores_of", "show"]
