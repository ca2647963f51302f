"""Where rows of an observer are missing: from when on its opinion of a broker is ``lost``, and which row ends that.

A missing row may have changed any broker's state. A state is known over a gap only if the row before it and the row
after it agree, the latter's ``since_ms`` reaches back over the gap, and it is not itself a change of reason or plan. A
replica that a complete checkpoint does not name is not registered by then; if it was up before, how it left is unknown
(``none``). No gap shows that the last rows of a run are missing, nor which broker's every row is.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pointsman_report.schemas import INSTANCE, OBSERVER
from pointsman_report.transforms import days
from pointsman_report.transforms.liveness.opinions import DOWN, LOST, NONE, STATED, in_order, of_a_replica, reach_us

LEFT_OUT = "LEFT_OUT"
"""Not an event of the history: a complete checkpoint does not name the replica."""

TOLERANCE = 10_000
"""Microseconds by which two rows may differ on when a state began: both times are rounded to milliseconds."""

BLOCK = 1_000
"""Sequence numbers that are searched for gaps together."""

_EACH = (*INSTANCE, *OBSERVER)


def any_missing(windows: DataFrame, state: DataFrame) -> bool:
    """Whether rows are missing on the days, or an opinion that the day before carries is lost."""
    carried = state.filter(F.exists("opinions", lambda held: held["opinion"] == LOST))
    missing = windows.filter("rows_missing > 0").select(F.lit(1)).unionByName(carried.select(F.lit(1)))
    return not missing.isEmpty()


def with_losses(stated: DataFrame, rare: DataFrame, windows: DataFrame) -> DataFrame:
    """Add to `opinions.stated` an opinion ``lost`` at each gap that is not bridged, and what checkpoints leave out."""
    gaps = _gaps(windows)
    marked = _left_out(stated, rare).withColumn("is_left_out", F.lit(True))
    both = stated.withColumn("is_left_out", F.lit(False)).unionByName(marked)
    rows = _behind_gaps(_with_next_gap(both, gaps))
    return rows.select(*STATED).unionByName(_before_first(stated, gaps)).unionByName(_lost(rows))


def _before_first(stated: DataFrame, gaps: DataFrame) -> DataFrame:
    """Of a broker whose first row stands behind a gap of that day: it may have been registered before."""
    first = stated.groupBy(*_EACH).agg(F.min_by(F.struct("seq", "at"), F.struct("at", "seq")).alias("first"))
    of_day = gaps.groupBy(*OBSERVER, "dt").agg(F.min(F.struct("from_seq", "gap_us")).alias("gap"))
    dated = first.withColumn("dt", days.day_of(F.col("first.at")))
    behind = dated.join(F.broadcast(of_day), on=[*OBSERVER, "dt"], how="inner").filter("gap.from_seq < first.seq")
    return _losses(
        behind.withColumns(
            {"seq": F.col("gap.from_seq"), "at": F.col("gap.gap_us"), "event": F.lit(None).cast("string")}
        )
    )


def _lost(rows: DataFrame) -> DataFrame:
    """Where a gap follows that the row behind it does not bridge."""
    after = F.lead(F.struct("seq", "at", "since_us", "opinion", "planned", "is_change")).over(in_order())
    paired = rows.withColumn("after", after)
    opens = F.col("gap.from_seq") < F.coalesce("after.seq", F.lit(2**63 - 1))
    agrees = (F.col("after.opinion") == F.col("opinion")) & F.col("after.planned").eqNullSafe(F.col("planned"))
    reaches = reach_us(F.col("after.since_us"), F.col("after.at")) <= F.col("gap.at") + TOLERANCE
    is_bridged = F.coalesce(agrees & reaches & ~F.col("after.is_change"), F.lit(False))
    losing = paired.filter(opens & ~is_bridged & (F.col("opinion") != LOST))
    return _losses(
        losing.withColumns(
            {
                "event": F.when(F.col("opinion") == DOWN, F.col("event")),
                "seq": F.col("gap.from_seq"),
                "at": F.greatest("at", "gap.at"),
            }
        )
    )


def _losses(rows: DataFrame) -> DataFrame:
    return rows.withColumns(_nothing() | {"opinion": F.lit(LOST)}).select(*STATED)


def _nothing() -> dict[str, Column]:
    """The columns of which a row that stands for missing ones knows nothing."""
    kinds = {"reason": "string", "sign_us": "long", "since_us": "long", "planned": "boolean", "is_change": "boolean"}
    return {name: F.lit(None).cast(kind) for name, kind in kinds.items()}


def _gaps(windows: DataFrame) -> DataFrame:
    """Each gap of each observer: ``from_seq``, and ``gap_us``, from when on its rows may be missing.

    A gap belongs to the day of the row behind it: the day before was computed without it.
    """
    each = windows.select("dt", *OBSERVER, F.inline("gaps"))
    begins = F.greatest(F.unix_micros("after_at"), days.starts(F.col("dt")))
    return each.select("dt", *OBSERVER, "from_seq", begins.alias("gap_us"))


def _with_next_gap(rows: DataFrame, gaps: DataFrame) -> DataFrame:
    """Add ``gap`` (``from_seq``, ``at``), the first gap of the observer behind each row."""
    gap = F.struct("from_seq", F.col("gap_us").alias("at"))
    within = gaps.groupBy(*OBSERVER, F.floor(F.col("from_seq") / BLOCK).alias("block")).agg(
        F.sort_array(F.collect_list(gap)).alias("within")
    )
    placed = rows.withColumn("block", F.floor(F.col("seq") / BLOCK))
    blocks = placed.select(*OBSERVER, "block").distinct().join(within, on=[*OBSERVER, "block"], how="full")
    # A block without gaps is searched in vain: the first gap of a later block counts.
    behind_it = Window.partitionBy(*OBSERVER).orderBy("block").rowsBetween(1, Window.unboundedFollowing)
    later = F.first(F.get("within", F.lit(0)), ignorenulls=True).over(behind_it)
    found = placed.join(F.broadcast(blocks.withColumn("later", later)), on=[*OBSERVER, "block"], how="left")
    behind = F.filter("within", lambda one: one["from_seq"] > F.col("seq"))
    return found.withColumn("gap", F.coalesce(F.get(behind, F.lit(0)), "later")).drop("block", "within", "later")


def _behind_gaps(rows: DataFrame) -> DataFrame:
    """Of what checkpoints leave out keep what only missing rows explain, with its opinion."""
    before = F.lag("gap").over(in_order())
    real = F.when(~F.col("is_left_out"), F.when(_was_down(), DOWN).otherwise(F.col("opinion")))
    last = F.last(real, ignorenulls=True).over(in_order().rowsBetween(Window.unboundedPreceding, -1))
    was_lost = F.coalesce(F.lag("opinion").over(in_order()) == LOST, F.lit(False))
    marked = rows.withColumns({"gap_before": before, "last": last, "was_lost": was_lost})
    explained = F.coalesce(F.col("gap_before.from_seq") < F.col("seq"), F.lit(False)) | F.col("was_lost")
    gone = F.when(F.col("last") == DOWN, DOWN).otherwise(NONE)
    kept = marked.filter(~F.col("is_left_out") | explained)
    return kept.withColumn("opinion", F.when(F.col("is_left_out"), gone).otherwise(F.col("opinion")))


def _was_down() -> Column:
    """Whether a broker was down when its opinion was lost, which its event then tells."""
    return F.coalesce((F.col("opinion") == LOST) & F.col("event").isNotNull(), F.lit(False))


def _left_out(stated: DataFrame, rare: DataFrame) -> DataFrame:
    """A row for each broker that an observer knew before a complete checkpoint, and recorded nothing of within it."""
    checkpoints = F.broadcast(_complete_checkpoints(rare))
    seq = F.col("seq")
    told = stated.join(checkpoints, on=list(OBSERVER), how="inner").groupBy(*_EACH, "first_seq", "last_seq", "last_us")
    known = told.agg(
        F.bool_or(seq < F.col("first_seq")).alias("known"),
        F.bool_or(seq.between(F.col("first_seq"), F.col("last_seq"))).alias("named"),
    ).filter("known and not named")
    return known.withColumns(
        _nothing()
        | {"seq": F.col("last_seq"), "at": F.col("last_us"), "event": F.lit(LEFT_OUT), "opinion": F.lit(NONE)}
    ).select(*STATED)


def _complete_checkpoints(rare: DataFrame) -> DataFrame:
    """``first_seq``, ``last_seq`` and time of each checkpoint of which all n rows arrived."""
    number = {name: F.get_json_object("detail", f"$.{name}").try_cast("long") for name in ("i", "n")}
    rows = rare.filter((F.col("event") == "CHECKPOINT") & of_a_replica()).withColumns(number)
    story = Window.partitionBy(*OBSERVER).orderBy("seq")
    numbered = rows.withColumn("nth", F.count(F.when(F.col("i") == 1, 1)).over(story))
    whole = numbered.groupBy(*OBSERVER, "nth").agg(
        F.min("seq").alias("first_seq"),
        F.max("seq").alias("last_seq"),
        F.unix_micros(F.max("event_at")).alias("last_us"),
        F.count("*").alias("rows"),
        F.count_distinct("i").alias("different"),
        F.min("n").alias("least"),
        F.max("n").alias("most"),
    )
    complete = (F.col("rows") == F.col("most")) & (F.col("different") == F.col("most"))
    return whole.filter(complete & (F.col("least") == F.col("most"))).drop("nth", "rows", "different", "least", "most")
