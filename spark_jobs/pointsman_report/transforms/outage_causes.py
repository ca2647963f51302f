"""The cause of each outage, from what the history recorded around it.

`outages_with_facts`: how the broker went down, and which process came back.

It reads the rows from shortly before an outage (a broken stream is recorded before the removal) until shortly after it
(a new process registers soon after it is up). How the broker went down is fixed when the outage begins. What came back
is read from each day's rows, so that nightly runs and backfills compute the same. An empty incarnation proves neither
the same process nor a new one.

`outage_causes`: the cause, from how the broker went down, which process came back, and which brokers went down with it.

The first that applies: planned; deploy (another version came back); rolling_restart (one broker after another);
process_died (the broker's machine refused the probe, and a new process came back); network (several of an incident fell
silent, and the same process came back); host_lost (several of one host label fell silent in an incident, and new
processes came back on it); agent_lost (its stream broke, no other broker fell silent, its probe had not failed, and the
same process came back); agent_hung (the same, but its stream stayed open while it was silent). Without such evidence
the cause is unknown.
"""

from __future__ import annotations

from datetime import date

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pointsman_report.schemas import INSTANCE
from pointsman_report.schemas.flapping_tables import OUTAGE_CAUSES
from pointsman_report.transforms import utc_days
from pointsman_report.transforms.utc_days import lit_day

BEFORE = 300 * utc_days.SECOND
"""A stream breaks, or a probe fails, at most this long before the broker is removed for it: the default expiry is two
minutes, and some agents have a longer one."""
SETTLED = 60 * utc_days.SECOND
"""A broker that is back registers its new process within this time, if it has one."""

LEFT, REFUSED, PROBE, STREAM_BROKEN, SILENCE = "LEFT", "REFUSED", "PROBE", "STREAM_BROKEN", "SILENCE"
STREAM_OPEN, CONNECTION_OPEN = "STREAM_OPEN", "CONNECTION_OPEN"
"""Silence while the agent's stream was open, or the connection of a RocketMQ broker that registers itself."""
SILENT = (STREAM_BROKEN, STREAM_OPEN, CONNECTION_OPEN, SILENCE)
"""No heartbeats from the agent; the other signals are reported by the agent."""

NEW, SAME = "NEW", "SAME"

OUTAGE = (*INSTANCE, "start_at")
_BACK = ("REGISTERED", "REREGISTERED", "RESTARTED", "ROLE_CHANGED", "ADDRESS_CHANGED", "RECOVERED")
_GOING = ("EXPIRED", "PROBE_FAILED", "UNREGISTERED", "SUSPECTED", "PROTECTED")
_SIGNS = ("refused", "probe_failed", "stream_broken", "silent", "stream_open", "connection_open")
_TEXT = 160
"""Characters kept of a probe's message."""
PLANNED, DEPLOY, ROLLING_RESTART, PROCESS_DIED = "planned", "deploy", "rolling_restart", "process_died"
NETWORK, HOST_LOST, AGENT_LOST, AGENT_HUNG, UNKNOWN = "network", "host_lost", "agent_lost", "agent_hung", "unknown"

MIN_SILENT_BROKERS = 2
"""From this number of silent brokers in an incident, the cause is not a single agent."""

_WENT = ("signal", "probe", "incarnation_before", "version_before", "host")
_TOGETHER = ("incident_id", "silent_together", "hosts_together", "silent_on_host")


def fact_rows(events: DataFrame) -> DataFrame:
    """The rows that are evidence, with the columns that the rest of this module reads.

    Only this function depends on the history's format.

    One row per row of the history; no key, because rows of two observers may be equal.
    """
    event, probe = F.col("event"), F.get_json_object("detail", "$.probe")
    failed = (event == "PROBE_FAILED") | F.col("reason").isin("PROBE", "REFUSED") & event.isin(*_GOING)
    named = events.filter(F.col("broker_name").isNotNull() & F.col("broker_id").isNotNull())
    return named.filter(event.isin(*_BACK, *_GOING)).select(
        *INSTANCE,
        F.unix_micros("event_at").alias("at"),
        "seq",
        event.isin(*_BACK).alias("is_back"),
        F.coalesce(failed, F.lit(False)).alias("probe_failed"),
        F.coalesce(failed & (F.col("reason") == "REFUSED"), F.lit(False)).alias("refused"),
        F.coalesce((F.col("reason") == "STREAM_BROKEN") & event.isin(*_GOING), F.lit(False)).alias("stream_broken"),
        F.coalesce((F.col("reason") == "SILENCE") & (event == "EXPIRED"), F.lit(False)).alias("silent"),
        *(
            F.coalesce(F.get_json_object("detail", f"$.{what}") == "open", F.lit(False)).alias(f"{what}_open")
            for what in ("stream", "connection")
        ),
        F.when(failed, F.substring(F.nullif(probe, F.lit("")), 1, _TEXT)).alias("probe"),
        *(F.nullif(F.col(name), F.lit("")).alias(name) for name in ("incarnation", "broker_version", "host")),
    )


