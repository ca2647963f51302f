"""The opinions that count at each moment, merged in one pass over time.

`votes`: each observer's vote on each broker, as it changes.

A vote is the observer's last opinion while it runs and is neither paused nor silent. Votes that return after a pause
come before all rows of their instant; votes that end with a pause or an observer's window come after them.

`sweep`: one pass over time for each broker: the number of votes for up and for down, and the resulting state.

A broker is up while at least one observer sees it up. Otherwise it is unknown while an observer's vote is lost, because
that observer may have seen it up; down if all votes are down; and unknown without votes. It is down by plan if the last
removal was planned.

Rows are ordered by time, observer and number. Votes that return count before all rows of their instant, votes that end
count after them, and both count together: one by one, the second of two votes that end at the same instant would be the
only vote for a period of no length.

Where observers' clocks differ by d, outages appear up to d shorter.
"""

from __future__ import annotations

from datetime import date

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pointsman_report.schemas import INSTANCE, OBSERVER
from pointsman_report.schemas.liveness_tables import INTERVAL_START, LAST_LOSS
from pointsman_report.transforms import utc_days
from pointsman_report.transforms.observer_periods import PAUSED, SILENT
from pointsman_report.transforms.opinions import DOWN, LEFT_OUT, LOST, NONE, UP, in_force

ENDS, ROWS, BEGINS = 0, 1, 2
"""The phases of an instant."""

ROW = ("event", "reason", "sign_us", "opinion", "planned", "is_fresh")
"""Columns that a vote copies from its row; null if a pause or a window changed the vote."""
_CARRIED_VOTES, _CARRIED_STATE, _FIRST, _AFTER_ALL = -2, -1, 0, 2**62
_AFTER_EVERY_NODE = "\U0010ffff"
_COUNTED = (UP, DOWN, LOST)
ORDER = ("at", "node", "boot_id", "seq")


def votes(opinions: DataFrame, blind: DataFrame) -> DataFrame:
    """Columns: instance, observer, ``at``, ``phase``, ``seq``, the row's own, ``vote``, ``previous``.

    A vote is up, down, none or lost; the first opinion is the first vote.

    One row per vote or moment at which one stops or resumes counting; no key.
    """
    counted = in_force(opinions)
    recorded = counted.select(
        *INSTANCE,
        *OBSERVER,
        "at",
        # A broker missing from a checkpoint ends for that observer in the same way as at the end of its window.
        F.when((F.col("event") == LEFT_OUT) & (F.col("opinion") == NONE), BEGINS).otherwise(ROWS).alias("phase"),
        "seq",
        *ROW,
        F.lit(0).alias("off"),
    )
    timeline = recorded.unionByName(_marks(counted, blind), allowMissingColumns=True)
    order = Window.partitionBy(*INSTANCE, *OBSERVER).orderBy("at", "phase", "seq")
    to_here = order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    held = F.last("opinion", ignorenulls=True).over(to_here)
    counts = timeline.withColumns({"held": held, "times_off": F.sum("off").over(to_here)}).filter("held is not null")
    vote = F.when(F.col("times_off") > 0, NONE).otherwise(F.col("held"))
    voted = counts.withColumn("vote", vote).withColumn("previous", F.lag("vote").over(order))
    return voted.select(*INSTANCE, *OBSERVER, "at", "phase", "seq", *ROW, "vote", "previous")


def _marks(counted: DataFrame, blind: DataFrame) -> DataFrame:
    """Rows where a pause or silence begins or the window ends (``off`` 1), and where it ends (-1)."""
    # A silence over midnight has a row for each day.
    whole = blind.filter(F.col("why").isin(PAUSED, SILENT)).groupBy(*OBSERVER, "why", "from_at").agg(F.max("to_at"))
    pauses = F.broadcast(
        whole.select(*OBSERVER, F.unix_micros("from_at").alias("from_us"), F.unix_micros("max(to_at)").alias("to_us"))
    )
    whose = counted.select(*INSTANCE, *OBSERVER, "watch_to").dropDuplicates()
    both = F.inline(F.array(_mark(F.col("from_us"), BEGINS, 1), _mark(F.col("to_us"), ENDS, -1)))
    paused = whose.join(pauses, on=list(OBSERVER), how="inner").select(*INSTANCE, *OBSERVER, both)
    over = F.inline(F.array(_mark(F.col("watch_to"), BEGINS, 1)))
    ended = whose.filter(F.col("watch_to").isNotNull()).select(*INSTANCE, *OBSERVER, over)
    return paused.unionByName(ended).withColumn("seq", F.lit(0).cast("long"))


def _mark(at: Column, phase: int, off: int) -> Column:
    return F.struct(at.alias("at"), F.lit(phase).alias("phase"), F.lit(off).alias("off"))


