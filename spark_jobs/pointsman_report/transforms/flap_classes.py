"""The class of each broker on each day, and the likely cause of a bad one.

`causes`: the likely cause of a broker's outages on a day, and a short text with the evidence.

The first that applies: restart_loop (new processes at a regular period); the cause of most of its outages
(`outage_causes`); deploy (a new version just after most outages and restarts); network (name servers disagreed for at
least a minute); overload (late heartbeats before most outages); planned (mostly planned shutdowns). Otherwise unknown.

`flapping`: the class of each broker on each day, and the numbers behind it.

The first that applies: dead, chronic, flapping, unseen, retired, unwatched, degraded, new, healthy (`meanings` in the
report says what each is).
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pointsman_report.parameters import FlapParameters
from pointsman_report.schemas import INSTANCE
from pointsman_report.schemas.flapping_tables import FLAPPING
from pointsman_report.transforms import utc_days
from pointsman_report.transforms.broker_intervals import began_on_its_day
from pointsman_report.transforms.known_days import known_days
from pointsman_report.transforms.outage_causes import PLANNED, UNKNOWN

LOOP_RESTARTS = 4
"""With fewer restarts a regular period cannot be distinguished from chance."""
LOOP_GAPS_NEAR_MEDIAN = 0.75
"""This share of the gaps lies within a quarter of the median gap; about one in six random gaps does. Unlike the
variance, this tolerates one long gap between two loops of a day."""
DEPLOY_WITHIN = 900 * utc_days.SECOND
"""A new version shows when the broker registers again: within the time that a slow start takes."""
LATE_WITHIN = 600 * utc_days.SECOND
"""Heartbeats are late until the broker goes down; it is removed two minutes after the last of them."""
VIEWS_DIFFER = 60 * utc_days.SECOND
"""Name servers see a without_text broker expire within seconds of each other."""
MIN_VIEWS = 2

_BROKER = ("dt", *INSTANCE)
_PROBLEMS = ("outage", "restart", "leave")
UNSEEN_DAYS = 7
"""A broker without any opinion for longer is dropped from the day's tables; its state is kept."""


def moments(outages: DataFrame, charges: DataFrame, intervals: DataFrame, changes: DataFrame) -> DataFrame:
    """Events of each broker: ``at``, ``kind``, ``says``. ``charges`` are those of the table.

    One row per event; no key, because two charges may be equal.
    """
    fell = outages.select(*_BROKER, "at", F.lit("outage").alias("kind"))
    signs = charges.select(*_BROKER, F.unix_micros("charged_at").alias("at"), _kind_of_sign().alias("kind"))
    leaves = intervals.filter(F.col("planned") & began_on_its_day())
    left = leaves.select(*_BROKER, F.unix_micros("start_at").alias("at"), F.lit("leave").alias("kind"))
    changed = changes.filter(F.col("what").isin("version", "incarnation"))
    hour = F.date_format("changed_at", "HH:mm'Z'")
    new = changed.select(
        *_BROKER,
        F.unix_micros("changed_at").alias("at"),
        F.col("what").alias("kind"),
        F.concat_ws(" ", "before", F.lit("to"), "after", F.lit("at"), hour).alias("says"),
    )
    without_text = fell.unionByName(signs.filter("kind is not null")).unionByName(left)
    return without_text.withColumn("says", F.lit(None).cast("string")).unionByName(new)


def causes(moments: DataFrame, partial_views: DataFrame, outage_causes: DataFrame) -> DataFrame:
    """``cause`` and ``cause_says`` of each broker and day with an outage, a restart or a planned shutdown.

    One row per broker and day; key: ``dt``, instance.
    """
    kind, at = F.col("kind"), F.col("at")
    problem = kind.isin(*_PROBLEMS)
    timeline = Window.partitionBy(*_BROKER).orderBy("at", F.when(problem, 0).otherwise(1), "kind")
    to_here = timeline.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    marked = moments.withColumns(
        {
            "after_late": at - F.last(F.when(kind == "late", at), ignorenulls=True).over(to_here),
            "after_problem": at - F.last(F.when(problem, at), ignorenulls=True).over(to_here),
        }
    )
    fell = kind == "outage"
    deployed = (kind == "version") & (F.col("after_problem") <= DEPLOY_WITHIN)
    summed = marked.groupBy(*_BROKER).agg(
        _count(problem).alias("problems"),
        _count(fell).alias("outages"),
        _count(kind == "leave").alias("leaves"),
        _count(fell & (F.col("after_late") <= LATE_WITHIN)).alias("late"),
        _count(deployed).alias("deployed"),
        F.min_by("says", F.when(deployed, F.struct("at", "says"))).alias("version"),
        F.sort_array(F.collect_list(F.when(kind == "incarnation", at))).alias("starts"),
    )
    differed = F.unix_micros("to_at") - F.unix_micros("from_at")
    views = partial_views.filter(differed >= VIEWS_DIFFER).groupBy(*_BROKER).agg(F.count("*").alias("views"))
    known = summed.filter(F.col("problems") > 0).join(views, on=list(_BROKER), how="left")
    with_most = known.join(_of_most_outages(outage_causes), on=list(_BROKER), how="left").fillna({"views": 0})
    likely = with_most.withColumn("likely", _likely())
    return likely.select(*_BROKER, F.col("likely.cause").alias("cause"), F.col("likely.says").alias("cause_says"))