def downs(intervals: DataFrame) -> DataFrame:
    """Each period in which a broker was down, planned or not: instance, ``start_at``, and the end if it has ended.

    One row per outage; key: instance, ``start_at``.
    """
    down = intervals.filter(F.col("state") == "down")
    end = F.min(F.when(~F.col("open"), F.unix_micros("end_at")))
    return down.groupBy(*OUTAGE).agg(end.alias("end_us")).withColumn("start_us", F.unix_micros("start_at"))


def near_rows(rows: DataFrame, down: DataFrame) -> DataFrame:
    """Each row of `fact_rows` with the outage of `downs` that it belongs to.

    ``went``: it was written before the outage or while it lasted. A row between two outages may belong to both.

    One row per row given and outage; no key.
    """
    point = F.struct("start_us", "end_us", "start_at")
    marks = down.select(*INSTANCE, F.col("start_us").alias("at"), F.lit(1).alias("kind"), point.alias("down"))
    both = rows.withColumn("kind", F.lit(0)).unionByName(marks, allowMissingColumns=True)
    # A removal at the very start began the outage.
    row_order, before = ("at", "kind", "seq"), (Window.unboundedPreceding, -1)
    forwards = Window.partitionBy(*INSTANCE).orderBy(*row_order).rowsBetween(*before)
    # Sorted again: a frame that ends with the partition would cost the square of its rows.
    backwards = Window.partitionBy(*INSTANCE).orderBy(*map(F.desc, row_order)).rowsBetween(*before)
    placed = both.withColumns(
        {
            "last": F.last("down", ignorenulls=True).over(forwards),
            "next": F.last("down", ignorenulls=True).over(backwards),
        }
    ).filter("kind = 0")
    at = F.col("at")
    # All later rows belong to an outage that has not ended.
    is_of_last = F.coalesce(at <= F.col("last.end_us") + SETTLED, F.col("last").isNotNull())
    is_over = F.col("last").isNull() | F.coalesce(at >= F.col("last.end_us"), F.lit(False))
    is_of_next = (F.col("next.start_us") - at <= BEFORE) & is_over
    of_last = F.when(is_of_last, F.struct(F.col("last").alias("of"), F.lit(False).alias("is_before")))
    of_next = F.when(is_of_next, F.struct(F.col("next").alias("of"), F.lit(True).alias("is_before")))
    each = placed.select("*", F.explode(F.array_compact(F.array(of_last, of_next))).alias("each"))
    went = F.col("each.is_before") | F.coalesce(at < F.col("each.of.end_us"), F.lit(True))
    return each.select(
        *rows.columns,
        F.col("each.of.start_at").alias("start_at"),
        F.col("each.of.start_us").alias("start_us"),
        F.col("each.of.end_us").alias("end_us"),
        F.col("each.is_before").alias("is_before"),
        went.alias("went"),
    )


