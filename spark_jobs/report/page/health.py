"""Heartbeats, queues, outages as distributions, and the trend."""

from __future__ import annotations

from typing import Any

from spark_jobs.report.classes import cause_name
from spark_jobs.report.page.table import (
    broker,
    left_out,
    local_time,
    moment,
    note,
    of_utc_days,
    section,
    share,
    small,
    table,
    text,
    wide,
)
from spark_jobs.report.plots.distributions import cumulative, histogram
from spark_jobs.report.plots.trend import availability_trend
from spark_jobs.report.wording import (
    NOTHING,
    ahead_or_behind,
    counted,
    duration,
    label,
    micros,
    milliseconds,
    number,
)

Numbers = dict[str, Any]
TOP = 20
OUTAGES_LISTED = 25


def outages(numbers: Numbers) -> str:
    """The longest outages of the listed brokers, and all of them as distributions."""
    found, time = numbers["outages"], local_time(numbers)
    pairs = [(outage, entry) for entry in numbers["brokers"] for outage in entry["outages"]]
    if not pairs and not found["outage_seconds"]["count"]:
        return ""
    longest = sorted(pairs, key=lambda pair: (-pair[0]["seconds"], pair[0]["start_at"], label(pair[1])))[
        :OUTAGES_LISTED
    ]
    rows = [
        (
            text(label(entry)),
            moment(time, outage["start_at"]) + (" ◂" if outage["start_censored"] else ""),
            moment(time, outage["end_at"]) + (" ▸" if outage["end_censored"] else ""),
            duration(outage["seconds"]),
            duration(detection(outage)),
            text(outage["reason"]),
            small(text(cause_name(outage["cause"])), text(outage["evidence"]) if outage["evidence"] else ""),
            number(outage["observers"]),
        )
        for outage, entry in longest
    ]
    head = ("Broker", "Down at", "Recovered at", "Lasted", "Time to detect", "Reason", "Cause", "Seen by")
    cut = any(outage["start_censored"] or outage["end_censored"] for outage, _ in longest)
    marks = "◂ it had begun before a name server watched; ▸ its end was not seen. " if cut else ""
    in_all = len(pairs) + sum(entry["outages_left_out"] for entry in numbers["brokers"])
    said = f"The longest {len(rows)} of {in_all:,}. " if in_all > len(rows) else ""
    lengths, delays = found["outage_seconds"], found["detection_seconds"]
    quantiles = [
        (name, number(values["count"]), *(duration(values[at]) for at in ("min", "p50", "p95", "p99", "max")))
        for name, values in (("How long it lasted", lengths), ("How long until it was noticed", delays))
    ]
    of_all = ("Of all outages", "Counted", "Least", "p50", "p95", "p99", "Most")
    unseen = counted(found["censored_outages"], "outage")
    explained = (
        "Noticed: from the last sign of life to the removal. Lengths are of outages with both ends seen; "
        f"{unseen} {'has' if found['censored_outages'] == 1 else 'have'} not."
    )
    plots = cumulative(lengths["steps"], "Outages no longer than") + cumulative(
        delays["steps"], "Outages noticed within"
    )
    return section(
        "outages",
        "Outages",
        table("Longest outages", head, rows, numbers="tttnnttn") if rows else "",
        note(said + marks),
        table("Distribution of outages and delays", of_all, quantiles, numbers="tnnnnnn"),
        note(explained),
        f'<div class="plots">{plots}</div>' if plots else "",
    )


def detection(outage: Numbers) -> float | None:
    if outage["last_sign_of_life_at"] is None:
        return None
    return (micros(outage["start_at"]) - micros(outage["last_sign_of_life_at"])) / 1e6


def heartbeats(numbers: Numbers) -> str:
    found = numbers["punctuality"]
    if not found["rows"]:
        return section("heartbeats", "Heartbeats", note("No heartbeat statistics in this history."))
    rows = [
        (
            broker(row),
            milliseconds(row["heartbeat_interval_ms"]),
            *(milliseconds(row[name]) for name in ("p50_ms", "p95_ms", "p99_ms", "max_ms")),
            number(row["late"]),
            number(row["beats"]),
        )
        for row in found["rows"][:TOP]
    ]
    head = ("Broker", "Beats each", "p50", "p95", "p99", "Longest", "Late", "Beats")
    said = left_out(found["in_all"] - len(rows), "brokers", len(rows), "report.json or the table heartbeat_punctuality")
    plot = histogram(found["histogram"])
    return section(
        "heartbeats",
        "Heartbeats",
        note(f"{of_utc_days(numbers)}Times between beats, the least punctual first. {said}"),
        table("Heartbeat punctuality", head, rows, numbers="tnnnnnnn"),
        _clocks(found["clocks"]),
        f'<div class="plots">{plot}</div>' if plot else "",
    )


