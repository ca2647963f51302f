"""Topics and queues of each broker over time, and how often they changed.

`statements`: the topics that brokers registered, each statement once: full sets and changes, in the order in which they
apply.

Several name servers record the same registration. A statement is identified by the version of the topics, the version
it starts from, and its number of the day at a name server. It counts from the first time that a name server received
it, and a part missing at one name server is taken from another. Topics loaded from a snapshot at a start (reason START)
count only if no other statement of that broker was recorded earlier that day: other name servers may have newer topics.

`topic_intervals`: which queues of which topic each broker had registered, from when to when.

`topic_churn`: how often topics were created, removed and changed on a day.
"""

from __future__ import annotations

from datetime import date

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F
from pyspark.sql import types as T

from pointsman_report.schemas import INSTANCE, OBSERVER
from pointsman_report.schemas.table_types import BOOL, INT, TEXT, struct
from pointsman_report.schemas.topic_tables import TOPIC_CHURN, TOPIC_INTERVALS
from pointsman_report.transforms import utc_days
from pointsman_report.transforms.utc_days import lit_day

_HEAD = struct(part=INT, parts=INT, full=BOOL, base=TEXT)
_FACT = ("dt", *INSTANCE, "version", "full", "base", "nth")
_ORDER = ("at", "node", "boot_id", "seq")
_NO_ROWS = "array<struct<at:bigint,node:string,boot_id:string,seq:bigint>>"
_BODY = struct(topics=T.MapType(TEXT, T.ArrayType(T.IntegerType())), removed=T.ArrayType(TEXT))
_QUEUES = ("read_queues", "write_queues", "perm")
_ENTRY = (*INSTANCE, "topic", "there", *_QUEUES, "ordinal", "at", "next_ordinal", "next_at")


def of_brokers() -> Column:
    """Whether a row holds topics of one replica."""
    named = F.col("cluster").isNotNull() & F.col("broker_name").isNotNull() & F.col("broker_id").isNotNull()
    return (F.col("event") == "TOPICS") & named


def statements(
    events: DataFrame, carried: DataFrame, intervals: DataFrame, *, first_day: date, last_day: date
) -> DataFrame:
    """Every statement that changes something, numbered for each broker from 1 (``ordinal``).

    Columns: instance, ``ordinal``, ``at``, ``rows`` (node, boot and number of its rows), ``whole_set`` (topics it does
    not name are removed), and ``next_ordinal`` and ``next_at`` of the next whole set. ``carried`` are the topic
    intervals of the day before the first, ``intervals`` the broker intervals of the days.

    One row per statement; key: instance, ``ordinal``.
    """
    # Not from the statements: that would parse their details again.
    brokers = events.filter(of_brokers()).select(*INSTANCE).unionByName(carried.select(*INSTANCE)).distinct()
    recorded = _facts(_by_observer(events)).unionByName(
        _dropped(brokers, intervals, first_day=first_day, last_day=last_day)
    )
    of_day = Window.partitionBy("dt", *INSTANCE).orderBy(*_ORDER).rowsBetween(Window.unboundedPreceding, -1)
    earlier = F.count(F.when(F.size("rows") > 0, 1)).over(of_day)
    live = recorded.withColumn("earlier", earlier).filter(~F.col("is_start") | (F.col("earlier") == 0))
    timeline = Window.partitionBy(*INSTANCE).orderBy(*_ORDER)
    fresh = _without_repeats(live, timeline)
    whole_set = F.col("full") & F.col("whole")
    numbered = fresh.withColumns({"ordinal": F.row_number().over(timeline), "whole_set": whole_set})
    later = timeline.rowsBetween(1, Window.unboundedFollowing)
    ahead = F.first(F.when(whole_set, F.struct("ordinal", "at")), ignorenulls=True).over(later)
    return numbered.withColumn("ahead", ahead).select(
        *INSTANCE,
        "ordinal",
        "at",
        "rows",
        "whole_set",
        F.col("ahead.ordinal").alias("next_ordinal"),
        F.col("ahead.at").alias("next_at"),
    )