def outage_signals(near: DataFrame) -> DataFrame:
    """``signal``, ``probe`` and the facts before each outage, from the rows of its first day only.

    One row per outage with such rows; key: instance, ``start_at``.
    """
    first_day = utc_days.day_of(F.col("start_us"))
    rows = near.filter((utc_days.day_of(F.col("at")) <= first_day) & F.col("went"))
    order = F.struct("at", "seq")

    def last(name: str) -> Column:
        known = F.col("is_before") & F.col(name).isNotNull()
        return F.max_by(name, F.when(known, order)).alias(f"{name}_before")

    facts = rows.groupBy(*OUTAGE).agg(
        *(F.bool_or(name).alias(name) for name in _SIGNS),
        F.min_by("probe", F.when(F.col("probe").isNotNull(), order)).alias("probe"),
        *map(last, ("incarnation", "broker_version", "host")),
    )
    signal = (
        F.when(F.col("refused"), REFUSED)
        .when(F.col("probe_failed"), PROBE)
        .when(F.col("stream_broken"), STREAM_BROKEN)
        .when(F.col("silent") & F.col("stream_open"), STREAM_OPEN)
        .when(F.col("silent") & F.col("connection_open"), CONNECTION_OPEN)
        .when(F.col("silent"), SILENCE)
    )
    return facts.select(
        *OUTAGE,
        signal.alias("signal"),
        "probe",
        "incarnation_before",
        F.col("broker_version_before").alias("version_before"),
        F.col("host_before").alias("host"),
    )


def recovery_facts(near: DataFrame) -> DataFrame:
    """``incarnations`` and ``versions`` recorded since the start of each outage, by day ``dt``.

    ``returned``: the incarnations in rows with which the broker came back, or later ones.

    One row per outage and day with such rows; key: ``dt``, instance, ``start_at``.
    """
    rows = near.filter(~F.col("is_before")).withColumn("dt", utc_days.day_of(F.col("at")))
    back = F.col("is_back") & F.coalesce(F.col("at") >= F.col("end_us"), F.lit(False))
    return rows.groupBy("dt", *OUTAGE).agg(
        F.sort_array(F.collect_set("incarnation")).alias("incarnations"),
        F.sort_array(F.collect_set("broker_version")).alias("versions"),
        F.sort_array(F.collect_set(F.when(back, F.col("incarnation")))).alias("returned"),
    )


def early_rows(events: DataFrame, first_day: date) -> DataFrame:
    """Rows of the day before the first that may belong to an outage just after midnight.

    One row per row of the history; key: observer, ``seq``.
    """
    return events.filter(F.col("event_at") >= F.timestamp_micros(F.lit(utc_days.start_of(first_day) - BEFORE)))


def outages_with_facts(
    intervals: DataFrame,
    went: DataFrame,
    back: DataFrame,
    members: DataFrame,
    yesterday: DataFrame,
    *,
    first_day: date,
) -> DataFrame:
    """All facts known of each outage by the end of each day on which it began, lasted or ended.

    ``intervals`` begin with those of the day before the first; ``went`` is `outage_signals`, ``back`` `recovery_facts`;
    ``members`` the outages of incidents; ``yesterday`` the table ``outage_causes`` of the day before the first.
    ``process``: NEW, SAME, or null if the evidence shows neither. An interval that continues a cut outage (no name
    server had a vote for a time) is part of it: ``began_at``.

    One row per outage and such day; key: ``dt``, instance, ``start_at``, which outages of one moment may share.
    """
    row_order = Window.partitionBy(*INSTANCE).orderBy("start_at", "dt")
    to_here = row_order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    began_at = F.last(F.when(~F.col("continues"), F.col("start_at")), ignorenulls=True).over(to_here)
    all_down = intervals.filter(F.col("state") == "down").withColumn("began_at", began_at)
    down = all_down.filter(F.col("dt") >= lit_day(first_day)).select(
        "dt",
        *OUTAGE,
        F.coalesce("began_at", "start_at").alias("began_at"),
        "open",
        "planned",
        F.unix_micros("start_at").alias("start_us"),
        F.when(~F.col("open"), F.unix_micros("end_at")).alias("end_us"),
    )
    # LEFT belongs to an interval: an unplanned and a planned interval that begin at the same moment are one outage.
    went_before = yesterday.withColumn("signal", F.nullif("signal", F.lit(LEFT)))
    carried = went_before.select(*OUTAGE, *_WENT, *_TOGETHER).distinct()
    began = went.filter(F.unix_micros("start_at") >= utc_days.start_of(first_day))
    known = _with_incident(began, members).unionByName(carried)
    rows = (
        down.join(known.withColumnRenamed("start_at", "began_at"), on=[*INSTANCE, "began_at"], how="left")
        .join(back, on=["dt", *OUTAGE], how="left")
        .withColumns({name: _of_outage(name) for name in ("incarnations", "versions", "returned")})
    )
    incarnation, version = (_another(names, f"{name}_before") for names, name in _BEFORE_AND_AFTER)
    is_same = F.array_contains("returned", F.col("incarnation_before"))
    return rows.withColumns(
        {
            "signal": F.when(F.col("planned") & F.col("signal").isNull(), LEFT).otherwise(F.col("signal")),
            "incarnation_after": F.coalesce(incarnation, F.when(is_same, F.col("incarnation_before"))),
            "version_after": version,
            "process": F.when(incarnation.isNotNull(), NEW).when(is_same, SAME),
        }
    )


