"""The charges of each broker (penalty points), and its decayed penalty after each charge.

`signs`: signs of instability, each once however many observers saw it.

A sign that names a new value (an incarnation, an address) is the same for all observers. Repeating signs are matched by
number: within a slot, the nth of one observer is the nth of every other. A slot begins with a sign after a quiet period
of one slot length, so that no boundary separates two observers' rows of one sign. A longer sequence of signs is cut
into slots. A day also reads the last slot of the day before, so that a sign seen by another observer just before
midnight is not charged again.

`charges`: the broker's own outages, short planned shutdowns, and signs of instability.

Outages come from the merged intervals, so each is charged once. An outage that belongs to an incident does not count
against its broker. Nothing that happens in a maintenance window is charged.

`penalties`: the decayed penalty of each broker after each charge: exact, with the ceiling, without a loop over the
charges.

With x = P * 2^(t/H) decay vanishes: a charge adds a = points * 2^(t/H), and the ceiling c = ceiling * 2^(t/H) cuts, so
x_i = min(c_i, x_(i-1) + a_i). Unrolled: x_i = S_i + min(x_0, min over j <= i of (c_j - S_j)) with S the running sum of
a. That is two running aggregates, so even a broker with very many charges costs only a sort. t restarts at 0 each
midnight, which keeps 2^(t/H) small. A fold carries P from day to day, because each day needs the one before.
"""

from __future__ import annotations

from datetime import date

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F

from pointsman_report.parameters import FlapParameters
from pointsman_report.schemas import INSTANCE, OBSERVER
from pointsman_report.schemas.flapping_tables import FLAP_CHARGES
from pointsman_report.transforms import utc_days

_SILENCES = ("RECOVERED", "LATE_HEARTBEAT")
_CAUSES = ("RESTARTED", "ADDRESS_CHANGED", "ROLE_CHANGED", *_SILENCES)
_COLUMNS = ("dt", *INSTANCE, "at", "cause", "points")


def sign_rows(events: DataFrame) -> DataFrame:
    """The rows that are charged as signs: instance, observer, ``seq``, ``at``, ``cause``, ``what`` is new.

    ``silent_us``: time since the broker's last heartbeat.

    One row per row of the history; key: observer, ``seq``.
    """
    event = F.col("event")
    named = events.filter(F.col("broker_name").isNotNull() & event.isin(*_CAUSES))
    # RECOVERED after a failed probe ends an outage that is charged already.
    charged = named.filter((event != "RECOVERED") | (F.col("reason") == "HEARTBEAT"))
    what = F.when(event == "RESTARTED", F.col("incarnation")).when(
        event.isin("ADDRESS_CHANGED", "ROLE_CHANGED"), F.col("broker_addr")
    )
    return charged.select(
        "dt",
        *INSTANCE,
        *OBSERVER,
        "seq",
        F.unix_micros("event_at").alias("at"),
        event.alias("cause"),
        what.alias("what"),
        (F.col("interval_ms") * 1_000).alias("silent_us"),
    )


def without_blind(rows: DataFrame, blind: DataFrame) -> DataFrame:
    """Drop late heartbeats during which the observer itself was paused or guarded: the delay may be its own.

    One row per row given; key: observer, ``seq``.
    """
    times = blind.select(
        *(F.col(name).alias(f"of_{name}") for name in (*OBSERVER, "cluster")),
        F.unix_micros("from_at").alias("from_us"),
        F.unix_micros("to_at").alias("to_us"),
    )
    own = (F.col("node") == F.col("of_node")) & (F.col("boot_id") == F.col("of_boot_id"))
    of_all = F.col("of_cluster").isNull() | (F.col("of_cluster") == F.col("cluster"))
    began = F.col("at") - F.coalesce("silent_us", F.lit(0))
    overlaps = (F.col("at") >= F.col("from_us")) & (began <= F.col("to_us"))
    return rows.join(F.broadcast(times), own & of_all & overlaps & F.col("cause").isin(*_SILENCES), "left_anti")


