"""What somebody has to look at, in a line each."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from typing import Any

from spark_jobs.report.classes import FINDINGS
from spark_jobs.report.wording import label

MOST_NAMED = 5


def findings(brokers: list[dict[str, Any]], completeness: dict[str, Any]) -> list[str]:
    """Say what somebody has to look at; none means all is well."""
    return [*_nobody_looked(completeness), *_classes(brokers), *_history(completeness)]


def _nobody_looked(data: dict[str, Any]) -> Iterable[str]:
    if data["warehouse_ends_on"]:
        after = date.fromisoformat(data["warehouse_ends_on"]) + timedelta(days=1)
        yield (
            f"the warehouse ends on {data['warehouse_ends_on']}: run pointsman-report backfill --from {after} "
            f"--to {data['last_day']}, or what was down since then is forgotten"
        )
    if data["rows"] == 0:
        yield "NO DATA: not one row of history for these days; nothing can be said about any broker"
        return
    if data["days_without_rows"]:
        yield f"no rows at all on {_some(data['days_without_rows'], 'more days')}"
    for cluster, days in data["unwatched_clusters"].items():
        yield f"nobody watched cluster {cluster} on {_some(days, 'more days')}"
    if data["fell_silent"]:
        last = data["fell_silent"]
        yield (
            f"no name server watched at the end of {data['last_day']}: {last['node']} fell silent at {last['to_at']} "
            "and did not say that it stopped"
        )


def _classes(brokers: list[dict[str, Any]]) -> Iterable[str]:
    for name in FINDINGS:
        named = [label(broker) for broker in brokers if broker["class"] == name]
        if named:
            yield f"{len(named)} {name}: {_some(named, 'more')}"


def _history(data: dict[str, Any]) -> Iterable[str]:
    if data["rows_missing"]:
        yield f"{data['rows_missing']} rows of history were lost (numbers missing)"
    if data["rows_ahead"]:
        yield f"{data['rows_ahead']} rows of history are dated in the future: a clock is or was wrong"
    files = data["unreadable_files"]
    if files:
        yield f"{len(files)} files of history cannot be read to their end: {_some(files, 'more')}"
    lines = data["quarantined_lines"] - len(files)
    if lines:
        yield f"{lines} lines of history could not be read and are in quarantine"


def fell_silent(
    observers: list[dict[str, Any]], stopped: set[tuple[str, str]], *, last_day: date
) -> dict[str, Any] | None:
    """Return the last observer to watch if nobody watched at the last day's end and that one did not stop politely."""
    watched = [observer for observer in observers if observer["from_at"] is not None]
    # A day that is not over yet has no end that anybody could have watched.
    over = datetime.now(tz=UTC).date() > last_day
    if not over or not watched or any(observer["open"] for observer in watched):
        return None
    last = max(watched, key=lambda observer: observer["to_at"])
    return None if (last["node"], last["boot_id"]) in stopped else last


def _some(names: list[str], more: str) -> str:
    rest = f" and {len(names) - MOST_NAMED} {more}" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + rest