def _of_outage(name: str) -> Column:
    """Merge an array over all intervals of an outage."""
    return F.flatten(F.collect_list(name).over(Window.partitionBy("dt", *INSTANCE, "began_at")))


_BEFORE_AND_AFTER = (("incarnations", "incarnation"), ("versions", "version"))


def outage_causes(rows: DataFrame, rolling: DataFrame) -> DataFrame:
    """The table ``outage_causes``; ``rolling``: the outages of rolling restarts, with their ``rolling_restart_id``.

    One row per outage and day; key: ``dt``, instance, ``start_at``, which outages of one moment may share.
    """
    joined = rows.join(rolling.select("dt", *OUTAGE, "rolling_restart_id"), on=["dt", *OUTAGE], how="left")
    # A host that did not restart comes back with the same processes.
    on_host = Window.partitionBy("dt", "incident_id", "host")
    stayed = F.count(F.when((F.col("process") == SAME) & F.col("signal").isin(*SILENT), 1)).over(on_host)
    counted = joined.withColumn("stayed_on_host", stayed)
    found = counted.withColumns({"cause": _cause(), "evidence": _evidence()})
    return found.select(*OUTAGE_CAUSES.columns)


def incident_causes(causes: DataFrame) -> DataFrame:
    """``cause`` and ``evidence`` of each incident and day: the cause of more than half of its outages, else unknown.

    One row per incident; key: ``dt``, ``incident_id``.
    """
    began = causes.filter(F.col("incident_id").isNotNull() & (F.to_date("start_at") == F.col("dt")))
    # An outage that was cut has several intervals, with one cause.
    first = F.min_by(F.struct("cause", "evidence", "start_at"), "start_at").alias("first")
    members = began.groupBy("dt", "incident_id", *INSTANCE).agg(first).select("dt", "incident_id", *INSTANCE, "first.*")
    of_all = members.groupBy("dt", "incident_id").agg(F.count("*").alias("of"))
    counted = members.groupBy("dt", "incident_id", "cause").agg(
        F.count("*").alias("count"), F.min_by("evidence", F.struct("start_at", *INSTANCE)).alias("example")
    )
    best = counted.groupBy("dt", "incident_id").agg(
        F.max_by(F.struct("cause", "count", "example"), F.struct("count", "cause")).alias("best")
    )
    most = best.join(of_all, on=["dt", "incident_id"], how="inner")
    is_most = (F.col("best.count") * 2 > F.col("of")) & (F.col("best.cause") != UNKNOWN)
    of_it = F.concat(F.col("best.count").cast("string"), F.lit(" of "), F.col("of").cast("string"), F.lit(" outages"))
    return most.select(
        "dt",
        "incident_id",
        F.when(is_most, F.col("best.cause")).otherwise(UNKNOWN).alias("cause"),
        F.when(is_most, F.concat_ws(": ", of_it, "best.example")).alias("evidence"),
    )


def _with_incident(began: DataFrame, members: DataFrame) -> DataFrame:
    """Add the incident of each outage, the number of its silent brokers, and of their hosts."""
    of_incident = members.select(*INSTANCE, F.timestamp_micros("at").alias("start_at"), "incident_id")
    joined = began.join(of_incident, on=list(OUTAGE), how="left")
    is_silent = F.col("incident_id").isNotNull() & F.col("signal").isin(*SILENT)
    # A broker without a host label shares none.
    host = F.coalesce(F.concat(F.lit("host/"), "host"), F.concat_ws("/", *INSTANCE))
    together = Window.partitionBy("incident_id")
    counted = joined.withColumns(
        {
            "silent_together": F.count(F.when(is_silent, 1)).over(together),
            "hosts_together": F.size(F.collect_set(F.when(is_silent, host)).over(together)).cast("long"),
            "silent_on_host": F.count(F.when(is_silent & F.col("host").isNotNull(), 1)).over(
                Window.partitionBy("incident_id", "host")
            ),
        }
    )
    alone = F.col("incident_id").isNull()
    return counted.select(
        *OUTAGE,
        *_WENT,
        "incident_id",
        *(F.when(alone, F.lit(0)).otherwise(F.col(name)).cast("long").alias(name) for name in _TOGETHER[1:]),
    )


