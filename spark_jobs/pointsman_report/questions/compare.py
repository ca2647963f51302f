"""``compare``: what got better or worse from one computed day to another.

Of each list the twenty entries that weigh most are kept, and how many there were.
"""

from __future__ import annotations

from datetime import date

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pointsman_report.errors import ReportError
from pointsman_report.io import Warehouse
from pointsman_report.questions.comparison import Changes, Comparison, Row
from pointsman_report.report.meanings import WORST_FIRST
from pointsman_report.schemas import INSTANCE

MOST = 20

LESS_AVAILABLE = 0.0001
"""A share; what differs by less is told as the same."""
LATER, LATER_MS = 1.5, 1_000.0
"""The 99th percentile of beats: so many times, and by so much at least."""
LONGER_SECONDS = 60.0
"""Topics without a writable queue for so much longer are worse off."""

AS_GOOD = WORST_FIRST.index("degraded") + 1
"""Rank of the classes that nobody has to look at: between these nothing got better or worse."""

NAMESRV = ("starts", "vanished", "pauses", "guard_activations", "rejected", "rows_missing", "rows_dropped")
TROUBLES = ("vanished", "pauses", "guard_activations", "rows_missing", "rows_dropped")
CHURN = ("created", "removed", "queue_changes", "perm_changes")


def compare(warehouse: Warehouse, one: date, other: date) -> Comparison:
    """Hold ``other`` against ``one``.

    Raises:
        ReportError: a day was not computed.
    """
    missing = sorted({one, other} - warehouse.computed_days())
    if missing:
        named = " and ".join(day.isoformat() for day in missing)
        raise ReportError(
            f"{named} {'was' if len(missing) == 1 else 'were'} not computed: run pointsman-report backfill "
            f"--from {missing[0]} --to {missing[-1]}"
        )
    days = _Days(warehouse, one, other)
    changes: Changes = {
        "clusters": _clusters(days),
        "brokers": _brokers(days),
        "topics_at_risk": _topics_at_risk(days),
        "queues": _queues(days),
        "name_servers": _name_servers(days),
        "heartbeats": _heartbeats(days),
    }
    return Comparison(one, other, changes, _churn(days))


class _Days:
    """The two days of a table, side by side."""

    def __init__(self, warehouse: Warehouse, one: date, other: date) -> None:
        self._warehouse = warehouse
        self._one = one
        self._other = other

    def both(self, table: str, keys: tuple[str, ...], values: tuple[str, ...]) -> DataFrame:
        """A row for each key of either day; ``before`` and ``after`` are structs of the values, or null."""
        sides = [
            self._of(table, day).select(*keys, F.struct(*values).alias(name))
            for day, name in ((self._one, "before"), (self._other, "after"))
        ]
        on = [sides[0][key].eqNullSafe(sides[1][key]) for key in keys]
        joined = sides[0].join(sides[1], on=on, how="full")
        return joined.select(*(F.coalesce(sides[0][key], sides[1][key]).alias(key) for key in keys), "before", "after")

    def summed(self, table: str, keys: tuple[str, ...], **sums: Column) -> DataFrame:
        """Sums of either day: columns ``is_after`` and the sums."""
        each = [
            self._of(table, day).select("*", F.lit(is_after).alias("is_after"))
            for day, is_after in ((self._one, False), (self._other, True))
        ]
        named = [column.alias(name) for name, column in sums.items()]
        return each[0].unionByName(each[1]).groupBy(*keys, "is_after").agg(*named)

    def _of(self, table: str, day: date) -> DataFrame:
        return self._warehouse.read(table, first_day=day, last_day=day)


def _kept(rows: DataFrame, change: Column, *order: Column | str) -> dict[str, Row]:
    """The first rows of each kind of change, and how many there are: one look at the table."""
    changed = rows.withColumn("change", change).filter(F.col("change").isNotNull())
    kind = Window.partitionBy("change")
    numbered = changed.withColumns(
        {"place": F.row_number().over(kind.orderBy(*order)), "in_all": F.count("*").over(kind)}
    )
    found: dict[str, Row] = {}
    for row in numbered.filter(F.col("place") <= MOST).orderBy("change", "place").collect():
        plain = row.asDict(recursive=True)
        entry = found.setdefault(plain["change"], {"in_all": plain["in_all"], "rows": []})
        entry["rows"].append({name: plain[name] for name in plain if name not in ("change", "place", "in_all")})
    return found


def _new_or_gone() -> Column:
    return F.when(F.col("before").isNull(), "new").when(F.col("after").isNull(), "gone")