def _by_observer(events: DataFrame) -> DataFrame:
    """The statements recorded by each run of a name server, without immediate repetitions."""
    # As a generator: a detail is long, and would otherwise be parsed again for each field and filter.
    head = F.inline(F.array(F.from_json("detail", _HEAD)))
    kept = ("dt", *INSTANCE, *OBSERVER, "seq", "event_at", "reason", "data_version")
    rows = events.filter(of_brokers()).select(*kept, head)
    good = rows.filter(F.col("full").isNotNull() & F.col("part").between(1, F.col("parts")))
    # The rows of one statement have consecutive numbers.
    own = good.groupBy(
        "dt",
        *INSTANCE,
        *OBSERVER,
        (F.col("seq") - F.col("part")).alias("seq"),
        F.coalesce("data_version", F.lit("")).alias("version"),
        "full",
        F.coalesce("base", F.lit("")).alias("base"),
        "parts",
    ).agg(
        F.min(F.unix_micros("event_at")).alias("at"),
        F.bool_and(F.coalesce(F.col("reason") == "START", F.lit(False))).alias("is_start"),
        F.sort_array(F.collect_list("part")).alias("held"),
    )
    whole = own.withColumn("whole", F.size("held") == F.col("parts"))
    timeline = Window.partitionBy("dt", *INSTANCE, *OBSERVER).orderBy("seq")
    same = Window.partitionBy("dt", *INSTANCE, *OBSERVER, "version", "full", "base").orderBy("seq")
    return _without_repeats(whole, timeline).withColumn("nth", F.row_number().over(same))


def _facts(by_observer: DataFrame) -> DataFrame:
    """Each statement once, at its first time, with each part from the name server that recorded it first."""
    part = by_observer.select(*_FACT, "parts", "is_start", "at", *OBSERVER, "seq", F.explode("held").alias("part"))
    row = F.struct("at", *OBSERVER, (F.col("seq") + F.col("part")).alias("seq"))
    parts = part.groupBy(*_FACT, "part").agg(
        F.min(row).alias("row"), F.bool_and("is_start").alias("is_start"), F.max("parts").alias("parts")
    )
    facts = parts.groupBy(*_FACT).agg(
        F.min("row").alias("first"),
        F.sort_array(F.collect_list("row")).alias("rows"),
        F.bool_and("is_start").alias("is_start"),
        (F.count("*") == F.max("parts")).alias("whole"),
    )
    return facts.select("dt", *INSTANCE, "first.*", "version", "full", "base", "whole", "is_start", "rows")


def _dropped(brokers: DataFrame, intervals: DataFrame, *, first_day: date, last_day: date) -> DataFrame:
    """An empty set at the start of each day on which a broker was neither up nor in an outage.

    A broker that stays down after a planned shutdown has no topics from the next midnight on; nor has one without
    monitoring.
    """
    missed = (F.col("state") == "up") | ~F.col("planned")
    there = intervals.filter(missed).select("dt", *INSTANCE).distinct()
    each_day = brokers.select("*", F.explode(utc_days.days_between(lit_day(first_day), lit_day(last_day))).alias("dt"))
    absent = each_day.join(there, on=["dt", *INSTANCE], how="left_anti")
    no_observer = F.lit("")
    return absent.select(
        "dt",
        *INSTANCE,
        utc_days.starts(F.col("dt")).alias("at"),
        no_observer.alias("node"),
        no_observer.alias("boot_id"),
        F.lit(0).cast("long").alias("seq"),
        F.lit(None).cast("string").alias("version"),
        F.lit(True).alias("full"),
        F.lit(None).cast("string").alias("base"),
        F.lit(True).alias("whole"),
        F.lit(False).alias("is_start"),
        F.array().cast(_NO_ROWS).alias("rows"),
    )