def signs(rows: DataFrame, *, first_day: date, last_day: date, parameters: FlapParameters) -> DataFrame:
    """Columns: ``dt``, instance, ``at``, ``cause``, ``points``; ``rows`` are `sign_rows` from the day before on.

    One row per sign; no key, because two signs may be equal.
    """
    slot = int(parameters.same_sign_seconds * utc_days.SECOND)
    late = rows.filter(F.col("at") >= utc_days.ends(F.col("dt")) - slot).withColumn("dt", F.date_add("dt", 1))
    of_days = F.col("dt").between(utc_days.lit_day(first_day), utc_days.lit_day(last_day))
    in_reach = rows.unionByName(late).filter(of_days)
    timeline = Window.partitionBy("dt", *INSTANCE, "cause").orderBy("at")
    is_new_slot = F.col("at") - F.lag("at").over(timeline) > slot
    begun = in_reach.withColumn("begins", F.when(F.coalesce(is_new_slot, F.lit(True)), F.col("at")))
    to_here = timeline.rangeBetween(Window.unboundedPreceding, Window.currentRow)
    began = F.max("begins").over(to_here)
    in_slot = (began + F.floor((F.col("at") - began) / slot) * slot).cast("string")
    slotted = begun.withColumn("same", F.coalesce("what", in_slot))
    sign = ("dt", *INSTANCE, "cause", "same")
    by_observer = Window.partitionBy(*sign, *OBSERVER).orderBy("at", "seq")
    numbered = slotted.withColumn("nth", F.row_number().over(by_observer))
    once = numbered.groupBy(*sign, "nth").agg(F.min("at").alias("at"))
    today = once.filter(F.col("at") >= utc_days.starts(F.col("dt")))
    return today.select("dt", *INSTANCE, "at", "cause", _points(parameters).alias("points"))


def _points(parameters: FlapParameters) -> Column:
    cause = F.col("cause")
    return (
        F.when(cause == "RESTARTED", parameters.points_restarted)
        .when(cause.isin("ADDRESS_CHANGED", "ROLE_CHANGED"), parameters.points_moved)
        .when(cause == "RECOVERED", parameters.points_suspected)
        .when(cause == "LATE_HEARTBEAT", parameters.points_late)
        .cast("double")
    )


def charges(
    outages: DataFrame,
    members: DataFrame,
    intervals: DataFrame,
    signs: DataFrame,
    windows: DataFrame,
    *,
    parameters: FlapParameters,
) -> DataFrame:
    """Columns: ``dt``, instance, ``at`` (microseconds), ``cause``, ``points``.

    ``members`` are the outages of incidents; ``windows`` those of the day before as well. An outage's rows state
    whether it was planned; all other charges are compared with the windows of all nodes.

    One row per charge; no key, because two charges may be equal.
    """
    own = outages.join(members.select("dt", *INSTANCE, "at").distinct(), on=["dt", *INSTANCE, "at"], how="left_anti")
    charged = own.withColumns({"cause": F.col("event"), "points": F.lit(float(parameters.points_outage))})
    others = _quick_shutdowns(intervals, parameters).unionByName(signs.withColumn("began", F.col("at")))
    return charged.select(*_COLUMNS).unionByName(_outside_of(windows, others).select(*_COLUMNS))


def _outside_of(windows: DataFrame, rows: DataFrame) -> DataFrame:
    """Drop the rows that ``began`` in a window of their broker or cluster."""
    open_windows = windows.select(
        F.col("cluster").alias("of_cluster"),
        F.col("broker_name").alias("of_broker"),
        F.unix_micros("from_at").alias("from_us"),
        F.unix_micros("to_at").alias("to_us"),
    )
    is_of = (F.col("cluster") == F.col("of_cluster")) & F.coalesce(
        F.col("of_broker") == F.col("broker_name"), F.lit(True)
    )
    began_in = (F.col("began") >= F.col("from_us")) & (F.col("began") < F.col("to_us"))
    return rows.join(F.broadcast(open_windows), is_of & began_in, "left_anti")


def _quick_shutdowns(intervals: DataFrame, parameters: FlapParameters) -> DataFrame:
    length = F.unix_micros("end_at") - F.unix_micros("start_at")
    back = intervals.filter(F.col("planned") & (F.col("reason") == "SHUTDOWN") & ~F.col("end_censored"))
    quick = back.filter(length <= int(parameters.shutdown_return_seconds * utc_days.SECOND))
    return quick.withColumns(
        {
            "began": F.unix_micros("start_at"),
            "at": F.unix_micros("end_at"),
            "cause": F.lit("SHUTDOWN"),
            "points": F.lit(float(parameters.points_shutdown)),
        }
    ).select(*_COLUMNS, "began")


def _timeline() -> WindowSpec:
    return Window.partitionBy("dt", *INSTANCE).orderBy("at", "points", "cause")


def _to_here() -> WindowSpec:
    return _timeline().rowsBetween(Window.unboundedPreceding, Window.currentRow)


def running_sums(charges: DataFrame, *, parameters: FlapParameters) -> DataFrame:
    """Add to each charge S (``total``), the least c - S so far (``room``) and 2^(-t/H) (``decay``).

    One row per charge; no key, because two charges may be equal.
    """
    half_lives = (F.col("at") - utc_days.starts(F.col("dt"))) / F.lit(
        parameters.half_life_minutes * 60 * utc_days.SECOND
    )
    grown = charges.withColumn("growth", F.pow(F.lit(2.0), half_lives))
    totalled = grown.withColumn("total", F.sum(F.col("points") * F.col("growth")).over(_to_here()))
    room = F.min(F.lit(parameters.ceiling) * F.col("growth") - F.col("total")).over(_to_here())
    so_far = F.sum("points").over(_to_here())
    return totalled.withColumns({"room": room, "decay": F.lit(1.0) / F.col("growth"), "points_so_far": so_far})


