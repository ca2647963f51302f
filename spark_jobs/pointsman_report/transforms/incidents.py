"""Outages of several brokers: incidents (at the same time) and rolling restarts (one after another).

`places`: zone and host of each broker: the scopes of an incident.

A host is part of its zone, and a zone part of its cluster. A broker without zone and host labels belongs to its cluster
only.

`episodes`: periods with more brokers of one host, zone or cluster down at the same moment than chance explains.

A sweep over time: each outage counts from its start to its end, at most for `within_seconds`, so that a broker that has
been down for hours is not part of a new incident. A shorter outage counts for `tolerance_seconds`, because sweeps
detect outages of the same moment that much apart. The cost is one sort of each scope's day.

`incidents`: several brokers down at the same moment: one incident of the narrowest of host, zone and cluster that
explains it.

A narrower scope explains the episode of a wider one if it has an incident itself, and the other outages of the episode
are no more than chance, or a few strays. An outage belongs to at most one incident, and an incident to one UTC day: an
incident over midnight becomes two. Outages one after another are not an incident (`rolling_restarts`).

`rolling_restarts`: brokers of a cluster that went down one after another, each one back before the next went down.

Only restarts count: a new process or version came back, or the shutdown was planned. A broker that goes down twice is
flapping and is not part of the sequence. An outage that overlaps the one before or spans several others is not part of
it either, and does not end it. Outages of an incident belong to the incident.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F

from pointsman_report.parameters import IncidentParameters
from pointsman_report.schemas import INSTANCE
from pointsman_report.schemas.flapping_tables import INCIDENTS, ROLLING_RESTARTS
from pointsman_report.transforms import utc_days
from pointsman_report.transforms.broker_intervals import began_on_its_day, is_outage
from pointsman_report.transforms.outage_causes import NEW, SAME

SCOPE = ("dt", "cluster", "scope", "scope_name")
_OUTAGE = ("dt", *INSTANCE, "at")

STRAYS = 4
"""One outage elsewhere per four outages of a host or zone does not widen the incident to the zone or cluster."""
_CLUSTER = ("dt", "cluster")
_RUN_KEY = (*_CLUSTER, "version")

LONGEST_RESTART = 900 * utc_days.SECOND
"""A broker that is down for longer is not a step of a rolling restart."""


def places(availability: DataFrame, facts: DataFrame) -> DataFrame:
    """Columns: ``dt``, instance, ``zone``, ``host``; each broker monitored on the day.

    One row per broker and day; key: ``dt``, instance.
    """
    named = facts.select(
        "dt", *INSTANCE, *(F.nullif(F.col(place), F.lit("")).alias(place) for place in ("zone", "host"))
    )
    return availability.select("dt", *INSTANCE).join(named, on=["dt", *INSTANCE], how="left")


def by_scope(placed: DataFrame) -> DataFrame:
    """Repeat each row for its broker's cluster, zone and host, if known: ``scope``, ``scope_name``.

    One row per row given and scope; key: that of the rows, ``scope``.
    """
    scopes = F.array(
        *(
            F.struct(F.lit(scope).alias("scope"), F.col(scope).alias("scope_name"))
            for scope in ("cluster", "zone", "host")
        )
    )
    return placed.select("*", F.inline(scopes)).filter(F.col("scope_name").isNotNull())


def brokers_by_scope(placed: DataFrame) -> DataFrame:
    """``known_brokers`` of each host, zone and cluster.

    One row per scope and day; key: ``dt``, ``cluster``, ``scope``, ``scope_name``.
    """
    return by_scope(placed).groupBy(*SCOPE).agg(F.count("*").alias("known_brokers"))


def episodes(outages: DataFrame, *, parameters: IncidentParameters) -> DataFrame:
    """The outages that belong to an episode, with its start ``from_us``; ``bound`` and ``usual`` of its scope's day.

    ``outages`` has the columns of `SCOPE`, a broker, ``at`` and ``down_us``; all its columns are kept. An episode is a
    time during which enough brokers of the scope are down; an outage that touches two belongs to the first. ``bound``:
    the highest number of brokers that chance explains at one moment; ``usual``: the number that is common.

    One row per outage and scope; key: `SCOPE`, the broker, ``at``.
    """
    moments = _moments(_counted(outages, parameters))
    scope = Window.partitionBy(*SCOPE)
    by_count = F.sum("gain_us").over(scope) / F.lit(float(utc_days.DAY))
    by_union = F.sum("busy_us").over(scope) / F.lit(float(utc_days.DAY))
    bounded = moments.withColumn("mean", _mean(by_count, by_union)).withColumns(
        {"bound": _above_mean(parameters.sigmas), "usual": _above_mean(1.0)}
    )
    high = is_more_than_chance(F.col("down"), F.col("bound"), parameters)
    timeline = scope.orderBy("point", "gain")
    so_far = timeline.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    rose = bounded.withColumn("high", high).withColumn("was_high", F.lag("high", 1, False).over(timeline))
    sank = F.last(F.when(~F.col("high") & F.col("was_high"), F.col("point")), ignorenulls=True).over(so_far)
    # A drop no longer than the difference between sweeps does not end the episode.
    is_another = F.coalesce(F.col("point") - sank > _microseconds(parameters.tolerance_seconds), F.lit(True))
    rises = F.col("high") & ~F.col("was_high")
    begun = rose.withColumn("begins", F.when(rises & is_another, F.col("point")))
    current = F.last("begins", ignorenulls=True).over(so_far)
    numbered = begun.withColumn("current", current).withColumn("rise", F.when(rises, F.struct("point", "current")))
    # Sorted again, backwards: a frame that ends with the partition costs the square of its rows.
    backwards = scope.orderBy(F.desc("point"), F.desc("gain")).rowsBetween(Window.unboundedPreceding, -1)
    ahead = numbered.withColumn("next_rise", F.last("rise", ignorenulls=True).over(backwards))
    is_down_then = F.col("next_rise.point") < F.col("until")
    reached = F.when(F.col("high"), F.col("current")).when(is_down_then, F.col("next_rise.current"))
    placed = ahead.withColumn("from_us", reached).filter((F.col("gain") > 0) & F.col("from_us").isNotNull())
    return placed.select(*outages.columns, "from_us", "bound", "usual")


def is_more_than_chance(brokers: Column, bound: Column, parameters: IncidentParameters) -> Column:
    """Whether this number of brokers is enough, and above what chance explains."""
    return (brokers >= parameters.brokers) & (brokers > bound)


def _microseconds(seconds: float) -> int:
    return int(seconds * utc_days.SECOND)


def _counted(outages: DataFrame, parameters: IncidentParameters) -> DataFrame:
    """Add ``until``: the time until which an outage counts, at most to the next outage of the broker."""
    tolerance, within = map(_microseconds, (parameters.tolerance_seconds, parameters.within_seconds))
    broker = Window.partitionBy(*SCOPE, "broker_name", "broker_id").orderBy("at")
    lasts = F.least(F.greatest("down_us", F.lit(tolerance)), F.lit(within))
    # least() skips the null of a broker's last outage.
    return outages.withColumn("until", F.least(F.col("at") + lasts, F.lead("at").over(broker)))


def _moments(counted: DataFrame) -> DataFrame:
    """Two rows for each outage, its start and its end, with the brokers ``down`` from that ``point`` on.

    ``gain_us``: how long the outage counts. ``busy_us``: until the next point, where any broker is down.
    """
    points = F.array(
        F.struct(F.col("at").alias("point"), F.lit(1).alias("gain")),
        F.struct(F.col("until").alias("point"), F.lit(-1).alias("gain")),
    )
    moments = counted.select("*", F.inline(points))
    scope = Window.partitionBy(*SCOPE)
    # By range: everything at one instant counts together, so that a broker that recovers when the next one goes down
    # does not overlap with it.
    to_here = scope.orderBy("point").rangeBetween(Window.unboundedPreceding, Window.currentRow)
    down = moments.withColumn("down", F.sum("gain").over(to_here))
    until_next = F.coalesce(F.lead("point").over(scope.orderBy("point", "gain")) - F.col("point"), F.lit(0))
    return down.withColumns(
        {
            "busy_us": F.when(F.col("down") > 0, until_next).otherwise(F.lit(0)),
            "gain_us": F.when(F.col("gain") > 0, F.col("until") - F.col("at")).otherwise(F.lit(0)),
        }
    )


def _mean(by_count: Column, by_union: Column) -> Column:
    """The mean number of brokers down at one moment.

    The mean by count includes an incident with all its brokers. The mean by the share of time without a broker down
    includes it once, but is undefined if there is no such time. The smaller of the two applies.
    """
    by_empty = F.when(by_union < 1, -F.log1p(-by_union))
    return F.least(by_count, by_empty)


def _above_mean(sigmas: float) -> Column:
    return F.col("mean") + F.lit(float(sigmas)) * F.sqrt("mean")


def outages(intervals: DataFrame) -> DataFrame:
    """The outages that began on their day: ``at``, ``heard_us`` (the last heartbeat, if known), ``down_us``, and
    ``back_us`` if the recovery was observed.

    One row per outage; key: ``dt``, instance, ``at``, which outages of one moment may share.
    """
    began = intervals.filter(is_outage() & began_on_its_day())
    end = F.unix_micros("end_at")
    return began.withColumns(
        {
            "at": F.unix_micros("start_at"),
            "heard_us": F.unix_micros("last_sign_of_life_at"),
            "down_us": end - F.unix_micros("start_at"),
            "back_us": F.when(~F.col("end_censored"), end),
        }
    ).select(*_OUTAGE, "event", "heard_us", "down_us", "back_us")


def members(outages_of_day: DataFrame, places: DataFrame, *, parameters: IncidentParameters) -> DataFrame:
    """The outages that belong to an incident: the columns of `outages`, the scope and ``incident_id``.

    Only the first outage of each broker: a broker that goes down again during the incident is flapping.

    One row per outage; key: ``dt``, instance, ``at``, which outages of one moment may share.
    """
    placed = (
        outages_of_day.select(*_OUTAGE, "down_us")
        .dropDuplicates([*_OUTAGE])
        .join(places, on=["dt", *INSTANCE], how="left")
    )
    # All following steps partition by at least day and cluster: without this each of them would shuffle again.
    placed = placed.repartition("dt", "cluster")
    found = _narrowest(_in_episodes(placed, parameters), parameters)
    whole = found.filter("is_first").filter(is_more_than_chance(F.col("brokers"), F.col("bound"), parameters))
    first_us = F.min("at").over(Window.partitionBy(*SCOPE, "from_us"))
    began_at = F.date_format(F.timestamp_micros(first_us), "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'")
    named = whole.withColumn("incident_id", F.concat_ws("/", "cluster", "scope", "scope_name", began_at))
    return outages_of_day.join(
        named.select(*_OUTAGE, "scope", "scope_name", "incident_id"), on=list(_OUTAGE), how="inner"
    )


def incidents(members: DataFrame, places: DataFrame, causes: DataFrame) -> DataFrame:
    """Sum the outages of each incident (`members`); ``causes`` are those of `incident_causes`.

    One row per incident; key: ``dt``, ``incident_id``.
    """
    member = F.struct("broker_name", "broker_id", F.timestamp_micros("at").alias("start_at"))
    summed = members.groupBy(*SCOPE, "incident_id").agg(
        F.timestamp_micros(F.min(F.struct("at", "heard_us"))["heard_us"]).alias("last_heard_at"),
        F.timestamp_micros(F.min("at")).alias("from_at"),
        F.timestamp_micros(F.max("at")).alias("to_at"),
        F.when(F.bool_and(F.col("back_us").isNotNull()), F.timestamp_micros(F.max("back_us"))).alias("back_at"),
        F.count("*").alias("brokers"),
        F.sort_array(F.collect_list(member)).alias("members"),
        utc_days.seconds(F.sum("down_us")).alias("down_seconds"),
    )
    known = summed.join(brokers_by_scope(places), on=list(SCOPE), how="left")
    known = known.join(causes, on=["dt", "incident_id"], how="left")
    return known.select(*INCIDENTS.columns)


def _in_episodes(placed: DataFrame, parameters: IncidentParameters) -> DataFrame:
    """Each outage of an episode, with the episodes of its cluster, zone and host: ``<scope>_from``, ``_bound``,
    ``_usual``."""
    within = episodes(by_scope(placed), parameters=parameters)
    each = {
        f"{scope}_{name}": F.max(F.when(F.col("scope") == scope, F.col(column)))
        for scope in ("cluster", "zone", "host")
        for name, column in (("from", "from_us"), ("bound", "bound"), ("usual", "usual"))
    }
    return within.groupBy(*_OUTAGE, "zone", "host").agg(*(column.alias(name) for name, column in each.items()))


def _narrowest(found: DataFrame, parameters: IncidentParameters) -> DataFrame:
    """Select one scope for each outage: ``scope``, ``scope_name``, ``from_us``, ``brokers`` that share it."""
    has_zone = F.col("zone").isNotNull()
    within_cluster = F.when(has_zone, F.concat(F.lit("zone/"), "zone")).otherwise(F.concat(F.lit("host/"), "host"))
    within_bound = F.when(has_zone, F.col("zone_bound")).otherwise(F.col("host_bound"))
    rows = found.withColumns({"narrower": within_cluster, "narrower_bound": within_bound})
    rows = _assign_scope(rows, "cluster", ("dt", "cluster", "cluster_from"), parameters)
    rows = rows.withColumns(
        {
            "zone_from": F.when(F.col("in_cluster"), None).otherwise(F.col("zone_from")),
            "narrower": F.col("host"),
            "narrower_bound": F.col("host_bound"),
        }
    )
    rows = _assign_scope(rows, "zone", ("dt", "cluster", "zone", "zone_from"), parameters)
    taken = F.col("in_cluster") | F.col("in_zone")
    rows = rows.withColumn("in_host", ~taken & F.col("host_from").isNotNull())
    chosen = rows.select(
        *_OUTAGE,
        _of_its_scope("'{scope}'").alias("scope"),
        _of_its_scope("{scope}").alias("scope_name"),
        _of_its_scope("{scope}_from").alias("from_us"),
        _of_its_scope("{scope}_bound").alias("bound"),
    ).filter(F.col("scope").isNotNull())
    incident = (*SCOPE, "from_us")
    first = chosen.withColumn("is_first", _is_first_of_its_broker(incident))
    return first.withColumn("brokers", _count("is_first", Window.partitionBy(*incident)))


def _assign_scope(rows: DataFrame, scope: str, window: tuple[str, ...], parameters: IncidentParameters) -> DataFrame:
    """Add ``in_<scope>``: the outage is in an episode of that scope that no narrower scope explains."""
    first = rows.withColumn("is_first", _is_first_of_its_broker(window))
    fell = _count("is_first", Window.partitionBy(*window))
    fell_within = _count("is_first", Window.partitionBy(*window, "narrower"))
    counted = first.withColumns({"fell": fell, "fell_within": fell_within})
    itself = is_more_than_chance(F.col("fell_within"), F.col("narrower_bound"), parameters)
    others = F.col("fell") - F.col("fell_within")
    strays = (others < parameters.brokers) & (others * STRAYS <= F.col("fell_within"))
    explained_others = strays | (others <= F.col(f"{scope}_usual"))
    explains = F.coalesce(F.col("narrower").isNotNull() & itself & explained_others, F.lit(False))
    explained = F.max(explains).over(Window.partitionBy(*window))
    kept = counted.withColumn(f"in_{scope}", F.col(f"{scope}_from").isNotNull() & ~explained)
    return kept.drop("is_first", "fell", "fell_within")


def _of_its_scope(value: str) -> Column:
    chosen = F.expr("null")
    for scope in ("host", "zone", "cluster"):
        chosen = F.when(F.col(f"in_{scope}"), F.expr(value.format(scope=scope))).otherwise(chosen)
    return chosen


def _is_first_of_its_broker(window: tuple[str, ...]) -> Column:
    return F.row_number().over(Window.partitionBy(*window, "broker_name", "broker_id").orderBy("at")) == 1


def _count(flag: str, over: WindowSpec) -> Column:
    return F.sum(F.col(flag).cast("long")).over(over)


def rolling_outages(rows: DataFrame, *, parameters: IncidentParameters) -> DataFrame:
    """The outages that are part of a rolling restart, with its ``rolling_restart_id``; of `outages_with_facts`.

    One row per outage; key: ``dt``, ``rolling_restart_id``, instance.
    """
    is_restart = (F.col("process") == NEW) | F.col("version_after").isNotNull()
    left = F.col("planned") & F.coalesce(F.col("process") != SAME, F.lit(True))
    is_whole = F.col("end_us").isNotNull() & (F.col("start_at") == F.col("began_at"))
    began = is_whole & (F.to_date("start_at") == F.col("dt")) & F.col("incident_id").isNull()
    quick = F.col("end_us") - F.col("start_us") <= LONGEST_RESTART
    # Restarts to the same version are one deploy, whatever else restarts at the same time.
    candidates = rows.filter(began & quick & F.coalesce(is_restart | left, F.lit(False))).withColumn(
        "version", F.coalesce("version_after", F.lit(""))
    )
    # Group restarts that are near each other, drop flapping brokers, then group the sequences.
    near = _runs(candidates, _is_near(parameters))
    of_run = Window.partitionBy(*_RUN_KEY, "run", "broker_name", "broker_id")
    once = near.withColumn("times", F.count("*").over(of_run)).filter("times = 1").drop("run", "times")
    runs = _runs(_one_after_another(once), _is_near(parameters))
    run = Window.partitionBy(*_RUN_KEY, "run")
    began_at = F.date_format(F.timestamp_micros(F.min("start_us").over(run)), "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'")
    brokers = F.count("*").over(run)
    named = runs.withColumns(
        {
            "brokers": brokers,
            "rolling_restart_id": F.concat_ws("/", "cluster", began_at, F.nullif(F.col("version"), F.lit(""))),
        }
    )
    # Each outage of a run is of a different broker: flapping brokers were dropped.
    return named.filter(F.col("brokers") >= parameters.brokers).drop("run", "brokers", "version")


def rolling_restarts(members: DataFrame) -> DataFrame:
    """Sum the outages of each rolling restart. One row per rolling restart; key: ``dt``, ``rolling_restart_id``."""
    end_at = F.timestamp_micros("end_us")
    member = F.struct("start_at", end_at.alias("end_at"), "broker_name", "broker_id", "planned")
    unplanned = ~F.col("planned")
    length = F.col("end_us") - F.col("start_us")
    summed = members.groupBy(*_CLUSTER, "rolling_restart_id").agg(
        F.min("start_at").alias("from_at"),
        F.max("start_at").alias("to_at"),
        F.max(end_at).alias("back_at"),
        F.count("*").alias("brokers"),
        F.count(F.when(unplanned, 1)).alias("unplanned"),
        F.mode("version_before").alias("version_before"),
        F.mode("version_after").alias("version_after"),
        utc_days.seconds(F.coalesce(F.sum(F.when(unplanned, length)), F.lit(0))).alias("down_seconds"),
        F.sort_array(F.collect_list(member)).alias("members"),
    )
    return summed.select(*ROLLING_RESTARTS.columns)


def _is_near(parameters: IncidentParameters) -> Column:
    gap = int(parameters.rolling_gap_seconds * utc_days.SECOND)
    return (F.col("start_us") - F.col("back_before") <= gap) & F.lit(gap > 0)


def _one_after_another(rows: DataFrame) -> DataFrame:
    """Drop outages that are not a step: those that span several others, then those that overlap the one before."""
    timeline = Window.partitionBy(*_RUN_KEY).orderBy("start_us", "broker_name", "broker_id")
    lasting = F.coalesce(F.lead("start_us", 2).over(timeline) < F.col("end_us"), F.lit(False))
    steps = rows.withColumn("lasting", lasting).filter(~F.col("lasting")).drop("lasting")
    overlaps = F.coalesce(F.col("start_us") < F.lag("end_us").over(timeline), F.lit(False))
    return steps.withColumn("overlaps", overlaps).filter(~F.col("overlaps")).drop("overlaps")


def _runs(rows: DataFrame, continues: Column) -> DataFrame:
    """Number the runs of each cluster, day and new version; a run ends where ``continues`` is false.

    ``back_before``: the time at which all earlier outages had ended.
    """
    timeline = Window.partitionBy(*_RUN_KEY).orderBy("start_us", "broker_name", "broker_id")
    before = timeline.rowsBetween(Window.unboundedPreceding, -1)
    to_here = timeline.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    dated = rows.withColumn("back_before", F.max("end_us").over(before))
    begins = ~F.coalesce(continues, F.lit(False))
    return dated.withColumn("run", F.sum(begins.cast("long")).over(to_here)).drop("back_before")
