"""The likely cause of a broker's bad day, and the evidence for it in a few words.

The first that holds, of: restart_loop (new processes at a regular period), deploy (a new version just after most of
its troubles), network (most outages together with others', or name servers that disagreed for long), overload (late
beats before most outages), planned (most troubles were polite leaves). None of them is proof.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from spark_jobs.schemas import INSTANCE
from spark_jobs.transforms import days
from spark_jobs.transforms.liveness.availability import began_on_its_day

LOOP_RESTARTS = 4
"""Fewer restarts have too few gaps to tell a period from chance."""
LOOP_GAPS_NEAR_MEDIAN = 0.75
"""So many gaps lie within a quarter of the median gap; of gaps by chance about one in six does. Unlike their variance
this bears the one long gap between two loops of a day."""
DEPLOY_WITHIN = 900 * days.SECOND
"""A new version shows when the broker registers again: within the time that a slow start takes."""
LATE_WITHIN = 600 * days.SECOND
"""Beats are late until the broker falls; it counts as fallen two minutes after the last of them."""
VIEWS_DIFFER = 60 * days.SECOND
"""Name servers see a silent broker expire within seconds of each other."""
FEWEST_VIEWS = 2

_BROKER = ("dt", *INSTANCE)
_TROUBLES = ("outage", "shared", "restart", "leave")


def moments(
    outages: DataFrame, members: DataFrame, charges: DataFrame, intervals: DataFrame, changes: DataFrame
) -> DataFrame:
    """What happened to each broker and when: ``at``, ``kind``, ``says``. ``charges`` are those of the table."""
    shared = members.select(*_BROKER, "at").distinct().withColumn("kind", F.lit("shared"))
    fell = outages.select(*_BROKER, "at").join(shared, on=[*_BROKER, "at"], how="left")
    signs = charges.select(*_BROKER, F.unix_micros("charged_at").alias("at"), _kind_of_sign().alias("kind"))
    leaves = intervals.filter(F.col("planned") & began_on_its_day())
    gone = leaves.select(*_BROKER, F.unix_micros("start_at").alias("at"), F.lit("leave").alias("kind"))
    told = changes.filter(F.col("what").isin("version", "incarnation"))
    hour = F.date_format("changed_at", "HH:mm'Z'")
    new = told.select(
        *_BROKER,
        F.unix_micros("changed_at").alias("at"),
        F.col("what").alias("kind"),
        F.concat_ws(" ", "before", F.lit("to"), "after", F.lit("at"), hour).alias("says"),
    )
    silent = fell.fillna({"kind": "outage"}).unionByName(signs.filter("kind is not null")).unionByName(gone)
    return silent.withColumn("says", F.lit(None).cast("string")).unionByName(new)


def causes(moments: DataFrame, partial_views: DataFrame) -> DataFrame:
    """``cause`` and ``cause_says`` of each broker and day with an outage, a restart or a leave."""
    kind, at = F.col("kind"), F.col("at")
    trouble = kind.isin(*_TROUBLES)
    # At one instant the trouble comes first: a restart and its new version are one row of history.
    story = Window.partitionBy(*_BROKER).orderBy("at", F.when(trouble, 0).otherwise(1), "kind")
    to_here = story.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    looked_back = moments.withColumns(
        {
            "after_late": at - F.last(F.when(kind == "late", at), ignorenulls=True).over(to_here),
            "after_trouble": at - F.last(F.when(trouble, at), ignorenulls=True).over(to_here),
        }
    )
    fell = kind.isin("outage", "shared")
    deployed = (kind == "version") & (F.col("after_trouble") <= DEPLOY_WITHIN)
    summed = looked_back.groupBy(*_BROKER).agg(
        _count(trouble).alias("troubles"),
        _count(fell).alias("outages"),
        _count(kind == "shared").alias("shared"),
        _count(kind == "leave").alias("leaves"),
        _count(fell & (F.col("after_late") <= LATE_WITHIN)).alias("late"),
        _count(deployed).alias("deployed"),
        F.min_by("says", F.when(deployed, F.struct("at", "says"))).alias("version"),
        F.sort_array(F.collect_list(F.when(kind == "incarnation", at))).alias("starts"),
    )
    differed = F.unix_micros("to_at") - F.unix_micros("from_at")
    views = partial_views.filter(differed >= VIEWS_DIFFER).groupBy(*_BROKER).agg(F.count("*").alias("views"))
    told = summed.filter(F.col("troubles") > 0).join(views, on=list(_BROKER), how="left").fillna({"views": 0})
    likely = told.withColumn("likely", _likely())
    return likely.select(*_BROKER, F.col("likely.cause").alias("cause"), F.col("likely.says").alias("cause_says"))


def _kind_of_sign() -> Column:
    cause = F.col("cause")
    return F.when(cause == "RESTARTED", "restart").when(cause.isin("LATE_HEARTBEAT", "RECOVERED"), "late")


def _likely() -> Column:
    gap = F.transform(
        F.sequence(F.lit(2), F.greatest(F.size("starts"), F.lit(2))),
        lambda n: F.try_element_at("starts", n) - F.try_element_at("starts", n - 1),
    )
    gaps = F.sort_array(gap)
    median = F.try_element_at(gaps, (F.size(gaps) / 2).cast("int") + 1)
    near = F.size(F.filter(gaps, lambda one: F.abs(one - median) * 4 <= median))
    loops = (F.size("starts") >= LOOP_RESTARTS) & (near >= F.size(gaps) * F.lit(LOOP_GAPS_NEAR_MEDIAN))
    restarts = F.concat(F.size("starts").cast("string"), F.lit(" restarts, every "), _duration(median))
    fell, views = F.col("outages"), F.col("views")
    together, late = _most("shared", fell), _most("late", fell)
    at_odds = (fell > 0) & (views >= F.greatest(fell, F.lit(FEWEST_VIEWS)))
    return (
        F.when(loops, _cause("restart_loop", restarts))
        .when(_most("deployed", F.col("troubles")), _cause("deploy", F.col("version")))
        .when(together, _cause("network", F.concat(_of("shared"), F.lit(" together with other brokers'"))))
        .when(at_odds, _cause("network", F.concat(views.cast("string"), F.lit(" times only some name servers saw it"))))
        .when(late, _cause("overload", F.concat(F.lit("late beats before "), _of("late"))))
        .when(_most("leaves", F.col("troubles")), _cause("planned", _leaves()))
    )


def _cause(name: str, says: Column) -> Column:
    return F.struct(F.lit(name).alias("cause"), says.alias("says"))


def _most(counted: str, of: Column) -> Column:
    return F.col(counted) * 2 > of


def _count(condition: Column) -> Column:
    return F.count(F.when(condition, 1))


def _of(counted: str) -> Column:
    """3 of 4 outages."""
    outages = F.when(F.col("outages") == 1, F.lit(" outage")).otherwise(F.lit(" outages"))
    return F.concat(F.col(counted).cast("string"), F.lit(" of "), F.col("outages").cast("string"), outages)


def _leaves() -> Column:
    once = F.col("leaves") == 1
    return F.when(once, "took leave once").otherwise(F.format_string("took leave %d times", "leaves"))


def _duration(microseconds: Column) -> Column:
    seconds = F.round(microseconds / days.SECOND).cast("long")
    minutes = F.round(microseconds / (60 * days.SECOND)).cast("long")
    return F.when(seconds < 600, F.concat(seconds.cast("string"), F.lit(" s"))).otherwise(
        F.concat(minutes.cast("string"), F.lit(" min"))
    )
