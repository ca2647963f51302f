"""Signs of trouble, each once however many observers saw it.

A sign that names what is new (an incarnation, an address) is the same for all observers. Signs that repeat are matched
by number: within a slot the nth of one observer is the nth of each other. A slot begins with a sign after as long a
rest as a slot is long, so that no boundary falls between two observers' rows of one sign, and is cut where signs go on
for longer. A day looks back over midnight by one slot: what another observer saw just before is not charged again.
"""

from __future__ import annotations

from datetime import date

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pointsman_report.parameters import FlapParameters
from pointsman_report.schemas import INSTANCE, OBSERVER
from pointsman_report.transforms import days

_SILENCES = ("RECOVERED", "LATE_HEARTBEAT")
_CAUSES = ("RESTARTED", "ADDRESS_CHANGED", "ROLE_CHANGED", *_SILENCES)


def sign_rows(events: DataFrame) -> DataFrame:
    """The rows that are charged as signs: instance, observer, ``seq``, ``at``, ``cause``, ``what`` is new.

    ``silent_us``: for how long the broker had not been heard.
    """
    event = F.col("event")
    named = events.filter(F.col("broker_name").isNotNull() & event.isin(*_CAUSES))
    # RECOVERED after a failed probe ends an outage that was charged already.
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


def heard_well(rows: DataFrame, blind: DataFrame) -> DataFrame:
    """Drop the signs that end a silence in which the observer was blind: it may have been its own."""
    times = blind.select(
        *(F.col(name).alias(f"of_{name}") for name in (*OBSERVER, "cluster")),
        F.unix_micros("from_at").alias("from_us"),
        F.unix_micros("to_at").alias("to_us"),
    )
    own = (F.col("node") == F.col("of_node")) & (F.col("boot_id") == F.col("of_boot_id"))
    of_all = F.col("of_cluster").isNull() | (F.col("of_cluster") == F.col("cluster"))
    began = F.col("at") - F.coalesce("silent_us", F.lit(0))
    meanwhile = (F.col("at") >= F.col("from_us")) & (began <= F.col("to_us"))
    return rows.join(F.broadcast(times), own & of_all & meanwhile & F.col("cause").isin(*_SILENCES), "left_anti")


def signs(rows: DataFrame, *, first_day: date, last_day: date, parameters: FlapParameters) -> DataFrame:
    """Columns: ``dt``, instance, ``at``, ``cause``, ``points``; ``rows`` are `sign_rows` from the day before on."""
    slot = int(parameters.same_sign_seconds * days.SECOND)
    late = rows.filter(F.col("at") >= days.ends(F.col("dt")) - slot).withColumn("dt", F.date_add("dt", 1))
    of_days = F.col("dt").between(days.lit_day(first_day), days.lit_day(last_day))
    looked_at = rows.unionByName(late).filter(of_days)
    story = Window.partitionBy("dt", *INSTANCE, "cause").orderBy("at")
    rested = F.col("at") - F.lag("at").over(story) > slot
    begun = looked_at.withColumn("begins", F.when(F.coalesce(rested, F.lit(True)), F.col("at")))
    to_here = story.rangeBetween(Window.unboundedPreceding, Window.currentRow)
    began = F.max("begins").over(to_here)
    in_slot = (began + F.floor((F.col("at") - began) / slot) * slot).cast("string")
    slotted = begun.withColumn("same", F.coalesce("what", in_slot))
    sign = ("dt", *INSTANCE, "cause", "same")
    by_observer = Window.partitionBy(*sign, *OBSERVER).orderBy("at", "seq")
    numbered = slotted.withColumn("nth", F.row_number().over(by_observer))
    once = numbered.groupBy(*sign, "nth").agg(F.min("at").alias("at"))
    today = once.filter(F.col("at") >= days.starts(F.col("dt")))
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
