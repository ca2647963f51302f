"""Compute a day, or a range of days in one pass, and report on it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import date
from importlib import metadata
from pathlib import Path

from pyspark.sql import SparkSession

from spark_jobs.errors import ReportError
from spark_jobs.io import History, Warehouse
from spark_jobs.jobs.pipeline import Progress, compute
from spark_jobs.parameters import FlapParameters
from spark_jobs.report.numbers import Numbers, Span, drawn, report_numbers
from spark_jobs.report.wording import report_folder
from spark_jobs.report.write import write_report


@dataclass(frozen=True, slots=True)
class Request:
    """What a person asked for: a night has the same first and last day."""

    histories: list[str]
    warehouse: str
    first_day: date
    last_day: date
    parameters: FlapParameters
    report: Path | None


def compute_and_report(spark: SparkSession, request: Request, *, say: Progress) -> tuple[Numbers, Path]:
    """Publish the tables, write the report, and return its numbers and the page's path.

    Raises:
        ReportError: the warehouse cannot be written or is in use, or there was an interrupt after the publishing.
    """
    warehouse = Warehouse(spark, request.warehouse)
    try:
        with warehouse.held():
            return _compute_and_report(spark, request, warehouse, say=say)
    except KeyboardInterrupt:
        if not warehouse.published:
            raise
        raise ReportError("interrupted; the tables are published, the report is not finished: run again") from None


def _compute_and_report(
    spark: SparkSession, request: Request, warehouse: Warehouse, *, say: Progress
) -> tuple[Numbers, Path]:
    history = History(spark, request.histories)
    span = Span(request.first_day, request.last_day)
    run = compute(
        history,
        warehouse,
        first_day=span.first_day,
        last_day=span.last_day,
        parameters=request.parameters,
        say=say,
    )
    computed_at = time.monotonic()
    numbers = report_numbers(
        warehouse,
        span,
        parameters=request.parameters,
        run=run,
        version=metadata.version("pointsman"),
    )
    directory = request.report or Path(request.warehouse) / "report" / report_folder(span.first_day, span.last_day)
    path = write_report(directory, numbers, drawn(warehouse, span, numbers), request.parameters)
    say(f"{time.monotonic() - computed_at:6.1f} s  report written")
    return numbers, path
