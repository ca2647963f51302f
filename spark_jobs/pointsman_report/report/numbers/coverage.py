"""How much of the days a name server watched: a rate, a rank or a third decimal of a few seconds means nothing."""

from __future__ import annotations

from typing import Any

MIN_COVERAGE_SECONDS = 3_600.0
"""Below it a report gives no rates per day and no ranks."""

_RATES = ("outages_per_broker_day", "outages_per_broker_day_low", "outages_per_broker_day_high")


def coverage(completeness: dict[str, Any]) -> dict[str, Any]:
    """``is_short``: a name server watched, but for less than an hour."""
    seconds = completeness["watched_seconds"]
    return {
        "seconds": seconds,
        "span_seconds": completeness["span_seconds"],
        "is_short": bool(completeness["rows"]) and seconds < MIN_COVERAGE_SECONDS,
    }


def without_rates(numbers: dict[str, Any]) -> None:
    """Remove from the numbers of a report what needs more than a short coverage."""
    for cluster in numbers["headline"]["clusters"]:
        cluster.update(dict.fromkeys(_RATES))
    for broker in numbers["brokers"]:
        broker.update(ranking=None, percent_state_change=None)
