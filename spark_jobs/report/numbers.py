"""The numbers of a report, read from the published tables; page, JSON and terminal show these and no others."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_jobs.io import GZIP_FAULT, Warehouse, days_from
from spark_jobs.jobs.pipeline import Run
from spark_jobs.parameters import FlapParameters
from spark_jobs.report.classes import UNWATCHED, WORST_FIRST, meanings
from spark_jobs.report.findings import fell_silent, findings
from spark_jobs.report.wording import rfc3339
from spark_jobs.schemas import INSTANCE, OBSERVER
from spark_jobs.validation import known_events

REPORT_VERSION = 1
MOST_TIMELINES = 300
CURVES = 5

Numbers = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Drawn:
    """What the plots show beyond the numbers: intervals of the worst brokers, charges of the worst of all."""

    intervals: list[dict[str, Any]]
    charges: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Span:
    """The days a report is about."""

    first_day: date
    last_day: date

    def read(self, warehouse: Warehouse, table: str) -> DataFrame:
        return warehouse.read(table, first_day=self.first_day, last_day=self.last_day)


def report_numbers(warehouse: Warehouse, span: Span, *, parameters: FlapParameters, run: Run, version: str) -> Numbers:
    """Collect everything a report says about the days."""
    brokers = _brokers(warehouse, span)
    completeness = _completeness(warehouse, span, run)
    headline = _headline(brokers, completeness)
    return {
        "report_version": REPORT_VERSION,
        "date": span.last_day.isoformat(),
        "from": span.first_day.isoformat(),
        "to": span.last_day.isoformat(),
        "interval": {
            "from_at": f"{span.first_day.isoformat()}T00:00:00.000Z",
            "to_at": f"{(span.last_day + timedelta(days=1)).isoformat()}T00:00:00.000Z",
        },
        "code_version": version,
        "headline": headline,
        "brokers": brokers,
        "observers": completeness.pop("observers"),
        "completeness": completeness,
        "parameters": parameters.as_dict(),
        "classes": meanings(parameters),
    }


def _brokers(warehouse: Warehouse, span: Span) -> list[dict[str, Any]]:
    """One entry for each broker, worst first, with its outages."""
    # Whoever was watched on one of the days is what it was on that day.
    ranked = (*(name for name in WORST_FIRST if name != UNWATCHED), UNWATCHED)
    rank = F.array_position(F.array(*map(F.lit, ranked)), F.col("class"))
    scored = (
        span.read(warehouse, "flapping")
        .withColumn("rank", rank)
        .groupBy(*INSTANCE)
        .agg(
            F.min_by("class", "rank").alias("class"),
            F.sum("down_count").alias("down_count"),
            F.sum("sign_count").alias("sign_count"),
            F.min_by("penalty_start", "dt").alias("penalty_start"),
            F.max("penalty_max").alias("penalty_max"),
            F.max_by("penalty_end", "dt").alias("penalty_end"),
            F.max("flapped_days").alias("flapped_days"),
            F.max_by("flagged", "dt").alias("flagged"),
        )
    )
    lived = (
        span.read(warehouse, "availability")
        .groupBy(*INSTANCE)
        .agg(
            F.sum("up_seconds").alias("up_seconds"),
            F.sum("down_seconds").alias("down_seconds"),
            F.sum("planned_seconds").alias("planned_seconds"),
            F.sum("repaired").alias("repaired"),
            F.sum("repair_seconds").alias("repair_seconds"),
            F.max("longest_outage_seconds").alias("longest_outage_seconds"),
        )
    )
    rows = _collect(scored.join(lived, on=list(INSTANCE), how="left"))
    downs = _downs(warehouse, span)
    entries = [_broker(row, downs.get(_key(row), [])) for row in rows]
    return sorted(entries, key=_worst_first)


def _broker(row: dict[str, Any], downs: list[dict[str, Any]]) -> dict[str, Any]:
    up, down = row["up_seconds"] or 0.0, row["down_seconds"] or 0.0
    outages = [interval for interval in downs if not interval["planned"]]
    reasons: dict[str, int] = {}
    for outage in outages:
        reasons[outage["reason"]] = reasons.get(outage["reason"], 0) + 1
    return {
        "cluster": row["cluster"],
        "broker_name": row["broker_name"],
        "broker_id": row["broker_id"],
        "class": row["class"],
        "down_count": row["down_count"],
        "sign_count": row["sign_count"],
        "penalty_start": row["penalty_start"],
        "penalty_max": row["penalty_max"],
        "penalty_end": row["penalty_end"],
        "flagged": row["flagged"],
        "flapped_days": row["flapped_days"],
        "availability": up / (up + down) if up + down > 0 else None,
        "up_seconds": up,
        "down_seconds": down,
        "planned_seconds": row["planned_seconds"] or 0.0,
        "longest_outage_seconds": row["longest_outage_seconds"],
        "mttr_seconds": row["repair_seconds"] / row["repaired"] if row["repaired"] else None,
        "mtbf_seconds": up / row["down_count"] if row["down_count"] else None,
        "reasons": dict(sorted(reasons.items())),
        "outages": [_without(outage, "planned") for outage in outages],
        "leaves": [_without(leave, "planned") for leave in downs if leave["planned"]],
    }


def _downs(warehouse: Warehouse, span: Span) -> dict[tuple[Any, ...], list[dict[str, Any]]]:
    """Down intervals that touch the days, by broker, in order: all that ended, and those open at the last day's end."""
    rows = (
        _whole(warehouse, span)
        .filter(F.col("state") == "down")
        .select(
            *INSTANCE,
            F.unix_micros("start_at").alias("start"),
            F.unix_micros("end_at").alias("end"),
            F.unix_micros("last_sign_of_life_at").alias("sign"),
            *("start_censored", "end_censored", "continues", "observers", "event", "planned"),
            F.coalesce("reason", "event").alias("reason"),
        )
    )
    by_broker: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in sorted(_collect(rows), key=lambda row: (row["start"], row["end"])):
        by_broker.setdefault(_key(row), []).append(
            {
                "start_at": rfc3339(row["start"]),
                "end_at": rfc3339(row["end"]),
                "seconds": (row["end"] - row["start"]) / 1e6,
                "event": row["event"],
                "reason": row["reason"],
                "start_censored": row["start_censored"],
                "end_censored": row["end_censored"],
                "continues": row["continues"],
                "observers": row["observers"],
                "last_sign_of_life_at": rfc3339(row["sign"]),
                "planned": row["planned"],
            }
        )
    return by_broker