def _without_repeats(rows: DataFrame, timeline: WindowSpec) -> DataFrame:
    """Drop full sets of a version that is already known: a flapping broker registers the same set each time."""
    to_here = timeline.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    anchor = F.col("full") & F.col("whole")
    was = rows.withColumns({"was": F.lag("version").over(timeline), "n": F.row_number().over(timeline)})
    repeats = F.col("full") & (F.col("version") == F.col("was"))
    follows = F.coalesce(repeats | (~F.col("full") & F.col("whole") & (F.col("base") == F.col("was"))), F.lit(False))
    begins = F.max(F.when(anchor | ~follows, F.col("n"))).over(to_here)
    # Known: from a whole set on, while each change starts from the version before it.
    known = was.withColumn("known", F.coalesce(F.max(F.when(anchor, F.col("n"))).over(to_here) == begins, F.lit(False)))
    was_known = known.withColumn("was_known", F.lag("known").over(timeline))
    fresh = was_known.filter(~F.coalesce(repeats & F.col("was_known"), F.lit(False)))
    return fresh.drop("was", "n", "known", "was_known")


def topic_intervals(
    events: DataFrame, statements: DataFrame, carried: DataFrame, *, first_day: date, last_day: date
) -> DataFrame:
    """Turn `statements` into intervals, each cut at every midnight.

    ``carried`` are the topic intervals of the day before the first: those still open last until a statement changes
    them.

    One row per interval; key: ``dt``, instance, ``topic``, ``from_at``.
    """
    until = utc_days.end_of(last_day)
    entries = _carried(carried, statements, first_day=first_day).unionByName(_stated(events, statements))
    timeline = Window.partitionBy(*INSTANCE, "topic").orderBy("ordinal", "there", *_QUEUES)
    after = entries.withColumns(
        {"after_ordinal": F.lead("ordinal").over(timeline), "after_at": F.lead("at").over(timeline)}
    )
    # A whole set without the topic ends it.
    left_out = F.col("next_ordinal") < F.coalesce("after_ordinal", F.lit(2**31 - 1))
    end = F.coalesce(F.when(left_out, F.col("next_at")).otherwise(F.col("after_at")), F.lit(until))
    lasting = after.withColumn("end", end).filter("there").filter(F.col("end") > F.col("at"))
    same = F.lag("end").over(timeline) == F.col("at")
    for name in _QUEUES:
        same &= F.lag(name).over(timeline) == F.col(name)
    begins = lasting.withColumn("begins", (~F.coalesce(same, F.lit(False))).cast("int"))
    counted = begins.withColumn("nth", F.sum("begins").over(timeline.rowsBetween(Window.unboundedPreceding, 0)))
    merged = counted.groupBy(*INSTANCE, "topic", *_QUEUES, "nth").agg(
        F.min("at").alias("at"), F.max("end").alias("end")
    )
    return _cut_at_midnight(merged, last_day=last_day)


def _stated(events: DataFrame, statements: DataFrame) -> DataFrame:
    """A row for each topic in a statement."""
    numbered = ("ordinal", "at", "next_ordinal", "next_at")
    named = statements.select(*INSTANCE, *numbered, F.explode("rows").alias("row"))
    rows = named.select(*INSTANCE, *numbered, "row.node", "row.boot_id", "row.seq")
    texts = events.filter(of_brokers()).select(*OBSERVER, "seq", "detail")
    # As a generator: a detail is long, and would otherwise be parsed for each of the two fields.
    parsed = F.inline(F.array(F.from_json("detail", _BODY)))
    body = rows.join(texts, on=[*OBSERVER, "seq"], how="inner").select(*INSTANCE, *numbered, parsed)
    there = F.transform(
        F.map_entries("topics"),
        lambda entry: F.struct(
            entry["key"].alias("topic"),
            F.lit(True).alias("there"),
            *(F.get(entry["value"], place).alias(name) for place, name in enumerate(_QUEUES)),
        ),
    )
    removed = F.transform(
        "removed",
        lambda topic: F.struct(
            topic.alias("topic"),
            F.lit(False).alias("there"),
            *(F.lit(None).cast("int").alias(name) for name in _QUEUES),
        ),
    )
    listed = body.select(*INSTANCE, *numbered, F.explode(F.array(removed, there)).alias("entries"))
    entries = listed.select(*INSTANCE, *numbered, F.inline("entries"))
    usable = F.col("read_queues").isNotNull() & F.col("write_queues").isNotNull() & F.col("perm").isNotNull()
    return entries.filter(F.col("topic").isNotNull() & (usable | ~F.col("there"))).select(*_ENTRY)


