"""Several brokers down at the same moment: one incident of the narrowest of host, zone and cluster that explains it.

A narrower scope explains a wider one's episode when it holds an incident itself and what is left of the episode is what
chance brings, or a few strays. An outage belongs to one incident at most, an incident to one UTC day: one over midnight
is two. Outages one after another are not an incident (`rolling`).
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F

from pointsman_report.parameters import IncidentParameters
from pointsman_report.schemas import INSTANCE
from pointsman_report.schemas.flapping import INCIDENTS
from pointsman_report.transforms import days
from pointsman_report.transforms.flapping.episodes import episodes, is_more_than_chance
from pointsman_report.transforms.flapping.places import SCOPE, brokers_by_scope, by_scope
from pointsman_report.transforms.liveness.availability import began_on_its_day, is_outage

_OUTAGE = ("dt", *INSTANCE, "at")

STRAYS = 4
"""One broker elsewhere for four of a host or zone does not make its zone's or cluster's incident of it."""


def outages(intervals: DataFrame) -> DataFrame:
    """The unplanned downs that began on their day: ``at``, ``down_us`` of it, ``back_us`` where its end was seen."""
    began = intervals.filter(is_outage() & began_on_its_day())
    end = F.unix_micros("end_at")
    return began.withColumns(
        {
            "at": F.unix_micros("start_at"),
            "down_us": end - F.unix_micros("start_at"),
            "back_us": F.when(~F.col("end_censored"), end),
        }
    ).select(*_OUTAGE, "event", "down_us", "back_us")


def members(fallen: DataFrame, places: DataFrame, *, parameters: IncidentParameters) -> DataFrame:
    """The outages that belong to an incident: the columns of `outages`, the scope and ``incident_id``.

    Of each broker the first within the incident: one that falls again while it lasts flaps by itself.
    """
    placed = (
        fallen.select(*_OUTAGE, "down_us").dropDuplicates([*_OUTAGE]).join(places, on=["dt", *INSTANCE], how="left")
    )
    # All that follows goes by a cluster's day and more: without this each step would shuffle anew.
    placed = placed.repartition("dt", "cluster")
    found = _narrowest(_in_episodes(placed, parameters), parameters)
    whole = found.filter("is_first").filter(is_more_than_chance(F.col("brokers"), F.col("bound"), parameters))
    first_us = F.min("at").over(Window.partitionBy(*SCOPE, "from_us"))
    began_at = F.date_format(F.timestamp_micros(first_us), "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'")
    named = whole.withColumn("incident_id", F.concat_ws("/", "cluster", "scope", "scope_name", began_at))
    return fallen.join(named.select(*_OUTAGE, "scope", "scope_name", "incident_id"), on=list(_OUTAGE), how="inner")


def incidents(members: DataFrame, places: DataFrame, causes: DataFrame) -> DataFrame:
    """Sum up each incident of `members`; ``causes`` are those of `outage_causes.incident_causes`."""
    member = F.struct("broker_name", "broker_id", F.timestamp_micros("at").alias("start_at"))
    summed = members.groupBy(*SCOPE, "incident_id").agg(
        F.timestamp_micros(F.min("at")).alias("from_at"),
        F.timestamp_micros(F.max("at")).alias("to_at"),
        F.when(F.bool_and(F.col("back_us").isNotNull()), F.timestamp_micros(F.max("back_us"))).alias("back_at"),
        F.count("*").alias("brokers"),
        F.sort_array(F.collect_list(member)).alias("members"),
        days.seconds(F.sum("down_us")).alias("down_seconds"),
    )
    known = summed.join(brokers_by_scope(places), on=list(SCOPE), how="left")
    known = known.join(causes, on=["dt", "incident_id"], how="left")
    return known.select(*INCIDENTS.fieldNames())


def _in_episodes(placed: DataFrame, parameters: IncidentParameters) -> DataFrame:
    """Each outage of an episode, with that of its cluster, zone and host: ``<scope>_from``, ``_bound``, ``_usual``."""
    within = episodes(by_scope(placed), parameters=parameters)
    each = {
        f"{scope}_{name}": F.max(F.when(F.col("scope") == scope, F.col(column)))
        for scope in ("cluster", "zone", "host")
        for name, column in (("from", "from_us"), ("bound", "bound"), ("usual", "usual"))
    }
    return within.groupBy(*_OUTAGE, "zone", "host").agg(*(column.alias(name) for name, column in each.items()))


def _narrowest(found: DataFrame, parameters: IncidentParameters) -> DataFrame:
    """Choose one scope for each outage: ``scope``, ``scope_name``, ``from_us``, ``brokers`` that share it."""
    has_zone = F.col("zone").isNotNull()
    within_cluster = F.when(has_zone, F.concat(F.lit("zone/"), "zone")).otherwise(F.concat(F.lit("host/"), "host"))
    within_bound = F.when(has_zone, F.col("zone_bound")).otherwise(F.col("host_bound"))
    rows = found.withColumns({"narrower": within_cluster, "narrower_bound": within_bound})
    rows = _settle(rows, "cluster", ("dt", "cluster", "cluster_from"), parameters)
    rows = rows.withColumns(
        {
            "zone_from": F.when(F.col("in_cluster"), None).otherwise(F.col("zone_from")),
            "narrower": F.col("host"),
            "narrower_bound": F.col("host_bound"),
        }
    )
    rows = _settle(rows, "zone", ("dt", "cluster", "zone", "zone_from"), parameters)
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


def _settle(rows: DataFrame, scope: str, window: tuple[str, ...], parameters: IncidentParameters) -> DataFrame:
    """Add ``in_<scope>``: the outage is in an episode of that scope that nothing narrower explains."""
    first = rows.withColumn("is_first", _is_first_of_its_broker(window))
    fell = _count("is_first", Window.partitionBy(*window))
    fell_within = _count("is_first", Window.partitionBy(*window, "narrower"))
    counted = first.withColumns({"fell": fell, "fell_within": fell_within})
    itself = is_more_than_chance(F.col("fell_within"), F.col("narrower_bound"), parameters)
    rest = F.col("fell") - F.col("fell_within")
    strays = (rest < parameters.brokers) & (rest * STRAYS <= F.col("fell_within"))
    explained_rest = strays | (rest <= F.col(f"{scope}_usual"))
    explains = F.coalesce(F.col("narrower").isNotNull() & itself & explained_rest, F.lit(False))
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
