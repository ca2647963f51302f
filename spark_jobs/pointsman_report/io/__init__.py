"""Reading and writing of tables and raw history; no other package does it. Paths may be Hadoop URIs."""

from __future__ import annotations

from pointsman_report.io.raw_files import GZIP_FAULT, History, HistoryNotFoundError, files_that_may_hold
from pointsman_report.io.spark_past import SparkPast
from pointsman_report.io.warehouse import FILE, Warehouse, days_from

__all__ = [
    "FILE",
    "GZIP_FAULT",
    "History",
    "HistoryNotFoundError",
    "SparkPast",
    "Warehouse",
    "days_from",
    "files_that_may_hold",
]
