"""Heartbeats, queues, outages as distributions, and the trend."""

from __future__ import annotations

from pointsman_report.report.page.section import Numbers, Section, first, section
from pointsman_report.report.plots.distributions import cumulative, histogram
from pointsman_report.report.plots.trend import availability_trend
from pointsman_report.report.wording import label, micros

OUTAGES_LISTED = 25
MOST_TOPICS = 10


def outages(numbers: Numbers) -> Section | None:
    """The longest outages of the listed brokers, and all of them as distributions."""
    found = numbers["outages"]
    pairs = [(outage, entry) for entry in numbers["brokers"] for outage in entry["outages"]]
    lengths, delays = found["outage_seconds"], found["detection_seconds"]
    if not pairs and not lengths["count"]:
        return None
    pairs.sort(key=lambda pair: (-pair[0]["seconds"], pair[0]["start_at"], label(pair[1])))
    longest = pairs[:OUTAGES_LISTED]
    in_all = len(pairs) + sum(entry["outages_left_out"] for entry in numbers["brokers"])
    return section(
        "outages",
        "Outages",
        longest=[(outage, label(entry), _detection(outage)) for outage, entry in longest],
        rest=f"The longest {len(longest)} of {in_all:,}. " if in_all > len(longest) else "",
        is_cut=any(outage["start_censored"] or outage["end_censored"] for outage, _ in longest),
        distributions={"How long it lasted": lengths, "How long until it was noticed": delays},
        censored=found["censored_outages"],
        plots=(
            cumulative(lengths["steps"], "Outages no longer than"),
            cumulative(delays["steps"], "Outages noticed within"),
        ),
    )


def _detection(outage: Numbers) -> float | None:
    if outage["last_sign_of_life_at"] is None:
        return None
    return (micros(outage["start_at"]) - micros(outage["last_sign_of_life_at"])) / 1e6


def heartbeats(numbers: Numbers) -> Section:
    found, where = numbers["punctuality"], "report.json or the table heartbeat_punctuality"
    clocks, plot = first(found["clocks"], "agents", where), histogram(found["histogram"])
    return section("heartbeats", "Heartbeats", **first(found, "brokers", where), clocks=clocks, plot=plot)


def queues(numbers: Numbers) -> Section:
    found = numbers["queues"]
    return section(
        "queues",
        "Queues",
        hot=first(found["hot"], "lines", "report.json or the table hot_queues"),
        groups=first(found["groups"], "groups", "report.json or the table group_lag", most=MOST_TOPICS),
        topics=first(found["topics"], "topics", "report.json or the table topic_load", most=MOST_TOPICS),
    )


def trend(numbers: Numbers) -> Section | None:
    found = numbers["trend"]
    if len(found["days"]) < 2:
        return None
    rows = {"Last 7 days": found["seven_days"], "Last 30 days": found["thirty_days"]}
    return section("trend", "Trend", rows=rows, plot=availability_trend(found["days"]))
