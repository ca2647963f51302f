"""Detectors of flapping brokers: the penalty, the slow track, Nagios' percentage and a plain count, on labelled faults.

A seeded fleet's history goes through the real backfill; the tables' verdicts are compared with the labels. Parameters
are the defaults, and the calm fleet's faults were written down before any detector was run on them; the restless one
was added after that, for what it is.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from pointsman_report.parameters import Parameters
from tests.bench.detector_scores import Broker, Flag, Score, either, score
from tests.bench.histories import FaultRates, Fleet, write
from tests.bench.nightly import runs
from tests.bench.report import Report

CALM = Fleet(
    brokers=1_000,
    clusters=5,
    nodes=2,
    days=7,
    seed=2026,
    flapping_share=0.05,
    heartbeats=False,
    topics_a_broker=2,
    faults=FaultRates(),
)
RESTLESS = replace(CALM, seed=2027, faults=FaultRates(zone_cuts_a_day=6.0))
"""Its brokers go as often as the machines of the Grid'5000 trace: 0.29 times a day, nine times in ten in company."""
FLEETS = {"a calm fleet": CALM, "a restless fleet, whose networks are cut six times a day": RESTLESS}
COUNTS = range(1, 11)
USUAL_COUNT = 3


async def measure(report: Report) -> None:
    """Print a table for each fleet."""
    for what, fleet in FLEETS.items():
        report.subject(
            f"Who flaps in {what}: {fleet.brokers:,} brokers, {fleet.days} days, {fleet.nodes} name servers, "
            f"{fleet.flapping_share:.0%} of the brokers with a fault that should be flagged"
        )
        with tempfile.TemporaryDirectory() as folder:
            report.progress("writing history")
            written = write(fleet, Path(folder) / "history")
            report.progress(f"{written.rows} rows; computing the days")
            warehouse = Path(folder) / "warehouse"
            runs.backfill(written.histories, warehouse, fleet.first_day, fleet.last_day)
            report.progress("reading the tables")
            detectors = flags_of(warehouse, fleet)
        scores = {name: score(flags, written.labels) for name, flags in detectors.items()}
        show(report, with_best_count(scores))


def flags_of(warehouse: Path, fleet: Fleet) -> dict[str, list[Flag]]:
    """What each detector flags, by its name."""
    parameters = Parameters()
    with _tables(warehouse, fleet) as rows:
        charged = rows("flap_charges", "penalty", "charged_at")
        ranked = rows("flap_ranking", "outlier")
        days = rows("flapping", "percent_state_change")
        downs = rows("broker_intervals", "state", "planned", "continues", "start_censored", "start_at")
    penalty = _first_a_day(
        Flag(_broker(row), row["dt"], row["charged_at"])
        for row in charged
        if row["penalty"] > parameters.flapping.suppress_above
    )
    slow = [Flag(_broker(row), row["dt"]) for row in ranked if row["outlier"]]
    high = parameters.ranking.percent_high
    nagios = [Flag(_broker(row), row["dt"]) for row in days if (row["percent_state_change"] or 0.0) >= high]
    found = {"penalty": penalty, "slow track": slow, "penalty or slow track": either(penalty, slow)}
    found[f"Nagios percentage >= {high:g}"] = nagios
    return found | {f"count >= {most} a day": list(_counted(downs, most)) for most in COUNTS}


def with_best_count(scores: dict[str, Score]) -> dict[str, Score]:
    """Of the plain counts keep the usual one, and the one that turned out best."""
    counts = {name: found for name, found in scores.items() if name.startswith("count")}
    best = max(counts, key=lambda name: counts[name].f1)
    usual = f"count >= {USUAL_COUNT} a day"
    kept = {name: found for name, found in scores.items() if name not in counts}
    return kept | {usual: counts[usual], f"{best} (best by hindsight)": counts[best]}


def show(report: Report, scores: dict[str, Score]) -> None:
    """A line for each detector; shares in per cent."""
    kinds = list(next(iter(scores.values())).found_by_kind)
    titles = ["flags", "precision", "recall", *kinds, "delay h"]
    report.figure("detector", " ".join(f"{title:>12}" for title in titles))
    for name, found in scores.items():
        shares = [found.precision, found.recall, *found.found_by_kind.values()]
        cells = [f"{found.flags}", *("-" if share is None else f"{share:.0%}" for share in shares)]
        cells.append("-" if found.delay_hours is None else f"{found.delay_hours:.1f}")
        report.figure(name, " ".join(f"{cell:>12}" for cell in cells))
    for name, found in scores.items():
        if found.wrong_because:
            because = ", ".join(f"{why} {number}" for why, number in found.wrong_because.items())
            report.figure(f"wrong flags of {name}", because)
    print(
        "  A flag is a broker-day; it is right if a fault that should be flagged was on within the week up to it. "
        "Recall counts faults,\n  found if flagged on one of their days; the delay is the median from a fault's "
        "beginning to its first flag. Penalty and count are\n  taken at the event that raised them, the slow track and "
        "the percentage at the end of their day.",
        flush=True,
    )


@contextmanager
def _tables(warehouse: Path, fleet: Fleet) -> Iterator[Any]:
    # Late: the other subjects need no Spark.
    from pyspark.sql.functions import col, unix_micros  # noqa: PLC0415
    from pyspark.sql.types import TimestampType  # noqa: PLC0415

    from pointsman_report.io import Warehouse  # noqa: PLC0415
    from pointsman_report.spark_session import spark_session  # noqa: PLC0415

    with spark_session("local[1]", name="detectors") as spark:
        tables = Warehouse(spark, str(warehouse))

        def rows(table: str, *columns: str) -> list[dict[str, Any]]:
            read = tables.read(table, first_day=fleet.first_day, last_day=fleet.last_day)
            wanted = ["dt", "cluster", "broker_name", "broker_id", *columns]
            times = {column for column in wanted if isinstance(read.schema[column].dataType, TimestampType)}
            selected = [unix_micros(name).alias(name) if name in times else col(name) for name in wanted]
            records = [row.asDict() for row in read.select(*selected).collect()]
            for row in records:
                row |= {name: datetime.fromtimestamp(row[name] / 1e6, UTC) for name in times}
            return records

        yield rows


def _broker(row: dict[str, Any]) -> Broker:
    return row["cluster"], row["broker_name"], row["broker_id"]


def _first_a_day(flags: Iterator[Flag]) -> list[Flag]:
    return either(list(flags))


def _counted(downs: list[dict[str, Any]], most: int) -> Iterator[Flag]:
    """Flag a broker at its outage number ``most`` on one day; outages of incidents count like all others."""
    began: dict[tuple[Broker, date], set[datetime]] = defaultdict(set)
    for row in downs:
        is_outage = row["state"] == "down" and not (row["planned"] or row["continues"] or row["start_censored"])
        if is_outage:
            began[_broker(row), row["start_at"].date()].add(row["start_at"])
    for (broker, day), moments in began.items():
        if len(moments) >= most:
            yield Flag(broker, day, sorted(moments)[most - 1])
