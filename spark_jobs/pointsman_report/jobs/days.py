"""Compute a day, or a range of days in one pass, and report on it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from pyspark.sql import SparkSession

from pointsman_report import __version__
from pointsman_report.hadoop_files import Files, absolute
from pointsman_report.io import History, Warehouse
from pointsman_report.jobs.history_reading import Progress, Work
from pointsman_report.jobs.pipeline import compute
from pointsman_report.parameters import Parameters
from pointsman_report.report.collect import collect_report
from pointsman_report.report.contents import Report
from pointsman_report.report.formatting import report_folder
from pointsman_report.report.output import report_files, write_remote_report, write_report, write_textfile
from pointsman_report.report.sections.broker_states import collect_drawn
from pointsman_report.report.span import Span
from pointsman_report.report_errors import ReportError, one_line


@dataclass(frozen=True, slots=True)
class Request:
    """Parameters of a run. A nightly run has the same first and last day; days are those of the report's time zone."""

    histories: list[str]
    warehouse: str
    first_day: date
    last_day: date
    parameters: Parameters
    report: Path | None
    textfile: Path | None = None
    accept_late: bool = False
    """Accept late rows of the last days too."""
    reread: bool = False
    """Read only the raw history of these days, not the rows stored in the warehouse."""


def compute_and_report(spark: SparkSession, request: Request, *, log: Progress) -> tuple[Report, str]:
    """Publish the tables, write the report, and return it and the path of its page.

    Raises:
        ReportError: the warehouse cannot be written or is in use; or the tables were published, but the report failed.
    """
    warehouse = Warehouse(spark, request.warehouse)
    try:
        with warehouse.locked():
            return _compute_and_report(spark, request, warehouse, log=log)
    except KeyboardInterrupt:
        if not warehouse.published:
            raise
        raise ReportError("interrupted; the tables are published, the report is incomplete: run again") from None
    except OSError as error:
        if not warehouse.published:
            raise
        raise ReportError(f"the tables are published, but the report failed: {one_line(error)}") from error


def _compute_and_report(
    spark: SparkSession, request: Request, warehouse: Warehouse, *, log: Progress
) -> tuple[Report, str]:
    history = History(spark, request.histories)
    zone = request.parameters.report.zone
    span = Span(request.first_day, request.last_day, zone, now_us=time.time_ns() // 1_000)
    # A local day overlaps two UTC days; an unfinished one is computed up to now, and recomputed the next night.
    run = compute(
        Work(
            history,
            warehouse,
            span.first_utc_day,
            span.last_utc_day,
            request.parameters,
            log,
            accept_late=request.accept_late,
            reread=request.reread,
        )
    )
    computed_at = time.monotonic()
    report = collect_report(warehouse, span, parameters=request.parameters, run=run, version=__version__)
    page = _write(spark, request, report_files(report, collect_drawn(warehouse, span, report.brokers)))
    if request.textfile is not None:
        write_textfile(request.textfile, report, succeeded_at=time.time())
    log(f"{time.monotonic() - computed_at:6.1f} s  report written")
    return report, page


def _write(spark: SparkSession, request: Request, texts: dict[str, str]) -> str:
    if request.report is not None:
        return write_report(request.report, texts)
    files = Files(spark)
    folder = f"{absolute(request.warehouse).rstrip('/')}/report/{report_folder(request.first_day, request.last_day)}"
    local = files.local(folder)
    return write_remote_report(files, folder, texts) if local is None else write_report(local, texts)
