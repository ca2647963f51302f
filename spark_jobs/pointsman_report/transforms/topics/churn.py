"""How often topics were created, removed and changed on a day."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from pointsman_report.schemas import INSTANCE
from pointsman_report.schemas.topics import TOPIC_CHURN


def topic_churn(topic_intervals: DataFrame) -> DataFrame:
    """Count the beginnings, ends and changes of each partition of ``topic_intervals``.

    What a broker had when the day first knows of it was not created then: the topics that it had at midnight, else
    those of its first set of the day.
    """
    known = topic_intervals.groupBy("dt", *INSTANCE).agg(F.min("from_at").alias("known_from"))
    dated = topic_intervals.join(known, on=["dt", *INSTANCE], how="inner")
    late = F.col("from_at") > F.col("known_from")
    # Whatever lasted all day has no neighbour either.
    moved = dated.filter(late | ~F.col("open"))
    story = Window.partitionBy("dt", *INSTANCE, "topic").orderBy("from_at")
    follows = F.coalesce(F.lag("to_at").over(story) == F.col("from_at"), F.lit(False))
    is_followed = F.coalesce(F.lead("from_at").over(story) == F.col("to_at"), F.lit(False))
    read, write, perm = (F.lag(name).over(story) != F.col(name) for name in ("read_queues", "write_queues", "perm"))
    told = moved.withColumns(
        {
            "created": late & ~follows,
            "removed": ~F.col("open") & ~is_followed,
            "queues": follows & (read | write),
            "perms": follows & perm,
        }
    )
    counted = told.groupBy("dt", "cluster", "topic").agg(
        F.count_distinct(
            F.when(F.col("created") | F.col("removed") | F.col("queues") | F.col("perms"), F.struct(*INSTANCE))
        ).alias("brokers"),
        F.count_if("created").alias("created"),
        F.count_if("removed").alias("removed"),
        F.count_if("queues").alias("queue_changes"),
        F.count_if("perms").alias("perm_changes"),
    )
    return counted.filter(F.col("brokers") > 0).select(*TOPIC_CHURN.fieldNames())
