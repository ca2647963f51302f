"""Incidents with what they did to topics; rolling restarts; guards; topics at risk; topics that changed."""

from __future__ import annotations

from typing import Any

from spark_jobs.report.classes import ADVICE, cause_name
from spark_jobs.report.findings import scope
from spark_jobs.report.page.table import left_out, local_time, moment, note, of_utc_days, section, small, table, text
from spark_jobs.report.plots.scatter import incident_scatter
from spark_jobs.report.wording import NOTHING, duration, number, some

Numbers = dict[str, Any]
TOP = 20


def incidents(numbers: Numbers) -> str:
    found, time, within = numbers["incidents"], local_time(numbers), numbers["parameters"]["incidents"]
    rule = f"at least {within['brokers']} brokers of one zone, host or cluster down at the same moment"
    if not found["rows"]:
        return section("incidents", "Incidents", note(f"None: never were {rule}."))
    rows = [
        (
            f"{moment(time, row['from_at'])}<small>{text(scope(row))}</small>",
            text(row["cluster"]),
            small(number(row["brokers"]), f"of {row['known_brokers']:,}" if row["known_brokers"] else ""),
            moment(time, row["back_at"]) if row["back_at"] else "not yet",
            small(text(cause_name(row["cause"] or "unknown")), _because(row)),
            duration(row["down_seconds"]),
            number(row["topics_hit"]),
            number(row["topics_unwritable"]),
            duration(row["unwritable_seconds"]),
            text(some(row["topics"] or [], of=row["topics_hit"], most=3)) if row["topics"] else NOTHING,
            text(some([f"{m['broker_name']}/{m['broker_id']}" for m in row["members"]], of=row["brokers"], most=3)),
        )
        for row in found["rows"][:TOP]
    ]
    head = (
        "Began",
        "Cluster",
        "Brokers",
        "Recovered",
        "Cause",
        "Downtime",
        "Topics hit",
        "Unwritable",
        "For",
        "Topics",
        "Who",
    )
    said = left_out(found["in_all"] - len(rows), "incidents", len(rows), "report.json or the table incidents")
    plot = incident_scatter(found["drawn"], numbers["interval"], zone=time.zone)
    return section(
        "incidents",
        "Incidents",
        note(f"{rule.capitalize()}: one event, which is not counted against its brokers. {said}"),
        table("Incidents", head, rows, numbers="ttnttnnnntt"),
        f'<div class="plots">{plot}</div>',
    )


def _because(row: Numbers) -> str:
    """The evidence, and what to do where the cause is known."""
    parts = [text(row["evidence"])] if row["evidence"] else []
    if row["cause"] in ADVICE:
        parts.append(f"To do: {text(ADVICE[row['cause']])}")
    return "<br>".join(parts)


def rolling_restarts(numbers: Numbers) -> str:
    found, time = numbers["rolling_restarts"], local_time(numbers)
    if not found["rows"]:
        return ""
    rows = [
        (
            moment(time, row["from_at"]),
            text(row["cluster"]),
            number(row["brokers"]),
            moment(time, row["back_at"]),
            text(f"{row['version_before']} \N{RIGHTWARDS ARROW} {row['version_after']}")
            if row["version_after"]
            else NOTHING,
            number(row["unplanned"]),
            duration(row["down_seconds"]),
            text(some([f"{m['broker_name']}/{m['broker_id']}" for m in row["members"]], of=row["brokers"], most=3)),
        )
        for row in found["rows"][:TOP]
    ]
    head = ("Began", "Cluster", "Brokers", "Recovered", "Version", "Unplanned outages", "Downtime", "Who")
    said = left_out(
        found["in_all"] - len(rows), "rolling restarts", len(rows), "report.json or the table rolling_restarts"
    )
    explained = "Brokers restarted one after another, each back before the next: not an incident."
    counts = "Unplanned outages count against their brokers."
    return section(
        "rolling",
        "Rolling restarts",
        note(f"{explained} {counts} {said}"),
        table("Rolling restarts", head, rows, numbers="ttnttnnt"),
    )


def guards(numbers: Numbers) -> str:
    """When the expiry guard of a cluster was on, in order of time."""
    found, time = numbers["guard_periods"], local_time(numbers)
    if not found["rows"]:
        return ""
    shown = sorted(found["rows"][:TOP], key=lambda row: (row["from_at"], row["cluster"]))
    rows = [
        (
            moment(time, row["from_at"]),
            text(row["cluster"]),
            "still on" if row["open"] else moment(time, row["to_at"]),
            small(duration(row["seconds"]), "beyond its limit" if row["over_limit"] else ""),
            number(row["kept"]),
            number(row["lost"]),
            number(row["baseline"]),
            number(row["up"]),
            text(some(row["modes"])),
            text(some(row["nodes"])),
        )
        for row in shown
    ]
    head = ("On at", "Cluster", "Off at", "For", "Brokers kept", "Lost", "Baseline", "Up", "Mode", "Name servers")
    said = left_out(found["in_all"] - len(rows), "periods", len(rows), "report.json or the table guard_periods")
    explained = "While it is on, brokers that expire for weak evidence stay in the routes (PROTECTED)."
    return section(
        "guards",
        "Expiry guard",
        note(f"{explained} Lost, baseline and up: as it turned on. {said}"),
        table("Expiry guard", head, rows, numbers="tttnnnnntt"),
    )


def topics_at_risk(numbers: Numbers) -> str:
    found, time = numbers["topics_at_risk"], local_time(numbers)
    rule = "a time in which nobody, only slaves, or one broker alone could serve them"
    if not found["rows"]:
        return section("topics", "Topics at risk", note(f"{of_utc_days(numbers)}None: no topic had {rule}."))
    rows = [
        (
            small(f"<b>{text(row['topic'])}</b>", text(row["cluster"])),
            text(str(row["worst"]).replace("_", " ")),
            duration(row["unwritable_seconds"]),
            duration(row["no_master_seconds"]),
            duration(row["one_broker_seconds"]),
            number(row["brokers"]),
            moment(time, row["first_at"]),
        )
        for row in found["rows"][:TOP]
    ]
    head = ("Topic", "Worst", "Unwritable", "No master", "One broker alone", "Brokers", "First at")
    said = left_out(found["in_all"] - len(rows), "topics", len(rows), "report.json or the table topics_at_risk")
    listing = table("Topics at risk", head, rows, numbers="ttnnnnt")
    return section("topics", "Topics at risk", note(f"{of_utc_days(numbers)}Topics that had {rule}. {said}"), listing)


def topic_churn(numbers: Numbers) -> str:
    found = numbers["topic_churn"]
    if not found["rows"]:
        return ""
    names = ("created", "removed", "queue_changes", "perm_changes", "brokers")
    rows = [
        (small(f"<b>{text(row['topic'])}</b>", text(row["cluster"])), *(number(row[name]) for name in names))
        for row in found["rows"][:TOP]
    ]
    head = ("Topic", "Created", "Removed", "Queues changed", "Permission changed", "Brokers")
    said = left_out(found["in_all"] - len(rows), "topics", len(rows), "report.json or the table topic_churn")
    return section(
        "churn",
        "Topics that changed",
        note(f"{of_utc_days(numbers)}Counted at each broker that has the topic. {said}"),
        table("Topics that changed", head, rows, numbers="tnnnnn"),
    )