def _carried(carried: DataFrame, statements: DataFrame, *, first_day: date) -> DataFrame:
    first = statements.filter("whole_set").groupBy(*INSTANCE)
    first_set = first.agg(F.min(F.struct("ordinal", "at")).alias("ahead"))
    held = carried.filter("open").join(first_set, on=list(INSTANCE), how="left")
    return held.withColumns(
        {
            "there": F.lit(True),
            "ordinal": F.lit(0),
            "at": F.lit(utc_days.start_of(first_day)),
            "next_ordinal": F.col("ahead.ordinal"),
            "next_at": F.col("ahead.at"),
        }
    ).select(*_ENTRY)


def _cut_at_midnight(merged: DataFrame, *, last_day: date) -> DataFrame:
    # An interval that ends exactly at midnight is not part of the next day.
    last = F.least(utc_days.day_of(F.col("end") - 1), lit_day(last_day))
    each_day = merged.select("*", F.explode(utc_days.days_between(utc_days.day_of(F.col("at")), last)).alias("dt"))
    start, end = utc_days.starts(F.col("dt")), utc_days.ends(F.col("dt"))
    cut = each_day.withColumns(
        {
            "from_at": F.timestamp_micros(F.greatest("at", start)),
            "to_at": F.timestamp_micros(F.least("end", end)),
            "open": F.col("end") >= end,
        }
    )
    return cut.select(*TOPIC_INTERVALS.columns)


def topic_churn(topic_intervals: DataFrame) -> DataFrame:
    """Count topics created, removed and changed in each partition of ``topic_intervals``.

    The first topics of a broker on a day do not count as created: those at midnight, else those of its first set.

    One row per topic that changed, and day; key: ``dt``, ``cluster``, ``topic``.
    """
    known = topic_intervals.groupBy("dt", *INSTANCE).agg(F.min("from_at").alias("known_from"))
    dated = topic_intervals.join(known, on=["dt", *INSTANCE], how="inner")
    late = F.col("from_at") > F.col("known_from")
    # An interval that lasted all day has no neighbours to compare with.
    moved = dated.filter(late | ~F.col("open"))
    timeline = Window.partitionBy("dt", *INSTANCE, "topic").orderBy("from_at")
    follows = F.coalesce(F.lag("to_at").over(timeline) == F.col("from_at"), F.lit(False))
    is_followed = F.coalesce(F.lead("from_at").over(timeline) == F.col("to_at"), F.lit(False))
    read, write, perm = (F.lag(name).over(timeline) != F.col(name) for name in ("read_queues", "write_queues", "perm"))
    changed = moved.withColumns(
        {
            "created": late & ~follows,
            "removed": ~F.col("open") & ~is_followed,
            "queues": follows & (read | write),
            "perms": follows & perm,
        }
    )
    counted = changed.groupBy("dt", "cluster", "topic").agg(
        F.count_distinct(
            F.when(F.col("created") | F.col("removed") | F.col("queues") | F.col("perms"), F.struct(*INSTANCE))
        ).alias("brokers"),
        F.count_if("created").alias("created"),
        F.count_if("removed").alias("removed"),
        F.count_if("queues").alias("queue_changes"),
        F.count_if("perms").alias("perm_changes"),
    )
    return counted.filter(F.col("brokers") > 0).select(*TOPIC_CHURN.columns)
