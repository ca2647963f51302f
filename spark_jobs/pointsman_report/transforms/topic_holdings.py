"""Availability of topics, from the intervals of their brokers: topics at risk, and topics hit by incidents.

`holdings`: which of a topic's brokers were up when, computed once for all topics held by the same brokers at the same
times.

A hundred thousand topics on the same ten brokers are one holding, and so is one topic on ten thousand brokers. Only
holdings with a broker that was down on the day are swept, and those of slaves without a master.

A master is a writer of a topic if it has write queues and the write permission. A slave counts while its master is
down, or if its master was never up on that day: otherwise the routes have the master's queues. Time counts only if the
state of every master of the topic is known.

`topics_at_risk`: topics that one more outage would make unwritable, or that were unwritable.

`blast_radius`: topics affected by incidents.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pointsman_report.schemas import INSTANCE
from pointsman_report.schemas.topic_tables import BLAST_RADIUS, TOPICS_AT_RISK
from pointsman_report.transforms import utc_days

PERM_WRITE = 2
MASTER_ID = 0
_HOLDING = ("dt", "cluster", "holding")
_COUNTS = ("writers", "writers_up", "writers_down", "readers", "readers_down", "slaves_up")
MAX_NAMES = 20


def holdings(topic_intervals: DataFrame, broker_intervals: DataFrame) -> DataFrame:
    """Each holding that may have been at risk: ``dt``, ``cluster``, ``holding`` (its number), ``topics`` (names), and
    ``holders``, the brokers that held them and when.

    One row per holding and day; key: ``dt``, ``cluster``, ``holding``.
    """
    is_relevant = (F.col("state") == "down") | (F.col("broker_id") != MASTER_ID)
    relevant = _states(broker_intervals).filter(is_relevant).select("dt", *INSTANCE).distinct()
    marked = topic_intervals.join(relevant.withColumn("missed", F.lit(True)), on=["dt", *INSTANCE], how="left")
    writes = (F.col("write_queues") > 0) & (F.col("perm").bitwiseAND(PERM_WRITE) != 0)
    holder = F.struct(
        "broker_name",
        "broker_id",
        ((F.col("broker_id") == MASTER_ID) & writes).alias("writes"),
        F.unix_micros("from_at").alias("from_us"),
        F.unix_micros("to_at").alias("to_us"),
        F.coalesce("missed", F.lit(False)).alias("missed"),
    )
    by_topic = marked.groupBy("dt", "cluster", "topic").agg(F.collect_list(holder).alias("holders"))
    begin, end = utc_days.starts(F.col("dt")), utc_days.ends(F.col("dt"))
    steady = F.filter(
        "holders",
        lambda one: one["writes"] & ~one["missed"] & (one["from_us"] == begin) & (one["to_us"] == end),
    )
    # Two masters that held it all day and were never down: the topic was not at risk.
    doubtful = by_topic.filter(F.exists("holders", lambda one: one["missed"]) & (F.size(steady) < 2))
    in_order = doubtful.withColumn("holders", F.sort_array("holders"))
    named = in_order.withColumn("holding", F.xxhash64("holders"))
    return named.groupBy(*_HOLDING).agg(
        F.sort_array(F.collect_list("topic")).alias("topics"), F.first("holders").alias("holders")
    )


def holdings_at_risk(holdings: DataFrame, broker_intervals: DataFrame) -> DataFrame:
    """The `holdings` with a time of risk. One row per holding and day; key: ``dt``, ``cluster``, ``topics``.

    Columns: ``dt``, ``cluster``, ``topics`` (names), ``brokers`` (masters that held them for writing), ``periods``:
    array of ``from_us``, ``to_us``, ``one_broker``, ``no_master``, ``unwritable``, in order.
    """
    holders = holdings.select(*_HOLDING, F.inline("holders")).drop("missed")
    periods = _periods(_counted(_steps(holders, _states(broker_intervals))))
    joined = _topics(holdings).join(periods, on=list(_HOLDING), how="inner")
    return joined.select("dt", "cluster", "topics", "brokers", "periods")


def _states(broker_intervals: DataFrame) -> DataFrame:
    """The masters' intervals, cut to the day, and the slaves' intervals in which they were up and their masters were
    not."""
    start = F.greatest(F.unix_micros("start_at"), utc_days.starts(F.col("dt")))
    cut = broker_intervals.select(
        "dt", *INSTANCE, "state", start.alias("state_from"), F.unix_micros("end_at").alias("state_to")
    ).filter(F.col("state_from") < F.col("state_to"))
    masters, slaves = (
        cut.filter(which) for which in (F.col("broker_id") == MASTER_ID, F.col("broker_id") != MASTER_ID)
    )
    group, up = ["dt", "cluster", "broker_name"], slaves.filter(F.col("state") == "up")
    seen_up = masters.filter(F.col("state") == "up").select(*group).distinct()
    without = up.join(seen_up, on=group, how="left_anti")
    masters_down = masters.filter(F.col("state") == "down").join(seen_up, on=group, how="left_semi")
    missed = masters_down.select(*group, F.col("state_from").alias("gone_from"), F.col("state_to").alias("gone_to"))
    left_alone = up.join(missed, on=group, how="inner").withColumns(
        {"state_from": F.greatest("state_from", "gone_from"), "state_to": F.least("state_to", "gone_to")}
    )
    alone = left_alone.filter(F.col("state_from") < F.col("state_to")).select(*cut.columns)
    return masters.unionByName(without).unionByName(alone)


def _topics(holdings: DataFrame) -> DataFrame:
    writers = F.filter("holders", lambda holder: holder["writes"])
    names = F.array_distinct(F.transform(writers, lambda holder: holder["broker_name"]))
    return holdings.select(*_HOLDING, "topics", F.size(names).cast("long").alias("brokers"))


def _steps(holders: DataFrame, states: DataFrame) -> DataFrame:
    """The change of each count at each instant."""
    holds = holders.withColumn("state", F.lit("held"))
    joined = holders.join(states, on=["dt", *INSTANCE], how="inner")
    within = joined.withColumns(
        {"from_us": F.greatest("from_us", "state_from"), "to_us": F.least("to_us", "state_to")}
    ).filter(F.col("from_us") < F.col("to_us"))
    spans = holds.unionByName(within.select(*holds.columns))
    edges = F.array(
        F.struct(F.col("from_us").alias("at"), F.lit(1).alias("gain")),
        F.struct(F.col("to_us").alias("at"), F.lit(-1).alias("gain")),
    )
    steps = spans.select("*", F.inline(edges))
    reads = (F.col("broker_id") == MASTER_ID) & ~F.col("writes")
    gains = {
        "writers": F.col("writes") & (F.col("state") == "held"),
        "writers_up": F.col("writes") & (F.col("state") == "up"),
        "writers_down": F.col("writes") & (F.col("state") == "down"),
        "readers": reads & (F.col("state") == "held"),
        "readers_down": reads & (F.col("state") == "down"),
        "slaves_up": (F.col("broker_id") != MASTER_ID) & (F.col("state") == "up"),
    }
    gains_at = [F.sum(F.when(which, F.col("gain")).otherwise(0)).alias(name) for name, which in gains.items()]
    return steps.groupBy(*_HOLDING, "at").agg(*gains_at)


def _counted(steps: DataFrame) -> DataFrame:
    """The counts from each instant to the next."""
    timeline = Window.partitionBy(*_HOLDING).orderBy("at")
    to_here = timeline.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    counts = {name: F.sum(name).over(to_here) for name in _COUNTS}
    return steps.select(
        *_HOLDING,
        "at",
        F.lead("at").over(timeline).alias("until"),
        *(count.alias(name) for name, count in counts.items()),
    )


def _periods(counted: DataFrame) -> DataFrame:
    all_writers_down = F.col("writers") == F.col("writers_down")
    all_known = F.col("writers") == F.col("writers_up") + F.col("writers_down")
    no_master = all_writers_down & (F.col("readers") == F.col("readers_down")) & (F.col("slaves_up") > 0)
    risks = {
        "one_broker": all_known & (F.col("writers") > 1) & (F.col("writers_up") == 1),
        "no_master": no_master,
        "unwritable": ((F.col("writers") > 0) & all_writers_down) | no_master,
    }
    at_risk = counted.withColumns(risks).filter(F.col("until").isNotNull() & _any(*risks))
    period = F.struct(F.col("at").alias("from_us"), F.col("until").alias("to_us"), *risks)
    return at_risk.groupBy(*_HOLDING).agg(F.sort_array(F.collect_list(period)).alias("periods"))


def _any(*names: str) -> Column:
    found = F.lit(False)
    for name in names:
        found |= F.col(name)
    return found


def topics_at_risk(holdings: DataFrame) -> DataFrame:
    """Sum the periods of `holdings_at_risk` by topic.

    A topic that only one broker has is not a finding while that broker is up: it was created that way.

    One row per topic and day; key: ``dt``, ``cluster``, ``topic``.
    """
    one_broker, no_master, unwritable = map(_microseconds, ("one_broker", "no_master", "unwritable"))
    summed = holdings.select(
        "dt",
        "cluster",
        "brokers",
        "topics",
        one_broker.alias("one_broker"),
        no_master.alias("no_master"),
        unwritable.alias("unwritable"),
        F.timestamp_micros(F.array_min(F.transform("periods", lambda period: period["from_us"]))).alias("first_at"),
    )
    # Time without a master and without a slave to read from is the worst.
    worst = (
        F.when(F.col("unwritable") > F.col("no_master"), "unwritable")
        .when(F.col("no_master") > 0, "no_master")
        .otherwise("one_broker")
    )
    named = summed.select(
        "*",
        F.explode("topics").alias("topic"),
        worst.alias("worst"),
        *(utc_days.seconds(F.col(name)).alias(f"{name}_seconds") for name in ("one_broker", "no_master", "unwritable")),
    )
    return named.select(*TOPICS_AT_RISK.columns)


def _microseconds(risk: str) -> Column:
    return F.aggregate(
        F.filter("periods", lambda period: period[risk]),
        F.lit(0).cast("long"),
        lambda total, period: total + period["to_us"] - period["from_us"],
    )


def blast_radius(incidents: DataFrame, topic_intervals: DataFrame, holdings: DataFrame) -> DataFrame:
    """For each incident, the topics with queues on its brokers, and how long those had no writable queue.

    Counted from the incident's first outage until its last broker was back, or until the day's end. ``holdings`` are
    those of `holdings_at_risk`.

    One row per incident; key: ``dt``, ``incident_id``.
    """
    until = F.coalesce(F.unix_micros("back_at"), utc_days.ends(F.col("dt")))
    spans = incidents.select(
        "dt", "incident_id", "cluster", F.unix_micros("from_at").alias("since"), until.alias("until"), "members"
    )
    hit = _hit(spans, topic_intervals)
    seconds = _unwritable(hit, holdings)
    affected = hit.join(seconds, on=["dt", "incident_id", "cluster", "topic"], how="left")
    affected = affected.withColumn("lasted", F.coalesce("lasted", F.lit(0)))
    ranked = affected.withColumn(
        "place",
        F.row_number().over(Window.partitionBy("dt", "incident_id").orderBy(F.col("lasted").desc(), "topic")),
    )
    listed = F.when(F.col("place") <= MAX_NAMES, F.struct("place", "topic"))
    summed = ranked.groupBy("dt", "incident_id").agg(
        F.count("*").alias("topics_hit"),
        F.count_if(F.col("lasted") > 0).alias("topics_unwritable"),
        F.sum("lasted").alias("lasted"),
        F.sort_array(F.collect_list(listed)).alias("listed"),
    )
    each = incidents.select("dt", "incident_id").join(summed, on=["dt", "incident_id"], how="left")
    return each.select(
        "dt",
        "incident_id",
        F.coalesce("topics_hit", F.lit(0)).cast("long").alias("topics_hit"),
        F.coalesce("topics_unwritable", F.lit(0)).cast("long").alias("topics_unwritable"),
        utc_days.seconds(F.coalesce("lasted", F.lit(0))).alias("unwritable_seconds"),
        F.coalesce(F.transform("listed", lambda one: one["topic"]), F.array().cast("array<string>")).alias("topics"),
    ).select(*BLAST_RADIUS.columns)


def _hit(spans: DataFrame, topic_intervals: DataFrame) -> DataFrame:
    members = spans.select("dt", "incident_id", "cluster", "since", "until", F.inline("members"))
    holds = (F.col("from_at") <= F.col("start_at")) & (F.col("start_at") < F.col("to_at"))
    held = topic_intervals.select("dt", "cluster", "broker_name", "broker_id", "topic", "from_at", "to_at")
    joined = members.join(held, on=["dt", "cluster", "broker_name", "broker_id"], how="inner").filter(holds)
    return joined.select("dt", "incident_id", "cluster", "topic", "since", "until").distinct()


def _unwritable(hit: DataFrame, holdings: DataFrame) -> DataFrame:
    dead = holdings.withColumn("periods", F.filter("periods", lambda period: period["unwritable"]))
    named = dead.filter(F.size("periods") > 0).select("dt", "cluster", F.explode("topics").alias("topic"), "periods")
    joined = hit.join(named, on=["dt", "cluster", "topic"], how="inner")
    overlap = F.aggregate(
        "periods",
        F.lit(0).cast("long"),
        lambda total, period: (
            total
            + F.greatest(
                F.lit(0).cast("long"),
                F.least(period["to_us"], F.col("until")) - F.greatest(period["from_us"], F.col("since")),
            )
        ),
    )
    return joined.select("dt", "incident_id", "cluster", "topic", overlap.alias("lasted"))
