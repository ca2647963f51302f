"""Rows of raw history as a query on one topic reads them, without Spark."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from datetime import datetime
from typing import Any

from pointsman.history.row_format import ROUTINE
from pointsman.history.topic_history import HistoryRow, NameServerRun, Set, TopicHistory

_FIELDS = [field.name for field in fields(HistoryRow) if field.name not in ("at", "detail", "set")]


def history_row(row: dict[str, Any], topic: str) -> HistoryRow:
    detail, full_set = row["detail"], None
    if row["event"] == "TOPICS":
        queues = detail["topics"].get(topic)
        full_set = Set(
            detail["part"],
            detail["parts"],
            detail["full"],
            detail.get("base"),
            None if queues is None else tuple(queues[:3]),
            topic in detail["removed"],
        )
        detail = {}
    at = datetime.fromisoformat(row["event_at"])
    facts: dict[str, Any] = {name: row.get(name) for name in _FIELDS}
    return HistoryRow(at=at, detail=detail, set=full_set, **facts)


def _hole(own: list[HistoryRow], at: datetime) -> tuple[datetime, datetime] | None:
    """The hole around a moment, by missing numbers."""
    last = [row for row in own if row.at <= at][-1]
    later = [row for row in own if row.at > at]
    return (last.at, later[0].at) if later and later[0].seq > last.seq + 1 else None


def story_of(rows: Iterable[dict[str, Any]], topic: str, *, at: datetime) -> TopicHistory:
    """All rows, as if queried at that moment."""
    history = sorted(
        (history_row(row, topic) for row in rows), key=lambda row: (row.at, row.node, row.boot_id, row.seq)
    )
    lives = []
    for node, boot_id in sorted({(row.node, row.boot_id) for row in history}):
        own = [row for row in history if (row.node, row.boot_id) == (node, boot_id)]
        heard = [row for row in own if row.at <= at]
        if heard:
            hole = _hole(own, at)
            moments = {row.event: row.at for row in reversed(own)}
            lives.append(
                NameServerRun(
                    node=node,
                    boot_id=boot_id,
                    first_at=own[0].at,
                    last_at=heard[-1].at,
                    continues=len(heard) < len(own),
                    missing=heard[-1].seq - heard[0].seq + 1 - len(heard),
                    hole_from_at=hole and hole[0],
                    hole_to_at=hole and hole[1],
                    started_at=moments.get("NAMESRV_STARTED"),
                    ready_at=moments.get("NAMESRV_READY"),
                    draining_at=moments.get("NAMESRV_DRAINING"),
                    stopped_at=moments.get("NAMESRV_STOPPED"),
                )
            )
    return TopicHistory(
        lives, [row for row in history if row.event not in ROUTINE], history[-1].at if history else None
    )