def charged_days(
    sums: DataFrame, known: DataFrame, yesterday: DataFrame, *, first_day: date, parameters: FlapParameters
) -> DataFrame:
    """Carry each broker's penalty through its days with charges: most brokers have few of them, or none.

    Columns: ``charge_count``, ``charged_points``, ``charged_start`` and ``charged_end``, the penalty at both ends of
    the day.

    ``known`` has the day ``known_from`` of each broker: charges of earlier days are dropped. ``yesterday`` is the
    broker state of the day before ``first_day``.

    One row per broker and day with charges; key: ``dt``, instance.
    """
    by_day = sums.groupBy("dt", *INSTANCE).agg(
        F.max("total").alias("total"),
        F.min("room").alias("room"),
        F.count("*").alias("charge_count"),
        F.max("points_so_far").alias("charged_points"),
    )
    day = F.struct("dt", "total", "room", "charge_count", "charged_points")
    brokers = by_day.groupBy(*INSTANCE).agg(F.sort_array(F.collect_list(day)).alias("days"))
    began = F.struct(_day_before(first_day).alias("dt"), F.coalesce("carried_penalty", F.lit(0.0)).alias("penalty"))
    carried = yesterday.select(*INSTANCE, carried_penalty(parameters).alias("carried_penalty"))
    folded = (
        brokers.join(known.select(*INSTANCE, "known_from"), on=list(INSTANCE), how="inner")
        .join(carried, on=list(INSTANCE), how="left")
        .withColumn("days", _fold(began, _overnight(parameters)))
    )
    return folded.select(*INSTANCE, "known_from", F.inline("days")).filter("dt >= known_from").drop("known_from")


def carried_penalty(parameters: FlapParameters) -> Column:
    """The penalty in a row of the broker state; the ceiling may have been lowered since."""
    return F.least("penalty", F.lit(parameters.ceiling))


def penalty_before(days: DataFrame, *, first_day: date) -> DataFrame:
    """Add ``penalty_from``: the last day before the span with charges, or the one before the first day, and the
    penalty at its end.

    ``days`` has all spans of a broker (`known_days`), with the columns of `charged_days`, null on days without charges,
    and the ``carried_penalty``, null for a broker that was unknown on the day before the first.

    One row per row given; key: ``dt``, instance.
    """
    until_yesterday = Window.partitionBy(*INSTANCE).orderBy("dt").rowsBetween(Window.unboundedPreceding, -1)
    ended = F.when(F.col("charged_end").isNotNull(), F.struct("dt", F.col("charged_end").alias("penalty")))
    began = F.struct(_day_before(first_day).alias("dt"), F.coalesce("carried_penalty", F.lit(0.0)).alias("penalty"))
    last = F.coalesce(F.last(ended, ignorenulls=True).over(until_yesterday), began)
    return days.withColumn("penalty_from", last).drop("carried_penalty")


def penalties_of_day(parameters: FlapParameters) -> dict[str, Column]:
    """``penalty_start``, ``penalty_max`` and ``penalty_end`` of a day of a span, and its charges."""
    start = _start(F.col("dt"), parameters)
    return {
        "charge_count": F.coalesce("charge_count", F.lit(0)),
        "charged_points": F.coalesce("charged_points", F.lit(0.0)),
        "penalty_start": start,
        "penalty_max": F.greatest(start, F.coalesce("highest", F.lit(0.0))),
        "penalty_end": _end(F.col("dt"), parameters),
    }


def _start(day: Column, parameters: FlapParameters) -> Column:
    return F.coalesce("charged_start", _decayed(F.col("penalty_from"), day, _overnight(parameters)))


def _end(day: Column, parameters: FlapParameters) -> Column:
    """The penalty decays on days without charges."""
    return F.coalesce("charged_end", _start(day, parameters) * _overnight(parameters))


def penalties(sums: DataFrame, charged: DataFrame) -> DataFrame:
    """The table ``flap_charges``: each charge with the penalty after it. ``charged`` are `charged_days`.

    One row per charge; key: ``dt``, instance, ``charged_at``, ``cause``, which equal charges share.
    """
    starts = charged.select("dt", *INSTANCE, "charged_start")
    scored = sums.join(starts, on=["dt", *INSTANCE], how="inner")
    after = (F.col("total") + F.least("charged_start", "room")) * F.col("decay")
    # Rounded, so that three times 1000 compares equal to a threshold of 3000.
    charges_after = scored.withColumns({"charged_at": F.timestamp_micros("at"), "penalty": F.round(after, 6)})
    return charges_after.select(*FLAP_CHARGES.columns)


