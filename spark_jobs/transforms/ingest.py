"""From raw lines to typed rows, and the lines that are none to the quarantine, with the reason.

A row's day is that of its ``event_at``; the folder it lay in decides nothing.
"""

from __future__ import annotations

from datetime import date, datetime, timedelta

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_jobs.schemas import HISTORY_ROW_JSON, INSTANCE, QUARANTINE, RAW_LINE, REGISTRATION_EVENTS
from spark_jobs.transforms.days import lit_day
from spark_jobs.transforms.opinions import SIGNALS

SCHEMA_VERSION = 1
REQUIRED = ("schema_version", "event_at", "event", "node", "boot_id", "seq")
QUARANTINED_CHARACTERS = 1_000

_TIME = r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d{1,9})?(Z|[+-]\d{2}:\d{2})$"
_EVENT = "^[A-Z_]+$"
_FOLDER_DAY = r"dt=(\d{4}-\d{2}-\d{2})"
_UNPARSED = "_unparsed"


def parsed_lines(lines: DataFrame) -> DataFrame:
    """Give each line its fields, its day ``dt`` and, where it is no history row, the ``problem``."""
    source = lines.select(*RAW_LINE.fieldNames())
    as_json = T.StructType([*HISTORY_ROW_JSON.fields, T.StructField(_UNPARSED, T.StringType())])
    row = F.from_json("line", as_json, {"columnNameOfCorruptRecord": _UNPARSED, "allowSingleQuotes": "false"})
    fields = source.withColumn("row", row).select(*RAW_LINE.fieldNames(), "row.*")
    timed = fields.withColumn("happened_at", F.when(F.col("event_at").rlike(_TIME), F.try_to_timestamp("event_at")))
    folder_day = F.try_to_date(F.nullif(F.regexp_extract("file", _FOLDER_DAY, 1), F.lit("")), "yyyy-MM-dd")
    day = F.coalesce(F.to_date("happened_at"), folder_day, F.to_date("file_modified_at"))
    return timed.withColumn("dt", day).withColumn("problem", _problem())


def _problem() -> Column:
    """Say why a line is no history row; null for a good one."""
    missing = F.concat_ws(", ", *(F.when(F.col(name).isNull(), F.lit(name)) for name in REQUIRED))
    anonymous = F.concat_ws(", ", *(F.when(F.col(name).isNull(), F.lit(name)) for name in INSTANCE))
    # A checkpoint tells of permissions and of the whole node as well.
    about_a_broker = F.col("event").isin(*SIGNALS) & (F.col("event") != "CHECKPOINT")
    is_object = F.col("line").rlike(r"^\s*\{")
    # Spark's parsers stop behind the first object of a line; within an array they have to read on to its end.
    as_array = F.concat(F.lit("["), "line", F.lit("]"))
    whole = F.get_json_object(as_array, "$").isNotNull() & F.col("line").rlike(r"\}\s*$")
    alone = whole & F.get_json_object(as_array, "$[1]").isNull()
    # An object that parses as JSON but not as our fields has a field of another type; this parser takes 'text' too.
    is_json = F.get_json_object("line", "$").isNotNull() & ~F.col("line").rlike(r"^\s*\{\s*'")
    return (
        F.when(F.col("fault").isNotNull(), F.col("fault"))
        .when(F.length(F.trim("line")) == 0, "empty line")
        .when(~is_object, "not a JSON object")
        .when(F.col(_UNPARSED).isNotNull() & ~is_json, "torn or not JSON")
        .when(~alone, "more than one JSON object on the line")
        .when(F.col(_UNPARSED).isNotNull(), "a field is not of its type")
        .when(
            F.col("schema_version") != SCHEMA_VERSION,
            F.format_string("schema_version %d is not read here", "schema_version"),
        )
        .when(missing != "", F.concat(F.lit("missing: "), missing))
        .when(F.col("happened_at").isNull(), "event_at is no RFC 3339 time")
        .when(F.col("seq") < 1, "seq is below 1")
        .when(~F.col("event").rlike(_EVENT), "event is not of capital letters")
        .when(about_a_broker & (anonymous != ""), F.concat(F.lit("names no broker: "), anonymous))
    )


def registration_events(parsed: DataFrame, *, first_day: date, last_day: date) -> DataFrame:
    """Keep each good row of the days once, however many files repeat it."""
    of_days = F.col("dt").between(lit_day(first_day), lit_day(last_day))
    good = parsed.filter(F.col("problem").isNull() & of_days).withColumn("event_at", F.col("happened_at"))
    same_row = Window.partitionBy("node", "boot_id", "seq").orderBy("event_at", "event", "detail", "line")
    once = good.withColumn("copy", F.row_number().over(same_row)).filter(F.col("copy") == 1)
    return once.select(*REGISTRATION_EVENTS.fieldNames())


def quarantine(parsed: DataFrame, *, first_day: date, last_day: date) -> DataFrame:
    """Keep each bad line of the days once: a file and its gzipped copy hold the same lines."""
    of_days = F.col("dt").between(lit_day(first_day), lit_day(last_day))
    bad = parsed.filter(F.col("problem").isNotNull() & of_days)
    # A line that stands three times in a file was bad three times.
    nth = bad.withColumn("nth", F.row_number().over(Window.partitionBy("file", "line").orderBy("problem")))
    # The fault of a gzip is its own, not that of the file it was made of.
    plain = F.when(F.col("fault").isNull(), F.regexp_replace("file", r"\.gz$", "")).otherwise(F.col("file"))
    unpacked = nth.withColumn("file", plain)
    once = unpacked.dropDuplicates(["file", "line", "nth"])
    cut = once.withColumn("line", F.substring("line", 1, QUARANTINED_CHARACTERS)).withColumn("reason", F.col("problem"))
    return cut.select(*QUARANTINE.fieldNames())


def rows_ahead(parsed: DataFrame, *, last_day: date, now: datetime) -> DataFrame:
    """Keep the good rows that no right clock can have dated: they lie more than a day ahead of the days and of now."""
    latest = F.to_date(F.lit((now + timedelta(days=1)).date().isoformat()))
    beyond = (F.col("dt") > F.date_add(lit_day(last_day), 1)) & (F.col("dt") > latest)
    return parsed.filter(F.col("problem").isNull() & beyond).dropDuplicates(["node", "boot_id", "seq"])


def heard(parsed: DataFrame, *, first_day: date, last_day: date) -> DataFrame:
    """Say of each observer when it was ready, stopped and last heard, from the first day to the day after the last.

    A day's run may so see that a name server went on the next morning, which the day's own rows cannot tell. But a
    single row that a jumping clock dated years ahead must not make a killed name server watch until then.
    """
    near = F.col("dt").between(lit_day(first_day), F.date_add(lit_day(last_day), 1))
    good = parsed.filter(F.col("problem").isNull() & near)
    at = F.unix_micros("happened_at")
    event = F.col("event")
    return good.groupBy("node", "boot_id").agg(
        F.min(at).alias("first_us"),
        F.max(at).alias("last_us"),
        F.min(F.when(event == "NAMESRV_READY", at)).alias("ready_us"),
        F.min(F.when(event == "NAMESRV_STOPPED", at)).alias("stopped_us"),
        F.min(F.when(event != "NAMESRV_STARTED", at)).alias("working_us"),
    )