def _another(names: str, before: str) -> Column:
    """The first value of an array that differs from the one before; null if that one is unknown."""
    others = F.filter(F.col(names), lambda name: name != F.col(before))
    return F.when(F.col(before).isNotNull(), F.try_element_at(others, F.lit(1)))


def _cause() -> Column:
    signal, is_new, is_same = F.col("signal"), F.col("process") == NEW, F.col("process") == SAME
    silent = signal.isin(*SILENT)
    several = F.col("silent_together") >= MIN_SILENT_BROKERS
    return (
        F.when(F.col("planned"), PLANNED)
        .when(F.col("version_after").isNotNull(), DEPLOY)
        .when(F.col("rolling_restart_id").isNotNull(), ROLLING_RESTART)
        .when((signal == REFUSED) & is_new, PROCESS_DIED)
        .when(silent & several & is_same, NETWORK)
        .when(
            silent & is_new & (F.col("silent_on_host") >= MIN_SILENT_BROKERS) & (F.col("stayed_on_host") == 0),
            HOST_LOST,
        )
        .when((signal == STREAM_BROKEN) & is_same & ~F.coalesce(several, F.lit(False)), AGENT_LOST)
        .when((signal == STREAM_OPEN) & is_same & ~F.coalesce(several, F.lit(False)), AGENT_HUNG)
        .otherwise(UNKNOWN)
    )


_HANGS = "no heartbeats although its {} was open: its {} hung, or its machine was frozen or cut off"


def _evidence() -> Column:
    """A short text with all known facts of the outage, whatever the cause."""
    signal = F.col("signal")
    text = F.when(F.col("probe").isNotNull(), F.concat(F.lit(" ("), "probe", F.lit(")"))).otherwise(F.lit(""))
    went = (
        F.when(F.col("planned"), F.lit("planned"))
        .when(signal == REFUSED, F.concat(F.lit("probe refused"), text))
        .when(signal == PROBE, F.concat(F.lit("probe failed"), text))
        .when(signal == STREAM_BROKEN, F.lit("stream broken, no failed probe"))
        .when(signal == STREAM_OPEN, F.lit(_HANGS.format("stream", "agent")))
        .when(signal == CONNECTION_OPEN, F.lit(_HANGS.format("connection", "process")))
        .when(signal.isNotNull(), F.lit("no heartbeats, no failed probe"))
    )
    several = F.col("silent_together") >= MIN_SILENT_BROKERS
    hosts = F.when(
        F.col("hosts_together") == 1, F.concat(F.lit("host "), F.coalesce("host", F.lit("unknown")))
    ).otherwise(F.concat(F.col("hosts_together").cast("string"), F.lit(" hosts")))
    on_its_host = F.when(
        (F.col("hosts_together") > 1) & (F.col("silent_on_host") >= MIN_SILENT_BROKERS),
        F.concat(F.lit(", "), F.col("silent_on_host").cast("string"), F.lit(" of them on host "), "host"),
    ).otherwise(F.lit(""))
    company = F.when(
        several,
        F.concat(F.col("silent_together").cast("string"), F.lit(" brokers silent together on "), hosts, on_its_host),
    )
    version = F.when(
        F.col("version_after").isNotNull(),
        F.concat_ws(" ", F.lit("version"), "version_before", F.lit("to"), "version_after"),
    )
    process = (
        F.when(F.col("process") == NEW, F.lit("new process afterwards"))
        .when(F.col("process") == SAME, F.lit("same process afterwards"))
        .when(F.col("open"), F.lit("not recovered by the end of the day"))
        .when(~F.col("planned"), F.lit("process afterwards unknown"))
    )
    rolling = F.when(F.col("rolling_restart_id").isNotNull(), F.lit("part of a rolling restart"))
    return F.concat_ws(", ", went, company, version, process, rolling)
