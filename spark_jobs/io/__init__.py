"""The only place that reads and writes tables and raw history. Paths are anything Hadoop can name."""

from __future__ import annotations

from spark_jobs.io.calendar import days_from
from spark_jobs.io.raw_history import GZIP_FAULT, History, HistoryNotFoundError, files_that_may_hold
from spark_jobs.io.warehouse import Warehouse

__all__ = ["GZIP_FAULT", "History", "HistoryNotFoundError", "Warehouse", "days_from", "files_that_may_hold"]
