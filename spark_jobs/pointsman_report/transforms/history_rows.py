"""Typed rows from raw lines; lines that are not history rows go to quarantine, with the reason.

The day of a row is that of its ``event_at``, whatever folder its file is in.
"""

from __future__ import annotations

from datetime import date

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from pointsman.history.row_format import (
    ABOUT_A_REPLICA,
    EVENT,
    MAY_BE_ABOUT_ONE,
    REQUIRED,
    ROW_TIME,
    SCHEMA_VERSION,
    STATES,
)
from pointsman_report.schemas import INSTANCE
from pointsman_report.schemas.history_tables import HISTORY_ROW_JSON, QUARANTINE, RAW_LINE, REGISTRATION_EVENTS
from pointsman_report.transforms.utc_days import lit_day

QUARANTINED_CHARACTERS = 1_000
_FOLDER_DAY = r"dt=(\d{4}-\d{2}-\d{2})"
_UNPARSED = "_unparsed"
_SPACE = " \t\r\n"
_ROW = ("dt", "node", "boot_id", "seq")
_CLOCK_WRONG_DAYS = 2
"""A row older than its folder by more than this was dated by a wrong clock."""
_FIRST_DAY, _LAST_DAY = date(1970, 1, 1), date(9999, 12, 31)


def parsed_lines(lines: DataFrame) -> DataFrame:
    """Give each line its fields, its day ``dt`` and, if it is not a history row, the ``problem``.

    Only bad lines keep ``line`` and have ``file_day``: the day of the folder, else of the file.

    One row per line; no key.
    """
    source = lines.select(*RAW_LINE.fieldNames())
    as_json = T.StructType([*HISTORY_ROW_JSON.fields, T.StructField(_UNPARSED, T.StringType())])
    row = F.from_json("line", as_json, {"columnNameOfCorruptRecord": _UNPARSED, "allowSingleQuotes": "false"})
    fields = source.withColumn("row", row).select(*RAW_LINE.fieldNames(), "row.*")
    timed = fields.withColumn("happened_at", F.when(F.col("event_at").rlike(ROW_TIME), F.try_to_timestamp("event_at")))
    # Costly, and needed for bad lines only, so not computed as a column before these are known.
    file_day = F.coalesce(_folder_day(), F.to_date("file_modified_at"))
    dated = timed.withColumn("dt", F.coalesce(F.to_date("happened_at"), file_day))
    judged = dated.withColumn("problem", _problem())
    is_good = F.col("problem").isNull()
    of_bad = {"line": F.when(~is_good, F.col("line")), "file_day": F.when(~is_good, file_day)}
    return judged.withColumns({"other": F.when(is_good, _other()), **of_bad})


def _folder_day() -> Column:
    day = F.try_to_date(F.nullif(F.regexp_extract("file", _FOLDER_DAY, 1), F.lit("")), "yyyy-MM-dd")
    return F.when(day >= lit_day(_FIRST_DAY), day)


def _other() -> Column:
    """The fields of a line that the format does not name, as a JSON object; null if there are none."""
    named = [F.lit(field.name) for field in HISTORY_ROW_JSON.fields]
    foreign = F.size(F.array_except(F.json_object_keys("line"), F.array(*named))) > 0
    fields = F.map_filter(F.from_json("line", "map<string,variant>"), lambda name, _: ~name.isin(*named))
    # Few lines have any: only those are parsed once more.
    return F.when(foreign, F.to_json(fields))