def sweep(votes: DataFrame, state: DataFrame, *, first_day: date) -> DataFrame:
    """Every step of every broker in order.

    Columns: instance, ``at``, ``changes`` (an interval or an unknown period begins here), ``start`` (the interval after
    the step; null if unknown), ``last_state``, ``last_loss``, and the numbers of votes ``up`` and ``down``.

    One row per step; no key, because several votes may change at one moment.
    """
    steps = _steps(votes, first_day=first_day).unionByName(
        _carried(state, first_day=first_day), allowMissingColumns=True
    )
    timeline = Window.partitionBy(*INSTANCE).orderBy(*ORDER)
    together = timeline.rangeBetween(Window.unboundedPreceding, Window.currentRow)
    to_here = timeline.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    before = timeline.rowsBetween(Window.unboundedPreceding, -1)
    counted = steps.withColumns(
        {vote: F.sum(f"gain_{vote}").over(together) for vote in _COUNTED}
        | {"last_loss": F.last(F.coalesce("carried_loss", _loss()), ignorenulls=True).over(to_here)}
    )
    opens = F.col("seq") == _CARRIED_STATE
    labelled = counted.withColumn("seen", _seen()).withColumns({"label": _label(), "opens": opens})
    compared = labelled.withColumn("was", F.lag("label").over(timeline))
    known = F.when(F.col("label") != NONE, F.col("label"))
    turned = compared.withColumns(
        {
            "changes": F.col("opens") | F.col("was").isNull() | (F.col("was") != F.col("label")),
            "known": F.when(F.col("opens"), F.col("carried_state")).otherwise(known),
        }
    )
    with_known = turned.withColumns(
        {
            "known_before": F.last("known", ignorenulls=True).over(before),
            "last_state": F.last("known", ignorenulls=True).over(to_here),
        }
    )
    begun = F.when(F.col("changes"), F.struct(F.when(opens, F.col("carried_start")).otherwise(_start()).alias("start")))
    started = with_known.withColumn("begun", begun).withColumn(
        "start", F.last("begun", ignorenulls=True).over(to_here)["start"]
    )
    return started.filter(F.col("seq") != _CARRIED_VOTES).select(
        *INSTANCE, *ORDER, "changes", "start", "last_state", "last_loss", "up", "down"
    )


def _steps(votes: DataFrame, *, first_day: date) -> DataFrame:
    """A step for each vote; votes of earlier days count together, because only their sum was carried over."""
    start = F.lit(utc_days.start_of(first_day))
    before, own = F.col("at") < start, F.col("phase") == ROWS
    is_after = ~before & (F.col("phase") == BEGINS)
    no_node = F.when(is_after, F.lit(_AFTER_EVERY_NODE)).otherwise(F.lit(""))
    return votes.select(
        *INSTANCE,
        F.greatest("at", start).alias("at"),
        F.when(own & ~before, F.col("node")).otherwise(no_node).alias("node"),
        F.when(own & ~before, F.col("boot_id")).otherwise(F.lit("")).alias("boot_id"),
        F.when(before, F.lit(_CARRIED_VOTES))
        .when(F.col("phase") == ENDS, F.lit(_FIRST))
        .when(is_after, F.lit(_AFTER_ALL))
        .otherwise(F.col("seq"))
        .cast("long")
        .alias("seq"),
        *(_gain(vote).alias(f"gain_{vote}") for vote in _COUNTED),
        *(F.when(~before, F.col(name)).alias(name) for name in ROW),
    )


def _gain(opinion: str) -> Column:
    now, previous = (F.coalesce(F.col(name) == opinion, F.lit(False)).cast("long") for name in ("vote", "previous"))
    return now - previous


def _carried(state: DataFrame, *, first_day: date) -> DataFrame:
    """One step for each known broker: the state carried over midnight, after the votes."""
    return state.select(
        *INSTANCE,
        F.lit(utc_days.start_of(first_day)).alias("at"),
        F.lit("").alias("node"),
        F.lit("").alias("boot_id"),
        F.lit(_CARRIED_STATE).cast("long").alias("seq"),
        *(F.lit(0).cast("long").alias(f"gain_{vote}") for vote in _COUNTED),
        F.col("current").cast(INTERVAL_START).alias("carried_start"),
        F.col("last_loss").cast(LAST_LOSS).alias("carried_loss"),
        F.col("last_state").alias("carried_state"),
    )


def _loss() -> Column:
    row = F.struct("event", "reason", F.timestamp_micros("sign_us").alias("last_sign_of_life_at"), "planned")
    return F.when((F.col("opinion") == DOWN) & F.col("planned").isNotNull(), row.cast(LAST_LOSS))


def _seen() -> Column:
    return F.when(F.col(UP) > 0, UP).when(F.col(LOST) > 0, NONE).when(F.col(DOWN) > 0, DOWN).otherwise(NONE)


def _label() -> Column:
    """up, down, none, or left (down by plan)."""
    return F.when((F.col("seen") == DOWN) & F.col("last_loss.planned"), "left").otherwise(F.col("seen"))


def _start() -> Column:
    """The interval that begins with a change; null if the state is unknown.

    An outage keeps the event and reason of its first removal: an expiry after a failed probe begins no second outage.
    """
    down, planned = F.col("seen") == DOWN, F.col("label") == "left"
    # A broker seen again after time without observers may have been in that state for long.
    censored = F.when(F.col("was").isNull(), ~F.coalesce("is_fresh", F.lit(False))).otherwise(F.col("was") == NONE)
    # No observer saw it go down: all others already had it down, and the one that had it up ended.
    left_alone = down & (F.col("seq") == _AFTER_ALL)
    taken_up = left_alone | (censored & (F.col("known_before") == DOWN))
    continues = F.coalesce((F.col("label") == DOWN) & taken_up, F.lit(False))
    censored = left_alone | censored
    start = F.struct(
        F.col("seen").alias("state"),
        F.timestamp_micros("at").alias("start_at"),
        censored.alias("start_censored"),
        planned.alias("planned"),
        continues.alias("continues"),
        F.when(down, F.col("last_loss.event")).otherwise(F.col("event")).alias("event"),
        F.when(down, F.col("last_loss.reason")).otherwise(F.col("reason")).alias("reason"),
        F.when(down & ~censored, F.col("last_loss.last_sign_of_life_at")).alias("last_sign_of_life_at"),
        (F.col(UP) + F.col(DOWN)).alias("observers"),
    )
    return F.when(F.col("seen") != NONE, start.cast(INTERVAL_START))
