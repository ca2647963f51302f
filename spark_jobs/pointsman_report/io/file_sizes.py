"""How a day's rows are divided over tasks and files: a small day is one file, a big one a few, written side by side."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

MOST_ROWS_A_FILE = 2_000_000
"""Keeps a file of a table below 128 MB."""
MOST_TASKS = 400
GROUP_BYTES = 8 * 2**20
"""Rows of a file that one task reads, as they lie in a writer's memory: a group as large as the file is read by one
task alone, whatever the others do. Of 4 MB the file was twice as large."""
GROUP_OPTIONS = {"parquet": "parquet.block.size", "orc": "orc.stripe.size"}


def divided(rows: DataFrame, keys: tuple[str, ...], counts: Mapping[date, int], spark: SparkSession) -> DataFrame:
    """Bring together what goes into one file. ``counts`` are rows by day, or a little more; other days are small."""
    parts = {day: -(-count // MOST_ROWS_A_FILE) for day, count in counts.items() if count > MOST_ROWS_A_FILE}
    if not parts:
        return rows.repartition("dt")
    days = sorted(counts)
    tasks = min(MOST_TASKS, sum(parts.get(day, 1) for day in days))
    landing = _landing_numbers(spark, tasks)
    task_of: Column = F.lit(landing[0])
    first = 0
    for day in days:
        share = F.pmod(F.hash(*keys), F.lit(parts.get(day, 1)))
        numbers = F.array(*(F.lit(landing[(first + n) % tasks]) for n in range(parts.get(day, 1))))
        task_of = F.when(F.col("dt") == F.lit(day), F.element_at(numbers, share + 1)).otherwise(task_of)
        first += parts.get(day, 1)
    return rows.repartition(tasks, task_of)


def _landing_numbers(spark: SparkSession, tasks: int) -> list[int]:
    """For each task a number that Spark's own partitioning sends there: chance would give one task two big parts."""
    numbers = spark.range(tasks * 40).select("id", F.pmod(F.hash(F.col("id").cast("int")), F.lit(tasks)).alias("task"))
    found = {row["task"]: row["number"] for row in numbers.groupBy("task").agg(F.min("id").alias("number")).collect()}
    return [found.get(task, task) for task in range(tasks)]