def _problem() -> Column:
    """The reason why a line is not a history row; null for a good line."""
    missing = F.concat_ws(", ", *(F.when(F.col(name).isNull(), F.lit(name)) for name in REQUIRED))
    anonymous = F.concat_ws(", ", *(F.when(F.col(name).isNull(), F.lit(name)) for name in INSTANCE))
    about_one = F.col("event").isin(*ABOUT_A_REPLICA)
    has_state = about_one | (F.col("event").isin(*MAY_BE_ABOUT_ONE) & F.col("broker_id").isNotNull())
    is_known = F.coalesce(F.col("state").isin(*STATES), F.lit(False))
    # Few lines have spaces, and searching for them at the end takes as long as parsing the line.
    is_object = F.startswith("line", F.lit("{")) | F.ltrim("line", F.lit(_SPACE)).startswith("{")
    is_ended = F.endswith("line", F.lit("}")) | F.rtrim("line", F.lit(_SPACE)).endswith("}")
    # Spark's parsers stop after the first object of a line; inside an array they must read to its end.
    as_array = F.concat(F.lit("["), "line", F.lit("]"))
    alone = F.coalesce(F.json_array_length(as_array) == 1, F.lit(False)) & is_ended
    # An object that parses as JSON but not with this schema has a field of the wrong type. This parser also accepts
    # single quotes.
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
            F.format_string(f"schema_version is %d, not {SCHEMA_VERSION}", "schema_version"),
        )
        .when(missing != "", F.concat(F.lit("missing: "), missing))
        .when(F.col("happened_at").isNull(), "event_at is not an RFC 3339 time")
        .when(F.col("seq") < 1, "seq is below 1")
        .when(~F.col("event").rlike(EVENT), "event is not in capital letters")
        .when(about_one & (anonymous != ""), F.concat(F.lit("names no broker: "), anonymous))
        .when(has_state & ~is_known, F.concat(F.lit("no known state: "), F.coalesce("state", F.lit("null"))))
    )


def with_copies(parsed: DataFrame, stored: DataFrame | None = None, *, first_day: date, last_day: date) -> DataFrame:
    """Return the good rows read, and the rows that the warehouse already holds.

    One row per copy of a row of the history; key: that of `each_once`, which copies share.
    """
    good = _good(parsed).filter(_within("dt", first_day, last_day)).withColumn("event_at", F.col("happened_at"))
    columns = REGISTRATION_EVENTS.columns
    read = good.select(*columns)
    return read if stored is None else stored.select(*columns).unionByName(read)


def each_once(rows: DataFrame, *divided_by: str) -> DataFrame:
    """Return each row of the history once: of the rows with one number the smallest, regardless of file and run.

    ``divided_by``: columns that follow from the key, and by which the rows are divided: Spark does not divide them
    again.

    One row per row of the history; key: ``dt``, observer, ``seq``.
    """
    others = (name for name in REGISTRATION_EVENTS.columns if name not in _ROW)
    same_row = Window.partitionBy(*_ROW, *divided_by).orderBy(*others)
    once = rows.withColumn("copy", F.row_number().over(same_row)).filter(F.col("copy") == 1)
    return once.drop("copy")


def quarantine(
    stored: DataFrame, parsed: DataFrame, read_files: DataFrame, *, first_day: date, last_day: date
) -> DataFrame:
    """Return each bad line once: a file and its gzipped copy have the same lines.

    Stored lines of ``read_files`` (a column ``name``, without ``.gz``) are replaced by what was read from these files
    now. A line dated outside the days is listed under its file's day: a wrong clock must not spread it over years.

    One row per bad line; key: ``dt``, ``file``, ``reason``, ``line``, which equal lines of a file share.
    """
    bad = parsed.filter(F.col("problem").isNotNull())
    # A line that occurs three times in a file is bad three times.
    nth = bad.withColumn("nth", F.row_number().over(Window.partitionBy("file", "line").orderBy("problem")))
    # A read error of a gzip belongs to the gzip, not to the file it was made from.
    plain = F.when(F.col("fault").isNull(), _plain_name("file")).otherwise(F.col("file"))
    of_file = nth.withColumn("file", plain).withColumn("dt", quarantine_day(first_day=first_day, last_day=last_day))
    first = Window.partitionBy("file", "line", "nth").orderBy("problem", "dt")
    once = of_file.withColumn("copy", F.row_number().over(first)).filter(F.col("copy") == 1)
    cut = once.withColumn("line", F.substring("line", 1, QUARANTINED_CHARACTERS)).withColumn("reason", F.col("problem"))
    others = stored.join(F.broadcast(read_files), on=_plain_name("file") == read_files["name"], how="left_anti")
    columns = QUARANTINE.columns
    return others.select(*columns).unionByName(cut.select(*columns))


