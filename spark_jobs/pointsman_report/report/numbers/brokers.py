"""The brokers: each one's day as a row in Spark, and the few of them that a person wants to see."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pointsman_report.io import Warehouse
from pointsman_report.parameters import FlapParameters
from pointsman_report.report.numbers import broker_days, local_days
from pointsman_report.report.numbers.outages import downs_by_broker, listed_downs
from pointsman_report.report.numbers.rows import Key, Row, collect, key, only, ratio, without
from pointsman_report.report.span import Span
from pointsman_report.schemas import INSTANCE

MOST_BROKERS = 1_000
"""A larger fleet's healthy brokers are counted and not listed; the tables hold them all."""

_FACTS = ("owner", "zone", "host", "broker_version")
_RANKING = ("outages", "days", "rate_per_day", "cluster_rate_per_day", "ratio", "p_value", "outlier", "rank")


def broker_rows(warehouse: Warehouse, span: Span, *, parameters: FlapParameters) -> DataFrame:
    """One row for each broker that the tables know in the span."""
    if span.is_whole_utc_days:
        lives = broker_days.lived(warehouse, span)
        scores = broker_days.scored(warehouse, span)
    else:
        lives = local_days.lived(warehouse, span)
        scores = local_days.scored(warehouse, span, lives, parameters=parameters)
        lives = lives.drop("cut_downs")
    day = span.last_day
    ranking = warehouse.read("flap_ranking", first_day=day, last_day=day)
    ranked = ranking.select(*INSTANCE, F.struct(*_RANKING).alias("ranking"))
    return scores.join(lives, on=list(INSTANCE), how="left").join(ranked, on=list(INSTANCE), how="left")


def listed_brokers(warehouse: Warehouse, span: Span, rows: DataFrame, *, in_all: int) -> list[Row]:
    """The worst first: everybody of a small fleet, of a larger one whoever is not healthy, a thousand at most."""
    worth = rows if in_all <= MOST_BROKERS else rows.filter(F.col("class") != "healthy")
    few = collect(worth.orderBy(*broker_days.worst_first()).limit(MOST_BROKERS))
    keys = [key(row) for row in few]
    downs = listed_downs(warehouse, span, keys)
    counts = downs_by_broker(warehouse, span, keys)
    known = _known(warehouse, span, keys)
    none = {"outages": 0, "leaves": 0, "reasons": {}}
    return [_broker(row, downs.get(key(row), []), counts.get(key(row), none)) | known[key(row)] for row in few]


def _known(warehouse: Warehouse, span: Span, brokers: list[Key]) -> dict[Key, Row]:
    """Since when each broker is known, and what it said of itself last: who answers for it, where it runs."""
    unknown = dict.fromkeys(("first_seen_on", *_FACTS))
    found = {broker: dict(unknown) for broker in brokers}
    if not brokers:
        return found
    since = [F.min("first_seen_on").cast("string").alias("first_seen_on")]
    last = [F.max_by(name, "dt").alias(name) for name in _FACTS]
    for table, columns in (("broker_state", since), ("broker_facts", last)):
        for row in collect(only(span.touched(warehouse, table), brokers).groupBy(*INSTANCE).agg(*columns)):
            found[key(row)].update(without(row, *INSTANCE))
    return found


def _broker(row: Row, downs: list[Row], counts: dict[str, Any]) -> Row:
    up, down = row["up_seconds"] or 0.0, row["down_seconds"] or 0.0
    outages = [without(interval, "planned") for interval in downs if not interval["planned"]]
    leaves = [without(interval, "planned") for interval in downs if interval["planned"]]
    return {
        **{name: row[name] for name in (*INSTANCE, "class", "down_count", "incident_downs", "sign_count")},
        **{name: row[name] for name in ("penalty_start", "penalty_max", "penalty_end", "flagged", "flapped_days")},
        "percent_state_change": row["percent_state_change"],
        "longest_stable_seconds": row["longest_stable_seconds"],
        "cause": row["cause"],
        "cause_says": row["cause_says"],
        "ranking": row["ranking"],
        "availability": ratio(up, up + down),
        "up_seconds": up,
        "down_seconds": down,
        "planned_seconds": row["planned_seconds"] or 0.0,
        "longest_outage_seconds": row["longest_outage_seconds"],
        "repaired": row["repaired"] or 0,
        "mttr_seconds": ratio(row["repair_seconds"], row["repaired"]),
        "mtbf_seconds": ratio(up, row["down_count"]) if row["down_count"] else None,
        "censored": sum(outage["start_censored"] or outage["end_censored"] for outage in outages),
        "reasons": counts["reasons"],
        "outages": outages,
        "outages_left_out": counts["outages"] - len(outages),
        "leaves": leaves,
        "leaves_left_out": counts["leaves"] - len(leaves),
    }
