"""Who of a topic's brokers was up when, swept once for all topics that the same brokers held at the same times.

A hundred thousand topics on ten brokers are one such holding, and so is a topic on ten thousand brokers. Only holdings
of which a broker was down or away on the day are swept, and those of slaves without a master.

A master counts as holding a topic for writing where it has write queues and the write permission. A slave counts while
its own master is down or away, or was never up on that day: else it is the master's word that is in the routes. Time
counts where the state of every master that holds the topic is known.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pointsman_report.schemas import INSTANCE
from pointsman_report.transforms import days

PERM_WRITE = 2
MASTER_ID = 0
_HOLDING = ("dt", "cluster", "holding")
_COUNTS = ("writers", "writers_up", "writers_down", "readers", "readers_down", "slaves_up")


def holdings(topic_intervals: DataFrame, broker_intervals: DataFrame) -> DataFrame:
    """Each holding that may have been at risk: ``dt``, ``cluster``, ``holding`` (its number), ``topics`` (names), and
    ``holders``, who held them from when to when."""
    is_trouble = (F.col("state") == "down") | (F.col("broker_id") != MASTER_ID)
    troubled = _states(broker_intervals).filter(is_trouble).select("dt", *INSTANCE).distinct()
    marked = topic_intervals.join(troubled.withColumn("missed", F.lit(True)), on=["dt", *INSTANCE], how="left")
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
    begin, end = days.starts(F.col("dt")), days.ends(F.col("dt"))
    steady = F.filter(
        "holders",
        lambda one: one["writes"] & ~one["missed"] & (one["from_us"] == begin) & (one["to_us"] == end),
    )
    # Two masters that held it all day and were never missed: whatever befell the others, it was not at risk.
    doubtful = by_topic.filter(F.exists("holders", lambda one: one["missed"]) & (F.size(steady) < 2))
    in_order = doubtful.withColumn("holders", F.sort_array("holders"))
    named = in_order.withColumn("holding", F.xxhash64("holders"))
    return named.groupBy(*_HOLDING).agg(
        F.sort_array(F.collect_list("topic")).alias("topics"), F.first("holders").alias("holders")
    )


def holdings_at_risk(holdings: DataFrame, broker_intervals: DataFrame) -> DataFrame:
    """One row for each of the `holdings` with a time of risk.

    Columns: ``dt``, ``cluster``, ``topics`` (names), ``brokers`` (masters that held them for writing), ``periods``:
    array of ``from_us``, ``to_us``, ``one_broker``, ``no_master``, ``unwritable``, in order.
    """
    holders = holdings.select(*_HOLDING, F.inline("holders")).drop("missed")
    periods = _periods(_counted(_steps(holders, _states(broker_intervals))))
    joined = _topics(holdings).join(periods, on=list(_HOLDING), how="inner")
    return joined.select("dt", "cluster", "topics", "brokers", "periods")


def _states(broker_intervals: DataFrame) -> DataFrame:
    """The masters' intervals, cut to the day; of the slaves the times in which they were up and their masters not."""
    start = F.greatest(F.unix_micros("start_at"), days.starts(F.col("dt")))
    cut = broker_intervals.select(
        "dt", *INSTANCE, "state", start.alias("state_from"), F.unix_micros("end_at").alias("state_to")
    ).filter(F.col("state_from") < F.col("state_to"))
    masters, slaves = (
        cut.filter(which) for which in (F.col("broker_id") == MASTER_ID, F.col("broker_id") != MASTER_ID)
    )
    group, up = ["dt", "cluster", "broker_name"], slaves.filter(F.col("state") == "up")
    seen_up = masters.filter(F.col("state") == "up").select(*group).distinct()
    without = up.join(seen_up, on=group, how="left_anti")
    gone = masters.filter(F.col("state") == "down").join(seen_up, on=group, how="left_semi")
    missed = gone.select(*group, F.col("state_from").alias("gone_from"), F.col("state_to").alias("gone_to"))
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
    """What each count gains or loses at which instant."""
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
    at_once = [F.sum(F.when(which, F.col("gain")).otherwise(0)).alias(name) for name, which in gains.items()]
    return steps.groupBy(*_HOLDING, "at").agg(*at_once)


def _counted(steps: DataFrame) -> DataFrame:
    """The counts from each instant to the next."""
    story = Window.partitionBy(*_HOLDING).orderBy("at")
    to_here = story.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    counts = {name: F.sum(name).over(to_here) for name in _COUNTS}
    return steps.select(
        *_HOLDING, "at", F.lead("at").over(story).alias("until"), *(count.alias(name) for name, count in counts.items())
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
