"""A trace's figures, twice: counted in plain Python from the trace itself, and read from the tables made of it."""

from __future__ import annotations

import statistics
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MOST = 20
CLOSE_SECONDS = 60
OTHERS = 2


@dataclass(frozen=True, slots=True)
class Stretch:
    """One interval of the trace."""

    site: str
    zone: str
    name: str
    state: str
    start: int
    stop: int

    @property
    def broker(self) -> str:
        return f"{self.site}/{self.name}"


def worst(counts: Counter[str], most: int = MOST) -> dict[str, int]:
    """Those with most, the most first; equal counts by name."""
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return dict(ordered[:most])


def counted_apart(trace: Iterable[Stretch]) -> dict[str, Any]:
    """The expected figures, computed without the tables."""
    stretches = list(trace)
    downs = [stretch for stretch in stretches if stretch.state == "down"]
    return {
        "nodes": len({stretch.broker for stretch in stretches}),
        "rows": len(stretches),
        "down_intervals": len(downs),
        "worst": worst(Counter(stretch.broker for stretch in downs)),
    }


def share_with_company(trace: Iterable[Stretch]) -> float:
    """The share of outages that begin within a minute of two others of their site."""
    starts: dict[str, list[int]] = {}
    for stretch in trace:
        if stretch.state == "down":
            starts.setdefault(stretch.site, []).append(stretch.start)
    together = whole = 0
    for times in starts.values():
        times.sort()
        whole += len(times)
        for at in times:
            near = bisect_right(times, at + CLOSE_SECONDS) - bisect_left(times, at - CLOSE_SECONDS)
            together += near > OTHERS
    return together / whole if whole else 0.0


def measure(warehouse: Path) -> dict[str, Any]:
    """The trace's figures from ``broker_intervals``: all closed rows and the last day's open ones."""
    # Late: the separate count needs no Spark.
    from pyspark.sql.functions import col, lit, unix_micros  # noqa: PLC0415
    from pyspark.sql.functions import max as newest  # noqa: PLC0415

    from pointsman_report.spark_session import spark_session  # noqa: PLC0415

    with spark_session("local[*]", name="trace_figures") as spark:
        table = spark.read.parquet(str(warehouse / "broker_intervals"))
        last_day = table.agg(newest("dt")).collect()[0][0]
        whole = table.filter(~col("open") | (col("dt") == lit(last_day)))
        seconds = (unix_micros("end_at") - unix_micros("start_at")) / 1e6
        unseen = (unix_micros("start_at") - unix_micros("last_sign_of_life_at")) / 1e6
        wanted = ("cluster", "broker_name", "state", seconds.alias("seconds"), unseen.alias("unseen"))
        rows = whole.select(*wanted).collect()
    lengths: dict[str, list[float]] = {"up": [], "down": []}
    downs: Counter[str] = Counter()
    for row in rows:
        lengths[row.state].append(row.seconds)
        downs[f"{row.cluster}/{row.broker_name}"] += row.state == "down"
    up, down = lengths["up"], lengths["down"]
    delays = [row.unseen for row in rows if row.state == "down" and row.unseen is not None]
    return {
        "nodes": len(downs),
        "rows": len(rows),
        "down_intervals": len(down),
        "up_intervals": len(up),
        "mean_down_hours": statistics.fmean(down) / 3600,
        "median_down_hours": statistics.median(down) / 3600,
        "mean_up_hours": statistics.fmean(up) / 3600,
        "median_up_hours": statistics.median(up) / 3600,
        "availability": sum(up) / (sum(up) + sum(down)),
        "most_down_intervals": worst(downs, 10),
        "worst": worst(downs),
        "median_detection_seconds": statistics.median(delays) if delays else None,
    }


def verdicts(warehouse: Path, by_count: Iterable[str]) -> list[tuple[str, str]]:
    """The results of the score, the ranking and the incidents, each as a name and a text."""
    from pyspark.sql import functions as F  # noqa: PLC0415, N812

    from pointsman_report.io import Warehouse  # noqa: PLC0415
    from pointsman_report.spark_session import spark_session  # noqa: PLC0415

    with spark_session("local[*]", name="trace_figures") as spark:
        published = Warehouse(spark, str(warehouse))

        def table(name: str) -> Any:
            return published.read_days(name, published.days(name))

        broker = F.concat_ws("/", "cluster", "broker_name").alias("broker")
        scored = (
            table("flapping")
            .groupBy(broker)
            .agg(
                F.sum(F.col("raised").cast("int")).alias("days"),
                F.max("penalty_max").alias("highest"),
                F.sum("incident_downs").alias("shared"),
            )
        )
        ranked = (
            table("flap_ranking")
            .groupBy(broker)
            .agg(F.sum(F.col("outlier").cast("int")).alias("days"), F.min("p_value").alias("least"))
        )
        penalty, slow = scored.collect(), ranked.collect()
        began = table("availability").groupBy(broker).agg(F.sum("outages").alias("outages")).collect()
        incidents = table("incidents").agg(F.count("*"), F.max("brokers")).collect()[0]
    shared_by = {row.broker: row.shared for row in penalty}
    shared, outages = sum(shared_by.values()), sum(row.outages for row in began)
    all_worst = set(by_count)
    own_worst = set(worst(Counter({row.broker: row.outages - shared_by.get(row.broker, 0) for row in began})))

    def overlap(rows: list[Any], order: str) -> str:
        sign = 1 if order == "least" else -1
        flagged = [row for row in rows if row.days]
        first = {row.broker for row in sorted(flagged, key=lambda row: (sign * row[order], row.broker))[:MOST]}
        return f"{len(first & all_worst)} and {len(first & own_worst)}"

    return [
        ("incidents", f"{incidents[0]}, the largest of {incidents[1] or 0} brokers"),
        ("outages in incidents", f"{shared / outages:.1%} ({shared} of {outages})"),
        ("flagged by the penalty", f"{sum(row.days > 0 for row in penalty)} of {len(penalty)} brokers"),
        ("... broker-days", f"{sum(row.days for row in penalty)}"),
        ("flagged by the slow track", f"{sum(row.days > 0 for row in slow)} of {len(slow)} brokers"),
        ("... broker-days", f"{sum(row.days for row in slow)}"),
        (f"of the {MOST} worst by outages, and by those", "outside incidents, there are among"),
        (f"... the {MOST} of the highest penalty", overlap(penalty, "highest")),
        (f"... the {MOST} most often flagged by it", overlap(penalty, "days")),
        (f"... the {MOST} of the slow track's least chance", overlap(slow, "least")),
        (f"... the {MOST} most often outliers of it", overlap(slow, "days")),
        ("worst by outages and outside incidents", f"{len(all_worst & own_worst)} in common"),
    ]


def compare(expected: dict[str, Any], measured: dict[str, Any]) -> list[tuple[str, object, object, bool]]:
    """Pair each expected figure with the measured one: counts exactly, the rest to the digits given."""
    lines: list[tuple[str, object, object, bool]] = []
    for name, wanted in expected.items():
        got = measured[name]
        if isinstance(wanted, dict):
            lines += [(broker, count, got.get(broker), got.get(broker) == count) for broker, count in wanted.items()]
        elif isinstance(wanted, float):
            digits = len(str(wanted).partition(".")[2])
            lines.append((name, wanted, round(got, digits), round(got, digits) == wanted))
        else:
            lines.append((name, wanted, got, got == wanted))
    return lines