def _whole(warehouse: Warehouse, span: Span) -> DataFrame:
    """Each interval of the days once."""
    intervals = span.read(warehouse, "broker_intervals")
    return intervals.filter(~F.col("open") | (F.col("dt") == F.lit(span.last_day)))


def _completeness(warehouse: Warehouse, span: Span, run: Run) -> Numbers:
    events = _collect(
        span.read(warehouse, "registration_events").groupBy("dt", "event").agg(F.count("*").alias("rows"))
    )
    quarantine = span.read(warehouse, "quarantine")
    bad = quarantine.groupBy("reason")
    quarantined = _collect(bad.agg(F.count("*").alias("lines"), F.min("file").alias("first_file")))
    unreadable = (
        _collect(quarantine.filter(F.col("reason").startswith(GZIP_FAULT)).select("file").distinct())
        if any(row["reason"].startswith(GZIP_FAULT) for row in quarantined)
        else []
    )
    by_event: dict[str, int] = {}
    for row in events:
        by_event[row["event"]] = by_event.get(row["event"], 0) + row["rows"]
    observers = _observers(warehouse, span)
    with_rows = {row["dt"] for row in events}
    span_seconds = ((span.last_day - span.first_day).days + 1) * 86_400
    return {
        "files": run.files,
        "last_day": span.last_day.isoformat(),
        "rows": sum(by_event.values()),
        "rows_missing": sum(observer["rows_missing"] for observer in observers),
        "rows_ahead": run.rows_ahead,
        "unreadable_files": sorted(row["file"] for row in unreadable),
        "quarantined_lines": sum(row["lines"] for row in quarantined),
        "quarantined": sorted(quarantined, key=lambda row: (-row["lines"], row["reason"])),
        "events": dict(sorted(by_event.items())),
        "unknown_events": {name: rows for name, rows in sorted(by_event.items()) if name not in known_events()},
        "days_without_rows": [
            day.isoformat() for day in days_from(span.first_day, span.last_day) if day not in with_rows
        ],
        "watched_seconds": _watched_seconds(observers),
        "span_seconds": span_seconds,
        "continues_day_before": run.continues_yesterday,
        "warehouse_ends_on": run.ends_before.isoformat() if run.ends_before else None,
        "unwatched_clusters": _unwatched_clusters(warehouse, span),
        "fell_silent": fell_silent(observers, _stopped(warehouse, span), last_day=span.last_day),
        "observers": observers,
    }


def _unwatched_clusters(warehouse: Warehouse, span: Span) -> dict[str, list[str]]:
    """Days on which a cluster was known and not one of its brokers was seen, by cluster."""
    known = _collect(span.read(warehouse, "flapping").select("cluster", "dt").distinct())
    seconds = F.col("up_seconds") + F.col("down_seconds") + F.col("planned_seconds")
    seen = span.read(warehouse, "availability").filter(seconds > 0).select("cluster", "dt").distinct()
    watched = {(row["cluster"], row["dt"]) for row in _collect(seen)}
    by_cluster: dict[str, list[str]] = {}
    for cluster, day in sorted({(row["cluster"], row["dt"]) for row in known} - watched):
        by_cluster.setdefault(cluster, []).append(day.isoformat())
    return by_cluster


def _stopped(warehouse: Warehouse, span: Span) -> set[tuple[str, str]]:
    said = span.read(warehouse, "registration_events").filter(F.col("event") == "NAMESRV_STOPPED")
    return {(row["node"], row["boot_id"]) for row in _collect(said.select(*OBSERVER).distinct())}