def _of_most_outages(outage_causes: DataFrame) -> DataFrame:
    """``most``: the cause that most of the day's unplanned outages have, how many have it, and one's evidence."""
    began = outage_causes.filter((F.to_date("start_at") == F.col("dt")) & ~F.col("planned"))
    counted = began.groupBy(*_BROKER, "cause").agg(
        F.count("*").alias("count"), F.min_by("evidence", "start_at").alias("evidence")
    )
    known = F.struct("count", "cause", "evidence")
    return counted.groupBy(*_BROKER).agg(F.max_by(known, F.struct("count", "cause")).alias("most"))


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
    known = (F.col("most.count") * 2 > fell) & ~F.col("most.cause").isin(UNKNOWN, PLANNED)
    late = _most("late", fell)
    at_odds = (fell > 0) & (views >= F.greatest(fell, F.lit(MIN_VIEWS)))
    return (
        F.when(loops, _cause(F.lit("restart_loop"), restarts))
        .when(known, _cause(F.col("most.cause"), F.concat(_of(F.col("most.count")), F.lit(": "), "most.evidence")))
        .when(_most("deployed", F.col("problems")), _cause(F.lit("deploy"), F.col("version")))
        .when(
            at_odds,
            _cause(
                F.lit("network"), F.concat(views.cast("string"), F.lit(" times only some name servers saw it down"))
            ),
        )
        .when(late, _cause(F.lit("overload"), F.concat(F.lit("late heartbeats before "), _of(F.col("late")))))
        .when(_most("leaves", F.col("problems")), _cause(F.lit(PLANNED), _leaves()))
        .otherwise(_cause(F.lit(UNKNOWN), F.col("most.evidence")))
    )


def _cause(name: Column, says: Column) -> Column:
    return F.struct(name.alias("cause"), says.alias("says"))


def _most(counted: str, of: Column) -> Column:
    return F.col(counted) * 2 > of


def _count(condition: Column) -> Column:
    return F.count(F.when(condition, 1))


def _of(count: Column) -> Column:
    """3 of 4 outages."""
    outages = F.when(F.col("outages") == 1, F.lit(" outage")).otherwise(F.lit(" outages"))
    return F.concat(count.cast("string"), F.lit(" of "), F.col("outages").cast("string"), outages)


def _leaves() -> Column:
    once = F.col("leaves") == 1
    return F.when(once, "one planned shutdown").otherwise(F.format_string("%d planned shutdowns", "leaves"))


def _duration(microseconds: Column) -> Column:
    seconds = F.round(microseconds / utc_days.SECOND).cast("long")
    minutes = F.round(microseconds / (60 * utc_days.SECOND)).cast("long")
    return F.when(seconds < 600, F.concat(seconds.cast("string"), F.lit(" s"))).otherwise(
        F.concat(minutes.cast("string"), F.lit(" min"))
    )


def flapping(spans: DataFrame, blind_periods: DataFrame, *, parameters: FlapParameters) -> DataFrame:
    """Classify each broker and day of `known_days.spans`, which have all facts about a broker's day.

    One row per broker that was seen in the last week, and day; key: ``dt``, instance.
    """
    # A name server that serves only other clusters proves nothing; one that knows a neighbour would know this broker
    # too.
    with_state = spans.filter(F.col("current").isNotNull()).select("cluster", "dt", "last_on").distinct()
    held_on = F.explode(utc_days.days_between(F.col("dt"), F.col("last_on"))).alias("dt")
    # Unless its guard was on: then it knows only the brokers that re-registered.
    guarded = blind_periods.filter(F.col("open") & F.col("cluster").isNotNull()).select("dt", "cluster").distinct()
    watched = with_state.select("cluster", held_on).distinct().join(guarded, on=["dt", "cluster"], how="left_anti")
    watched = F.broadcast(watched.withColumn("watched_at_end", F.lit(True)))
    # Known brokers stay known, so this is the same day for all.
    began = F.broadcast(spans.agg(F.min("first_seen_on").alias("history_began_on")))
    days = known_days(spans, parameters=parameters)
    joined = days.join(watched, on=["dt", "cluster"], how="left").fillna({"watched_at_end": False})
    joined = joined.crossJoin(began)
    recent = joined.filter(F.datediff("dt", "last_seen_on") <= UNSEEN_DAYS).withColumn(
        "flapped_days", F.size("flapped_on")
    )
    outages, in_incidents = (F.coalesce(name, F.lit(0)) for name in ("outages", "incident_downs"))
    classed = recent.withColumns(
        {
            "class": _class(parameters),
            "down_count": outages,
            "incident_downs": in_incidents,
            "sign_count": F.col("charge_count") - (outages - in_incidents),
            "percent_state_change": F.coalesce("percent_state_change", F.lit(0.0)),
        }
    )
    return classed.select(*FLAPPING.columns)


def _class(parameters: FlapParameters) -> Column:
    open_since = utc_days.ends(F.col("dt")) - F.unix_micros("current.start_at")
    long_ago = open_since > int(parameters.dead_after_hours * 3_600 * utc_days.SECOND)
    is_down = F.col("current.state") == "down"
    unknown = F.col("current").isNull() & F.col("watched_at_end")
    return (
        F.when(is_down & ~F.col("current.planned") & long_ago, "dead")
        .when(F.col("flapped_days") >= parameters.chronic_days, "chronic")
        .when(F.col("raised") | F.col("flagged_start"), "flapping")
        .when(unknown & (F.col("last_state") != "left"), "unseen")
        .when((is_down & F.col("current.planned") & long_ago) | (unknown & (F.col("last_state") == "left")), "retired")
        .when(~F.coalesce(F.col("watched_seconds") > 0, F.lit(False)), "unwatched")
        .when((F.col("down_seconds") > 0) | (F.col("charged_points") >= parameters.degraded_points), "degraded")
        .when((F.col("first_seen_on") == F.col("dt")) & (F.col("history_began_on") < F.col("dt")), "new")
        .otherwise("healthy")
    )