def marks(flap_charges: DataFrame, *, parameters: FlapParameters) -> DataFrame:
    """What the charges of a day do: the ``highest`` penalty, whether one ``raised`` it above the threshold, and the
    ``last_mark``: the flag after the last charge that set or cleared it.

    One row per broker and day with charges; key: ``dt``, instance.
    """
    charged = flap_charges.withColumns(
        {"raised": F.col("penalty") > parameters.suppress_above, "mark": mark(parameters)}
    )
    return charged.groupBy("dt", *INSTANCE).agg(
        F.max("penalty").alias("highest"),
        F.max("raised").alias("raised"),
        F.max_by("mark", F.when(F.col("mark").isNotNull(), F.struct("charged_at", "points", "cause"))).alias(
            "last_mark"
        ),
    )


def flagged_before(days: DataFrame, *, parameters: FlapParameters) -> DataFrame:
    """Add ``flagged_before``, the flag at the span's beginning, and ``raised``.

    ``days`` has all spans of a broker, with the columns of `penalty_before`, those of `marks`, null on days without
    charges, and ``carried_flagged``, the flag at the end of the day before the first.

    One row per row given; key: ``dt``, instance.
    """
    before = Window.partitionBy(*INSTANCE).orderBy("dt").rowsBetween(Window.unboundedPreceding, -1)
    # Within a span without charges a penalty only decays: a flag that it clears stays cleared.
    mark_at_end = _mark_at_end(F.col("last_on"), parameters)
    begun = F.coalesce("carried_flagged", F.lit(False))
    marked = days.withColumn("mark", mark_at_end)
    flagged = F.coalesce(F.last("mark", ignorenulls=True).over(before), begun)
    scored = marked.withColumns({"raised": F.coalesce("raised", F.lit(False)), "flagged_before": flagged})
    return scored.drop("mark", "carried_flagged")


def flags_of_day(parameters: FlapParameters) -> dict[str, Column]:
    """``flagged_start`` and ``flagged`` (at its end) of a day of a span that begins on ``first_on``."""
    yesterday = F.date_sub("dt", 1)
    marked = F.when(F.col("dt") > F.col("first_on"), _mark_at_end(yesterday, parameters))
    return {
        "flagged_start": F.coalesce(marked, "flagged_before"),
        "flagged": F.coalesce(_mark_at_end(F.col("dt"), parameters), "flagged_before"),
    }


def _mark_at_end(day: Column, parameters: FlapParameters) -> Column:
    """The flag at a day's end if the day sets or clears it, else null."""
    cleared = _end(day, parameters) < parameters.reuse_below
    return F.when(cleared, F.lit(False)).otherwise(F.col("last_mark"))


def mark(parameters: FlapParameters) -> Column:
    """The flag after a charge: true if it was raised, false if it had been cleared before, null if unchanged."""
    # Where the ceiling cut, the flag was raised anyway, so the penalty before does not matter.
    before = F.round(F.col("penalty") - F.col("points"), 6)
    raised, cleared = F.col("penalty") > parameters.suppress_above, before < parameters.reuse_below
    return F.when(raised, F.lit(True)).when(cleared, F.lit(False))


def _day_before(first_day: date) -> Column:
    return F.date_sub(utc_days.lit_day(first_day), 1)


def _overnight(parameters: FlapParameters) -> float:
    """The share of a penalty that is left after a day."""
    return float(2.0 ** (-24 * 60 / parameters.half_life_minutes))


def _decayed(last: Column, day: Column, overnight: float) -> Column:
    """The penalty at the beginning of a day; ``last`` has an earlier day (``dt``) and the ``penalty`` at its end."""
    return last["penalty"] * F.pow(F.lit(overnight), F.datediff(day, last["dt"]) - 1)


def _fold(began: Column, overnight: float) -> Column:
    """An array of days with the penalty carried through them, by a higher-order function (no Python in the loop)."""
    shape = "array<struct<dt:date,charge_count:bigint,charged_points:double,charged_start:double,charged_end:double>>"
    begin = F.struct(began["dt"].alias("dt"), began["penalty"].alias("penalty"), F.array().cast(shape).alias("days"))

    def step(so_far: Column, day: Column) -> Column:
        start = _decayed(so_far, day["dt"], overnight)
        end = (day["total"] + F.least(start, day["room"])) * F.lit(overnight)
        scored = F.struct(
            day["dt"].alias("dt"),
            day["charge_count"].alias("charge_count"),
            day["charged_points"].alias("charged_points"),
            start.alias("charged_start"),
            end.alias("charged_end"),
        )
        return F.struct(
            day["dt"].alias("dt"), end.alias("penalty"), F.concat(so_far["days"], F.array(scored)).alias("days")
        )

    return F.aggregate("days", begin, step, lambda so_far: so_far["days"])
