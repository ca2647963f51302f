"""The numbers of a report with every table and every note, to be read for their texts: each figure is 1."""

from __future__ import annotations

from typing import Any

from tests.fakes.report_numbers import a_broker, a_cluster, calm_numbers

_TIME = "2026-03-05T10:00:00.000Z"


class _Row(dict[str, Any]):
    """A row of a table; a column that is not given is 1."""

    def __missing__(self, name: str) -> Any:
        return _TIME if name.endswith("_at") else 1


def _row(**given: Any) -> _Row:
    return _Row({"cluster": "orders", "broker_name": "broker-a", "node": "ns1", "topic": "payments"} | given)


def _one(**given: Any) -> dict[str, Any]:
    """One row of two."""
    return {"rows": [_row(**given)], "in_all": 2, "left_out": 1}


def busy_numbers() -> dict[str, Any]:
    because = {"cause": "network", "evidence": "fell silent together"}
    outage = _row(seconds=9.0, reason="SILENCE", **because)
    change = {"before": "1.0", "after": "2.0"}
    said = {"says": "one member is slow", "cure": "restart it", "kind": "falling_behind"}
    day = {"clusters": {"orders": {"availability": 0.5, "slo": 0.999}}}
    measured = _Row(steps=[{"up_to_seconds": 1.0, "count": 2}, {"up_to_seconds": 79.4, "count": 1}])
    numbers = calm_numbers(
        interval={"from_at": "2026-03-04T23:00:00.000Z", "to_at": "2026-03-05T23:00:00.000Z"}
        | {"timezone": "Europe/Berlin", "from_offset": "+01:00", "to_offset": "+01:00"},
        headline={
            "new": {"count": 1, "brokers": ["orders/new/0"]},
            "gone": {"count": 1, "brokers": ["orders/gone/0"]},
            "clusters": [a_cluster("orders", availability=0.5, budget_left_seconds=-9.0), a_cluster("payments")],
            "clusters_left_out": 1,
            "notices": ["the clocks changed"],
        },
        incidents=_one(scope="host", scope_name="host-3", members=[_row()], topics=["payments"], **because)
        | {"drawn": [{"from_at": _TIME, "brokers": 3, "scope": "host"}]},
        rolling_restarts=_one(members=[_row()], version_before="1.0", version_after="2.0"),
        guard_periods=_one(open=False, nodes=["ns1", "ns2"], modes=["AUTO"]),
        topics_at_risk=_one(worst="no_master"),
        topic_churn=_one(),
        punctuality=_one() | {"histogram": [{"up_to_ms": 1_000, "beats": 7}], "clocks": _one()},
        outages={"outage_seconds": measured, "detection_seconds": measured, "censored_outages": 1},
        name_servers={
            "nodes": _one(),
            "clocks": [_row()],
            "partial_views": _one(seen_up_by=["ns1"], seen_down_by=["ns2"]),
        },
        changes=_one(what="version", **change) | {"by_what": [_row(what="version")], "versions": [_row(**change)]},
        queues={
            "hot": _one(consumer_group="billing", **said),
            "groups": _one(consumer_group="billing"),
            "topics": _one(),
        },
        trend={"days": [{"date": date} | day for date in ("2026-03-04", "2026-03-05")]}
        | {"seven_days": _row(availability=0.5), "thirty_days": _row(availability=0.5)},
        computed={
            "by": [_row(code_version="1.0", first="2026-03-04", last="2026-03-05")],
            "other_parameters": ["2026-03-04"],
        },
        completeness={
            "rows_ahead": 1,
            "unknown_events": {"BROKER_MOVED": 1},
            "continues_day_before": False,
            "quarantined": [_row(reason="not JSON", first_file="ns1/a.jsonl")],
            "lives": 2,
        },
    )
    numbers["observers"] = [_row(boot_id="boot-1", open=False)]
    numbers["findings"] = [{"kind": "incident", "text": "1 incident", "do": "see host-3", "see": "incidents"}]
    known = {"owner": "web team", "cause_says": "fell silent together", "reasons": {"SILENCE": 1}}
    ranking = _row(outlier=True)
    numbers["brokers"] = [
        a_broker(
            "ill", **{"class": "flapping"}, **known, cause="network", ranking=ranking, censored=1, outages=[outage]
        ),
        a_broker("odd", **{"class": "degraded"}, **known),
    ]
    return numbers
