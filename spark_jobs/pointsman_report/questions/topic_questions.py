"""Questions about one topic: ``route-at``, and the rows that it and ``explain`` read."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any

from pointsman.history.past_route import RouteResult, route_of
from pointsman.history.topic_history import TopicHistory, topic_history_of
from pointsman.history.topic_selection import ObserverRows, TopicQuestion, days_before
from pointsman_report.io.past import Past
from pointsman_report.transforms.observer_windows import MAX_GAPS


def route_at(past: Past, topic: str, at: datetime, *, cluster: str | None) -> RouteResult:
    """Compute the route from the rows of the moment's day and of the day before."""
    at = at.astimezone(UTC)
    question = TopicQuestion(topic, at, *days_before(at), cluster)
    result = route_of(read_topic_history(past, question), topic, at, cluster=cluster)
    return replace(result, of_tables=past.has_tables, of_files=past.has_files)


def read_topic_history(past: Past, question: TopicQuestion) -> TopicHistory:
    """Read the rows of a topic's brokers, and the name servers that were running at the moment."""
    return topic_history_of(past.topic_rows(question), _Windows(past, question.first_day, question.last_day))


class _Windows:
    """The holes and intervals of the computed days: they distinguish lost rows from those dropped by ``compact``."""

    def __init__(self, past: Past, first_day: date, last_day: date) -> None:
        self._rows: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
        columns = ("dt", "node", "boot_id", "gaps", "alive_seconds")
        for row in past.rows("observer_windows", columns, first_day=first_day, last_day=last_day):
            self._rows[row["node"], row["boot_id"]].append(row)

    def holes(self, each: ObserverRows) -> set[tuple[int, int]] | None:
        """The first and last missing number of each hole of the run; None if the tables do not have all of them."""
        rows = self._rows[each.node, each.boot_id]
        if not each.days <= {row["dt"] for row in rows} or any(len(row["gaps"]) >= MAX_GAPS for row in rows):
            return None
        # A hole over midnight is listed on both days.
        return {(gap["from_seq"], gap["to_seq"]) for row in rows for gap in row["gaps"]}

    def alive_seconds(self, each: ObserverRows) -> float | None:
        known = (row["alive_seconds"] for row in self._rows[each.node, each.boot_id])
        return max((seconds for seconds in known if seconds is not None), default=None)
