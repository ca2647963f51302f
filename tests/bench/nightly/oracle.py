"""DuckDB computes ingest and intervals of a day from the same files: a peer in speed, and an oracle for the tables."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import duckdb

EPOCH = date(1970, 1, 1)
INTERVAL = "cluster, broker_name, broker_id, state, planned, start_at, end_at"


@dataclass(frozen=True, slots=True)
class Oracle:
    """DuckDB's result for a day."""

    seconds: float
    events: int
    intervals: int
    differing: list[tuple[Any, ...]]
    """Intervals that only one of the two has, at most ten."""
    events_differ: int


def compute(histories: Iterable[Path], warehouse: Path, *, day: date) -> Oracle:
    """Compute the day from raw history, and compare events and intervals with the tables that Spark published.

    It runs in a separate process: DuckDB warns of leaks at the exit of a process that imported it.
    """
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as apart:
        return apart.submit(_compute, list(histories), warehouse, day).result()


def _compute(histories: list[Path], warehouse: Path, day: date) -> Oracle:
    import duckdb  # noqa: PLC0415 - see compute

    files = [str(path) for history in histories for path in sorted((history / "raw").rglob("*.jsonl*"))]
    start = (day - EPOCH) // timedelta(microseconds=1)
    given = {"files": files, "day_start": start, "day_end": start + 86_400_000_000}
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'; SET enable_progress_bar = false")
    began = time.monotonic()
    for statement in duckdb.extract_statements(resources.files(__package__).joinpath("oracle.sql").read_text("utf-8")):
        connection.execute(statement, {name: given[name] for name in statement.named_parameters})
    seconds = time.monotonic() - began
    of_day = f"{warehouse}/{{}}/dt={day}/*.parquet"
    ours = f"""
        SELECT
            cluster, broker_name, broker_id, state, planned, epoch_us(start_at) AS start_at, epoch_us(end_at) AS end_at
        FROM read_parquet('{of_day.format("broker_intervals")}')
    """
    theirs = f"SELECT {INTERVAL} FROM intervals"
    differing = connection.execute(f"""
        (({ours}) EXCEPT ALL ({theirs})) UNION ALL (({theirs}) EXCEPT ALL ({ours})) LIMIT 10
    """).fetchall()
    key = "node, boot_id, seq, event"
    published = f"SELECT {key} FROM read_parquet('{of_day.format('registration_events')}')"
    events_differ = _number(
        connection,
        f"SELECT count(*) FROM ((({published}) EXCEPT ALL (SELECT {key} FROM events)) "
        f"UNION ALL ((SELECT {key} FROM events) EXCEPT ALL ({published})))",
    )
    return Oracle(
        seconds=seconds,
        events=_number(connection, "SELECT count(*) FROM events"),
        intervals=_number(connection, "SELECT count(*) FROM intervals"),
        differing=[_readable(row) for row in differing],
        events_differ=events_differ,
    )


def _number(connection: duckdb.DuckDBPyConnection, query: str) -> int:
    row = connection.execute(query).fetchone()
    return int(row[0]) if row else 0


def _readable(row: tuple[Any, ...]) -> tuple[Any, ...]:
    *names, start, end = row
    zero = datetime(1970, 1, 1)  # noqa: DTZ001 - for display, UTC as all times here
    return (*names, *(str(zero + timedelta(microseconds=us)) for us in (start, end)))