def _clusters(days: _Days) -> dict[str, Row]:
    facts = ("availability", "down_seconds", "outages", "brokers", "budget_left_seconds")
    health = days.both("cluster_health", ("cluster",), facts)
    incidents = days.summed("incidents", ("cluster",), incidents=F.count("*"))
    of_cluster = incidents.groupBy("cluster").agg(
        *(
            F.coalesce(F.sum(F.when(F.col("is_after") == is_after, F.col("incidents"))), F.lit(0)).alias(name)
            for name, is_after in (("incidents_before", False), ("incidents_after", True))
        )
    )
    counts = ("incidents_before", "incidents_after")
    rows = health.join(of_cluster, on="cluster", how="left").fillna(0, subset=list(counts))
    lost = F.col("before.availability") - F.col("after.availability")
    other_counts = (F.col("before.outages") != F.col("after.outages")) | (F.col(counts[0]) != F.col(counts[1]))
    change = (
        F.when(_new_or_gone().isNotNull(), _new_or_gone())
        .when(lost >= LESS_AVAILABLE, "worse")
        .when(lost <= -LESS_AVAILABLE, "better")
        .when(other_counts, "otherwise")
    )
    seconds = F.abs(F.coalesce("after.down_seconds", F.lit(0.0)) - F.coalesce("before.down_seconds", F.lit(0.0)))
    return _kept(rows, change, seconds.desc(), "cluster")


def _brokers(days: _Days) -> dict[str, Row]:
    rows = days.both("flapping", INSTANCE, ("class", "down_count", "penalty_max"))
    before, after = _rank("before.class"), _rank("after.class")
    change = (
        F.when(_new_or_gone().isNotNull(), _new_or_gone()).when(after < before, "worse").when(after > before, "better")
    )
    return _kept(rows, change, F.least(before, after), F.col("after.penalty_max").desc_nulls_last(), *INSTANCE)


def _rank(name: str) -> Column:
    place = F.array_position(F.array(*map(F.lit, WORST_FIRST)), F.col(name))
    return F.when(F.col(name).isNotNull(), F.when(place > 0, F.least(place - 1, F.lit(AS_GOOD))).otherwise(AS_GOOD))


def _topics_at_risk(days: _Days) -> dict[str, Row]:
    facts = ("worst", "unwritable_seconds", "no_master_seconds", "one_broker_seconds", "brokers")
    rows = days.both("topics_at_risk", ("cluster", "topic"), facts)
    longer = F.col("after.unwritable_seconds") - F.col("before.unwritable_seconds")
    change = (
        F.when(_new_or_gone().isNotNull(), _new_or_gone())
        .when(longer >= LONGER_SECONDS, "worse")
        .when(longer <= -LONGER_SECONDS, "better")
    )
    most = [
        F.greatest(F.coalesce(f"after.{name}", F.lit(0.0)), F.coalesce(f"before.{name}", F.lit(0.0)))
        for name in facts[1:4]
    ]
    return _kept(rows, change, *(seconds.desc() for seconds in most), "cluster", "topic")


def _queues(days: _Days) -> dict[str, Row]:
    keys = ("cluster", "kind", "topic", "consumer_group")
    # A hot queue that is another queue of the same topic today is no news.
    rows = days.both("hot_queues", keys, ("value", "limit", "says", "cure"))
    times = F.try_divide(F.coalesce("after.value", "before.value"), F.coalesce("after.limit", "before.limit"))
    return _kept(rows, _new_or_gone(), times.desc_nulls_last(), *keys)


def _name_servers(days: _Days) -> dict[str, Row]:
    rows = days.both("namesrv_days", ("node",), NAMESRV)
    more = [_count("after", name) > _count("before", name) for name in TROUBLES]
    less = [_count("after", name) < _count("before", name) for name in TROUBLES]
    differs = [_count("after", name) != _count("before", name) for name in NAMESRV]
    change = F.when(_new_or_gone().isNotNull(), _new_or_gone()).when(_any(more), "worse").when(_any(less), "better")
    return _kept(rows, change.when(_any(differs), "otherwise"), "node")


def _count(side: str, name: str) -> Column:
    return F.coalesce(F.col(f"{side}.{name}"), F.lit(0))


def _any(conditions: list[Column]) -> Column:
    return F.array_contains(F.array(*conditions), F.lit(True))


def _heartbeats(days: _Days) -> dict[str, Row]:
    rows = days.both("heartbeat_punctuality", INSTANCE, ("p99_ms", "p50_ms", "late", "beats"))
    before, after = F.col("before.p99_ms"), F.col("after.p99_ms")
    change = F.when((after >= before * LATER) & (after - before >= LATER_MS), "later").when(
        (before >= after * LATER) & (before - after >= LATER_MS), "earlier"
    )
    return _kept(rows, change, F.abs(after - before).desc(), *INSTANCE)


def _churn(days: _Days) -> dict[str, dict[str, int]]:
    sums = days.summed("topic_churn", (), **{name: F.coalesce(F.sum(name), F.lit(0)) for name in CHURN})
    found = {name: dict.fromkeys(CHURN, 0) for name in ("before", "after")}
    for row in sums.collect():
        found["after" if row["is_after"] else "before"] = {name: row[name] for name in CHURN}
    return found