def _observers(warehouse: Warehouse, span: Span) -> list[dict[str, Any]]:
    start = datetime.combine(span.first_day, datetime.min.time(), tzinfo=UTC)
    windows = (
        span.read(warehouse, "observer_windows")
        .groupBy(*OBSERVER)
        .agg(
            F.unix_micros(F.min("from_at")).alias("from_at"),
            F.unix_micros(F.max("to_at")).alias("to_at"),
            F.max_by("open", "dt").alias("open"),
            F.sum("rows").alias("rows"),
            F.sum("rows_missing").alias("rows_missing"),
            F.slice(F.flatten(F.sort_array(F.collect_list("gaps"))), 1, 20).alias("gaps"),
        )
    )
    rows = sorted(_collect(windows), key=lambda row: (row["node"], row["from_at"] or 0, row["boot_id"]))
    first = int(start.timestamp() * 1e6)
    return [
        row
        | {
            "from_at": rfc3339(row["from_at"]),
            "to_at": rfc3339(row["to_at"]),
            "watched_from_at": None if row["from_at"] is None else rfc3339(max(row["from_at"], first)),
            "gaps": [gap.asDict() for gap in row["gaps"]],
        }
        for row in rows
    ]


def _watched_seconds(observers: Iterable[dict[str, Any]]) -> float:
    """Time in which at least one name server watched."""
    watches = sorted((o["watched_from_at"], o["to_at"]) for o in observers if o["watched_from_at"] is not None)
    total, until = 0.0, None
    for start_text, end_text in watches:
        start, end = datetime.fromisoformat(start_text), datetime.fromisoformat(end_text)
        begin = start if until is None else max(start, until)
        if end > begin:
            total += (end - begin).total_seconds()
            until = end
    return total


def _headline(brokers: list[dict[str, Any]], completeness: Numbers) -> Numbers:
    by_class = {name: sum(broker["class"] == name for broker in brokers) for name in WORST_FIRST}
    clusters = []
    for name in sorted({broker["cluster"] for broker in brokers}):
        members = [broker for broker in brokers if broker["cluster"] == name]
        up, down = (sum(member[key] for member in members) for key in ("up_seconds", "down_seconds"))
        clusters.append(
            {
                "cluster": name,
                "brokers": len(members),
                "availability": up / (up + down) if up + down > 0 else None,
                "up_seconds": up,
                "down_seconds": down,
                "outages": sum(member["down_count"] for member in members),
                "flapping": sum(member["class"] in ("flapping", "chronic") for member in members),
            }
        )
    return {
        "brokers_seen": len(brokers),
        "flapping_count": by_class["flapping"] + by_class["chronic"],
        "outages": sum(broker["down_count"] for broker in brokers),
        "by_class": by_class,
        "clusters": clusters,
        "no_data": completeness["rows"] == 0,
        "findings": findings(brokers, completeness),
    }


def drawn(warehouse: Warehouse, span: Span, numbers: Numbers) -> Drawn:
    """Collect what the plots need, for the worst brokers only."""
    shown = [_key(broker) for broker in numbers["brokers"][:MOST_TIMELINES]]
    scored = [_key(broker) for broker in most_charged(numbers)]
    intervals = _whole(warehouse, span).select(
        *INSTANCE, "state", "planned", F.unix_micros("start_at").alias("start"), F.unix_micros("end_at").alias("end")
    )
    charges = span.read(warehouse, "flap_charges").select(
        *INSTANCE, F.unix_micros("charged_at").alias("at"), "cause", "points", "penalty"
    )
    return Drawn(
        intervals=_collect(_only(intervals, shown)) if shown else [],
        charges=sorted(_collect(_only(charges, scored)), key=lambda row: row["at"]) if scored else [],
    )


def most_charged(numbers: Numbers) -> list[dict[str, Any]]:
    """Brokers whose penalty is worth a curve, the highest first."""
    by_penalty = sorted(numbers["brokers"], key=lambda broker: -float(broker["penalty_max"]))
    return [broker for broker in by_penalty[:CURVES] if broker["penalty_max"] >= 1]


def _only(rows: DataFrame, brokers: list[tuple[Any, ...]]) -> DataFrame:
    wanted = rows.sparkSession.createDataFrame(brokers, "cluster string, broker_name string, broker_id bigint")
    return rows.join(F.broadcast(wanted), on=list(INSTANCE), how="left_semi")


def _worst_first(broker: dict[str, Any]) -> tuple[Any, ...]:
    rank = WORST_FIRST.index(broker["class"])
    # The flapping and the chronic stand together: the score decides which is worse.
    return (max(rank, 1), -broker["penalty_max"], -broker["down_count"], -broker["down_seconds"], *_key(broker))


def _collect(rows: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict() for row in rows.collect()]


def _key(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in INSTANCE)


def _without(row: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key != name}