def quarantine_day(*, first_day: date, last_day: date) -> Column:
    """The day under which a bad line is listed: its own if it is within the days, else that of its file."""
    return F.when(_within("dt", first_day, last_day), F.col("dt")).otherwise(F.col("file_day"))


def read_of_files(parsed: DataFrame, *, first_day: date, last_day: date) -> DataFrame:
    """Count good rows and bad lines by file and day; the day is null for rows dated outside the days.

    One row per file, day and fault; key: ``file``, ``day``, ``fault``.
    """
    is_good, inside = F.col("problem").isNull(), _within("dt", first_day, last_day)
    older, ahead = is_good & (F.col("dt") < lit_day(first_day)), is_good & (F.col("dt") > lit_day(last_day))
    behind_folder = F.date_diff(F.when(older, _folder_day()), "dt") > _CLOCK_WRONG_DAYS
    of_quarantine = quarantine_day(first_day=first_day, last_day=last_day)
    day = F.when(is_good & inside, F.col("dt")).when(~is_good, of_quarantine)
    # With the fault as an aggregate, Spark would sort all rows: it is a text.
    counted = parsed.groupBy("file", day.alias("day"), "fault").agg(
        F.count_if(is_good & inside).alias("rows"),
        F.count_if(~is_good).alias("bad_lines"),
        F.count_if(older).alias("older_rows"),
        F.greatest(F.max(F.when(older, F.col("dt"))), lit_day(_FIRST_DAY)).alias("older_to"),
        F.count_if(behind_folder).alias("misdated_rows"),
        F.count_if(ahead).alias("ahead_rows"),
        F.least(F.min(F.when(ahead, F.col("dt"))), lit_day(_LAST_DAY)).alias("ahead_from"),
    )
    # greatest() and least() skip nulls, so without such a row they would return the bound.
    return counted.withColumns(
        {
            "older_to": F.when(F.col("older_rows") > 0, F.col("older_to")),
            "ahead_from": F.when(F.col("ahead_rows") > 0, F.col("ahead_from")),
        }
    )


def unseen_by_file(parsed: DataFrame, stored: DataFrame) -> DataFrame:
    """Count the good rows by file that are missing among the stored rows of their days.

    One row per file; key: ``file``.
    """
    missing = _good(parsed).join(stored.select(*_ROW), on=list(_ROW), how="left_anti")
    return missing.groupBy("file").agg(F.count("*").alias("rows"))


def observer_times(events: DataFrame) -> DataFrame:
    """When each observer was ready, stopped and wrote its first and last row, in the days' rows and the next day's.

    The next day's rows show that a name server kept running past midnight. Later rows do not count: a single row that a
    jumping clock dated years ahead must not extend the run of a killed name server.

    One row per observer; key: observer.
    """
    at = F.unix_micros("event_at")
    event = F.col("event")
    return events.groupBy("node", "boot_id").agg(
        F.min(at).alias("first_us"),
        F.max(at).alias("last_us"),
        F.min(F.when(event == "NAMESRV_READY", at)).alias("ready_us"),
        F.min(F.when(event == "NAMESRV_STOPPED", at)).alias("stopped_us"),
        F.min(F.when(event != "NAMESRV_STARTED", at)).alias("working_us"),
    )


def _good(parsed: DataFrame) -> DataFrame:
    return parsed.filter(F.col("problem").isNull())


def _within(day: str, first_day: date, last_day: date) -> Column:
    return F.col(day).between(lit_day(first_day), lit_day(last_day))


def _plain_name(file: str) -> Column:
    return F.regexp_replace(file, r"\.gz$", "")
