"""Facts that brokers register about themselves (address, zone, host, process, version, owner), and their changes.

Facts come from registrations, and from the day's checkpoints if those of all name servers agree: a name server that has
not received a change yet must not undo it. The same change seen by several name servers counts once, at the first time
it was seen. A row that repeats facts which were replaced earlier that day is late and is dropped, unless its name
server had already recorded the newer facts: then the broker went back. A field that a row leaves out keeps its value.
The first registration of a broker is not a change.
"""

from __future__ import annotations

from datetime import date

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from pointsman_report.schemas import INSTANCE, OBSERVER
from pointsman_report.schemas.liveness_tables import BROKER_CHANGES, BROKER_FACTS
from pointsman_report.transforms import utc_days
from pointsman_report.transforms.utc_days import lit_day

REGISTRATIONS = ("REGISTERED", "REREGISTERED", "ROLE_CHANGED", "ADDRESS_CHANGED", "RESTARTED")
FACTS = {
    "address": "broker_addr",
    "zone": "zone",
    "host": "host",
    "incarnation": "incarnation",
    "version": "broker_version",
    "owner": "owner",
}
_FIELDS = tuple(FACTS.values())
_ORDER = ("at", "node", "boot_id", "seq")


def ordered_facts(events: DataFrame, yesterday: DataFrame) -> DataFrame:
    """Return the rows that count, in order, with the facts after each row (``<field>``) and before it
    (``was_<field>``).

    ``yesterday``: ``broker_facts`` of the day before; its rows come first (``node`` is empty).

    One row per row that counts; key: instance, ``at``, observer, ``seq``.
    """
    stated = _registrations(events).unionByName(_checkpoints(events))
    new_at = F.min("at").over(Window.partitionBy("dt", *INSTANCE, *_FIELDS))
    of_day = Window.partitionBy("dt", *INSTANCE).orderBy(*_ORDER)
    newest = F.max("new_at").over(of_day.rowsBetween(Window.unboundedPreceding, Window.currentRow))
    by_observer = Window.partitionBy("dt", *INSTANCE, *OBSERVER).orderBy("at", "seq")
    newest_recorded = F.max("new_at").over(by_observer.rowsBetween(Window.unboundedPreceding, -1))
    dated = stated.withColumn("new_at", new_at).withColumns({"newest_at": newest, "recorded_at": newest_recorded})
    went_back = F.coalesce(F.col("recorded_at") == F.col("newest_at"), F.lit(False))
    timely = dated.filter((F.col("new_at") == F.col("newest_at")) | went_back)
    carried = yesterday.select(
        *INSTANCE,
        F.unix_micros("seen_at").alias("at"),
        *(F.lit("").alias(name) for name in OBSERVER),
        F.lit(0).cast("long").alias("seq"),
        *_FIELDS,
    )
    both = timely.select(*INSTANCE, *_ORDER, *_FIELDS).unionByName(carried)
    timeline = Window.partitionBy(*INSTANCE).orderBy(*_ORDER)
    to_here = timeline.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    before = timeline.rowsBetween(Window.unboundedPreceding, -1)
    return both.select(
        *INSTANCE,
        *_ORDER,
        *(F.last(name, ignorenulls=True).over(to_here).alias(name) for name in _FIELDS),
        *(F.last(name, ignorenulls=True).over(before).alias(f"was_{name}") for name in _FIELDS),
        F.lead("at").over(timeline).alias("next_at"),
    )


def broker_facts(facts_of_day: DataFrame, *, first_day: date, last_day: date) -> DataFrame:
    """Each known broker at the end of each day, from `ordered_facts`.

    One row per broker and day; key: ``dt``, instance.
    """
    until = F.coalesce("next_at", F.lit(utc_days.end_of(last_day)))
    first = F.greatest(utc_days.day_of(F.col("at")), lit_day(first_day))
    held = facts_of_day.select(
        "*", F.explode(utc_days.days_between(first, F.date_sub(utc_days.day_of(until), 1))).alias("dt")
    )
    return held.withColumn("seen_at", F.timestamp_micros("at")).select(*BROKER_FACTS.columns)


def broker_changes(facts_of_day: DataFrame, events: DataFrame) -> DataFrame:
    """Each change once, however many name servers saw it.

    One row per change; key: ``dt``, instance, ``changed_at``, ``what``, which changes of one moment may share.
    """
    fresh = facts_of_day.filter(F.col("node") != "")
    each = F.inline(
        F.array(
            *(
                F.struct(F.lit(what).alias("what"), F.col(f"was_{name}").alias("before"), F.col(name).alias("after"))
                for what, name in FACTS.items()
            )
        )
    )
    facts = fresh.select(*INSTANCE, "at", each).filter(F.col("before") != F.col("after"))
    changes = facts.unionByName(_roles(events)).withColumns(
        {"changed_at": F.timestamp_micros("at"), "dt": utc_days.day_of(F.col("at"))}
    )
    return changes.select(*BROKER_CHANGES.columns)


def _named(events: DataFrame, *kinds: str) -> DataFrame:
    of_a_replica = F.col("broker_name").isNotNull() & F.col("broker_id").isNotNull() & F.col("cluster").isNotNull()
    named = events.filter(F.col("event").isin(*kinds) & of_a_replica)
    owned = named.withColumn("owner", F.get_json_object("detail", "$.owner"))
    facts = {name: F.nullif(F.col(name), F.lit("")) for name in _FIELDS}
    return owned.withColumns({"at": F.unix_micros("event_at"), **facts})


def _registrations(events: DataFrame) -> DataFrame:
    return _named(events, *REGISTRATIONS).select("dt", *INSTANCE, *_ORDER, *_FIELDS)


def _checkpoints(events: DataFrame) -> DataFrame:
    sure = _named(events, "CHECKPOINT").filter(~F.col("state").isin("PROVISIONAL", "GONE"))
    row = F.struct(*_ORDER, *_FIELDS)
    agreed = sure.groupBy("dt", *INSTANCE).agg(
        F.min(row).alias("row"), F.size(F.collect_set(F.struct(*_FIELDS))).alias("views")
    )
    return agreed.filter(F.col("views") == 1).select("dt", *INSTANCE, "row.*")


def _roles(events: DataFrame) -> DataFrame:
    moved = _named(events, "ROLE_CHANGED").withColumns(
        {
            "what": F.lit("role"),
            "before": F.get_json_object("detail", "$.previous_broker_id"),
            "after": F.col("broker_id").cast("string"),
        }
    )
    same = ("dt", *INSTANCE, "what", "before", "after")
    by_observer = Window.partitionBy(*same, *OBSERVER).orderBy("at", "seq")
    numbered = moved.filter(F.col("before").isNotNull()).withColumn("nth", F.row_number().over(by_observer))
    return numbered.groupBy(*same, "nth").agg(F.min("at").alias("at")).drop("dt", "nth")
