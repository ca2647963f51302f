"""Cut a day's bursts into windows, each begun where it holds most.

A window that began with the first outage that sees a burst ahead would end within that burst. So of the starts within
a window's width from the first, the one with most brokers ahead begins the window, and what lies between the two is a
window of its own. No chain grows: each is at most one width long.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

_WINDOWS = "array<struct<from_us:bigint,to_us:bigint>>"
_PENDING = "struct<first:bigint,best:bigint,fallen:bigint>"


def fullest_windows(starts: Column, width: int) -> Column:
    """An array of ``from_us``, ``to_us``, apart from each other, that together hold every start.

    ``starts`` is a sorted array of ``at`` and ``fallen``, the brokers that fell within a width from then on.
    """
    nothing = F.struct(F.array().cast(_WINDOWS).alias("windows"), F.lit(None).cast(_PENDING).alias("pending"))

    def step(so_far: Column, start: Column) -> Column:
        windows, pending = so_far["windows"], so_far["pending"]
        fresh = F.struct(
            start["at"].alias("first"), start["at"].alias("best"), start["fallen"].cast("bigint").alias("fallen")
        )
        in_reach = start["at"] <= pending["first"] + width
        better = F.struct(
            pending["first"].alias("first"), start["at"].alias("best"), start["fallen"].cast("bigint").alias("fallen")
        )
        closed = _closed(so_far, width)
        last_to = F.try_element_at(closed, F.lit(-1))["to_us"]
        begins = F.coalesce(start["at"] > last_to, F.lit(True))
        reached = F.when(start["fallen"] > pending["fallen"], better).otherwise(pending)
        return F.when(in_reach, _state(windows, reached)).otherwise(
            _state(closed, F.when(begins, fresh).otherwise(F.lit(None).cast(_PENDING)))
        )

    return F.aggregate(starts, nothing, step, lambda so_far: _closed(so_far, width))


def _state(windows: Column, pending: Column) -> Column:
    return F.struct(windows.alias("windows"), pending.alias("pending"))


def _closed(so_far: Column, width: int) -> Column:
    """The windows with those that what is pending makes."""
    pending = so_far["pending"]
    before = F.struct(pending["first"].alias("from_us"), (pending["best"] - 1).alias("to_us"))
    itself = F.struct(pending["best"].alias("from_us"), (pending["best"] + width).alias("to_us"))
    fresh = F.when(pending["best"] > pending["first"], F.array(before, itself)).otherwise(F.array(itself))
    return F.when(pending.isNull(), so_far["windows"]).otherwise(F.concat(so_far["windows"], fresh))