def _clocks(found: Numbers) -> str:
    rows = [(broker(row), text(ahead_or_behind(row["ahead_seconds"]))) for row in found["rows"][:TOP]]
    if not rows:
        return ""
    said = left_out(found["in_all"] - len(rows), "agents", len(rows), "report.json or the table heartbeat_punctuality")
    return note(f"Against the median of the name servers' clocks. {said}") + table(
        "Agents whose clock is off", ("Broker", "Clock"), rows
    )


def queues(numbers: Numbers) -> str:
    found = numbers["queues"]
    parts = [_hot(found["hot"]), _groups(found["groups"]), _topics(found["topics"])]
    if not any(parts):
        return section("queues", "Queues", note("No queue statistics in this history."))
    calm = "" if parts[0] else note("No queue is worth a line.")
    return section("queues", "Queues", note(of_utc_days(numbers)), calm, *parts)


def _hot(found: Numbers) -> str:
    rows = [
        (
            small(f"<b>{text(row['topic'])}</b>", text(row["cluster"])),
            text(str(row["kind"]).replace("_", " ")),
            text(row["consumer_group"]),
            _queue(row),
            number(row["value"], digits=1),
            number(row["limit"], digits=1),
            text(row["says"]),
            text(row["cure"]),
        )
        for row in found["rows"][:TOP]
    ]
    if not rows:
        return ""
    head = ("Topic", "What", "Group", "Queue", "Measured", "Limit", "That is", "Cure")
    said = left_out(found["in_all"] - len(rows), "lines", len(rows), "report.json or the table hot_queues")
    return table("Hot queues", head, rows, numbers="ttttnntt") + note(said)


def _queue(row: Numbers) -> str:
    if row["broker_name"] is None:
        return NOTHING
    return text(row["broker_name"] if row["queue_id"] is None else f"{row['broker_name']} queue {row['queue_id']}")


def _groups(found: Numbers) -> str:
    rows = [
        (
            small(f"<b>{text(row['consumer_group'])}</b>", f"{text(row['topic'])}, {text(row['cluster'])}"),
            *(number(row[name]) for name in ("members", "queues", "lag_first", "lag_last", "lag_max", "highest_lag")),
        )
        for row in found["rows"][:10]
    ]
    if not rows:
        return ""
    head = ("Group behind", "Members", "Queues", "At first", "At last", "At most", "Worst queue")
    said = left_out(found["in_all"] - len(rows), "groups", len(rows), "report.json or the table group_lag")
    return table("Consumer groups behind", head, rows, numbers="tnnnnnn") + note(said)


def _topics(found: Numbers) -> str:
    rows = [
        (
            small(f"<b>{text(row['topic'])}</b>", text(row["cluster"])),
            *(number(row[name], digits=1) for name in ("put_rate", "highest_put_rate", "skew")),
            *(number(row[name]) for name in ("queues", "idle_queues", "brokers")),
        )
        for row in found["rows"][:10]
    ]
    if not rows:
        return ""
    head = ("Busiest topic", "Messages/s", "Fullest queue/s", "Skew", "Queues", "Idle", "Brokers")
    said = left_out(found["in_all"] - len(rows), "topics", len(rows), "report.json or the table topic_load")
    return table("Busiest topics", head, rows, numbers="tnnnnnn") + note(said)


def trend(numbers: Numbers) -> str:
    found = numbers["trend"]
    if len(found["days"]) < 2:
        return ""
    rows = [
        (
            f"Last {name} days",
            number(row["days"]),
            share(numbers, row["availability"]),
            duration(row["down_seconds"]),
            number(row["outages"]),
            number(row["incidents"]),
            number(row["flapping_broker_days"]),
        )
        for name, row in (("7", found["seven_days"]), ("30", found["thirty_days"]))
    ]
    head = ("UTC days", "In the warehouse", "Availability", "Down", "Outages", "Incidents", "Flapping, broker days")
    plot = availability_trend(found["days"])
    return section(
        "trend",
        "Trend",
        table("Trend", head, rows, numbers="tnnnnnn"),
        wide(plot) if plot else "",
    )
