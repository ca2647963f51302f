"""Two days that differ in every subject of ``compare``, and a third that is as the second: the rows of their tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from typing import Any

from pointsman.history.row_format import Row
from tests.kit.report.stated_past import StatedPast
from tests.spark.histories import MIDNIGHT

ONE = MIDNIGHT.date()
OTHER, QUIET = ONE + timedelta(days=1), ONE + timedelta(days=2)

Facts = dict[str, Any]


def broker(name: str, **facts: Any) -> Facts:
    return {"cluster": "c1", "broker_name": name, "broker_id": 0} | facts


def cluster(name: str, availability: float, **facts: Any) -> Facts:
    down = (1 - availability) * 86_400
    return {"cluster": name, "availability": availability, "down_seconds": down, "outages": 1, "brokers": 3} | facts


def hot(topic: str, kind: str = "key_skew") -> Facts:
    document = {"says": f"{topic} is uneven", "cure": "shard it", "value": 5.0, "limit": 3.0}
    return {"cluster": "c1", "kind": kind, "topic": topic, "broker_name": "a", "queue_id": 1} | document


def at_risk(topic: str, unwritable: float) -> Facts:
    seconds = {"unwritable_seconds": unwritable, "no_master_seconds": 0.0, "one_broker_seconds": 5.0}
    return {"cluster": "c1", "topic": topic, "brokers": 2, "worst": "one_broker"} | seconds


BEFORE: dict[str, list[Facts]] = {
    "cluster_health": [cluster("c1", 0.9999), cluster("c2", 0.99), cluster("same", 0.99999), cluster("closed", 1.0)],
    "incidents": [{"incident_id": f"i{n}", "cluster": "same", "brokers": 3} for n in range(2)],
    "flapping": [
        *(broker(f"b{n:02}", **{"class": "healthy"}) for n in range(25)),
        broker("repaired", **{"class": "chronic"}),
        broker("young", **{"class": "new"}),
        broker("left", **{"class": "healthy"}),
    ],
    "heartbeat_punctuality": [broker("a", p99_ms=30_000.0), broker("b", p99_ms=50_000.0), broker("c", p99_ms=300.0)],
    "topics_at_risk": [at_risk("orders", 10.0), at_risk("bills", 900.0), at_risk("mails", 0.0)],
    "topic_churn": [
        {"cluster": "c1", "topic": "orders", "created": 1, "removed": 0, "queue_changes": 2, "perm_changes": 0}
    ],
    "hot_queues": [hot("orders"), hot("bills")],
    "namesrv_days": [{"node": "ns1", "starts": 1, "vanished": 0}, {"node": "ns2", "rows_missing": 7, "vanished": 0}],
}  # fmt: skip
AFTER: dict[str, list[Facts]] = {
    "cluster_health": [cluster("c1", 0.98), cluster("c2", 0.995), cluster("same", 0.999985), cluster("opened", 1.0)],
    "incidents": [{"incident_id": "i3", "cluster": "same", "brokers": 3}],
    "flapping": [
        *(broker(f"b{n:02}", penalty_max=float(n), **{"class": "dead" if n == 3 else "degraded"}) for n in range(25)),
        broker("repaired", **{"class": "healthy"}),
        broker("young", **{"class": "healthy"}),
        broker("came", **{"class": "new"}),
    ],
    "heartbeat_punctuality": [broker("a", p99_ms=70_000.0), broker("b", p99_ms=30_000.0), broker("c", p99_ms=900.0)],
    "topics_at_risk": [at_risk("orders", 100.0), at_risk("bills", 800.0), at_risk("new", 3.0)],
    "topic_churn": [],
    "hot_queues": [hot("orders"), hot("mails", kind="too_many_queues")],
    "namesrv_days": [{"node": "ns1", "starts": 2, "vanished": 1}, {"node": "ns2", "rows_missing": 0, "vanished": 0}],
}
TABLES_OF_DAYS: dict[date, dict[str, list[Facts]]] = {
    day: tables | {"computed_days": [{}]} for day, tables in ((ONE, BEFORE), (OTHER, AFTER), (QUIET, AFTER))
}


def stated_days(days: Mapping[date, Mapping[str, Sequence[Facts]]]) -> StatedPast:
    """The tables of these days as a question reads them."""
    tables: dict[str, list[Row]] = {}
    for day, of_day in days.items():
        for table, rows in of_day.items():
            tables.setdefault(table, []).extend({"dt": day, **facts} for facts in rows)
    return StatedPast(tables)
