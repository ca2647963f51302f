"""Incidents with what they did to topics; rolling restarts; guards; topics at risk; topics that changed."""

from __future__ import annotations

from typing import Any

from spark_jobs.report.classes import ADVICE, cause_name
from spark_jobs.report.findings import scope
from spark_jobs.report.page.parts import (
    Numbers,
    Row,
    Section,
    Table,
    left_out,
    local_time,
    moment,
    note,
    of_utc_days,
    plots,
    section,
    small,
    topic,
)
from spark_jobs.report.plots.scatter import incident_scatter
from spark_jobs.report.wording import duration, number, some

TOP = 20


def incidents(numbers: Numbers) -> Section:
    found, time, within = numbers["incidents"], local_time(numbers), numbers["parameters"]["incidents"]
    rule = f"at least {within['brokers']} brokers of one zone, host or cluster down at the same moment"
    if not found["rows"]:
        return section("incidents", "Incidents", note(f"None: never were {rule}."))
    rows = [
        (
            (moment(time, row["from_at"]), small(scope(row))),
            row["cluster"],
            (number(row["brokers"]), small(f"of {row['known_brokers']:,}" if row["known_brokers"] else "")),
            moment(time, row["back_at"]) if row["back_at"] else "not yet",
            (cause_name(row["cause"] or "unknown"), small(row["evidence"], _to_do(row["cause"]))),
            duration(row["down_seconds"]),
            number(row["topics_hit"]),
            number(row["topics_unwritable"]),
            duration(row["unwritable_seconds"]),
            some(row["topics"], of=row["topics_hit"], most=3) if row["topics"] else None,
            _members(row),
        )
        for row in found["rows"][:TOP]
    ]
    head = ("Began", "Cluster", "Brokers", "Recovered", "Cause", "Downtime", "Topics hit", "Unwritable", "For")
    rest = left_out(found["in_all"], len(rows), "incidents", "report.json or the table incidents")
    return section(
        "incidents",
        "Incidents",
        note(f"{rule.capitalize()}: one event, which is not counted against its brokers. {rest}"),
        Table("Incidents", (*head, "Topics", "Who"), rows, "ttnttnnnntt"),
        plots(incident_scatter(found["drawn"], numbers["interval"], zone=time.zone)),
    )


def _to_do(cause: str | None) -> str:
    return f"To do: {ADVICE[cause]}" if cause in ADVICE else ""


def _members(row: dict[str, Any]) -> str:
    names = [f"{member['broker_name']}/{member['broker_id']}" for member in row["members"]]
    return some(names, of=row["brokers"], most=3)


def rolling_restarts(numbers: Numbers) -> Section | None:
    found, time = numbers["rolling_restarts"], local_time(numbers)
    if not found["rows"]:
        return None
    rows = [
        (
            moment(time, row["from_at"]),
            row["cluster"],
            number(row["brokers"]),
            moment(time, row["back_at"]),
            f"{row['version_before']} \N{RIGHTWARDS ARROW} {row['version_after']}" if row["version_after"] else None,
            number(row["unplanned"]),
            duration(row["down_seconds"]),
            _members(row),
        )
        for row in found["rows"][:TOP]
    ]
    head = ("Began", "Cluster", "Brokers", "Recovered", "Version", "Unplanned outages", "Downtime", "Who")
    rest = left_out(found["in_all"], len(rows), "rolling restarts", "report.json or the table rolling_restarts")
    explained = "Brokers restarted one after another, each back before the next: not an incident."
    return section(
        "rolling",
        "Rolling restarts",
        note(f"{explained} Unplanned outages count against their brokers. {rest}"),
        Table("Rolling restarts", head, rows, "ttnttnnt"),
    )


def guards(numbers: Numbers) -> Section | None:
    """When the expiry guard of a cluster was on, in order of time."""
    found, time = numbers["guard_periods"], local_time(numbers)
    if not found["rows"]:
        return None
    rows = [
        (
            moment(time, row["from_at"]),
            row["cluster"],
            "still on" if row["open"] else moment(time, row["to_at"]),
            (duration(row["seconds"]), small("beyond its limit" if row["over_limit"] else "")),
            number(row["kept"]),
            number(row["lost"]),
            number(row["baseline"]),
            number(row["up"]),
            some(row["modes"]),
            some(row["nodes"]),
        )
        for row in sorted(found["rows"][:TOP], key=lambda row: (row["from_at"], row["cluster"]))
    ]
    head = ("On at", "Cluster", "Off at", "For", "Brokers kept", "Lost", "Baseline", "Up", "Mode", "Name servers")
    rest = left_out(found["in_all"], len(rows), "periods", "report.json or the table guard_periods")
    explained = "While it is on, brokers that expire for weak evidence stay in the routes (PROTECTED)."
    return section(
        "guards",
        "Expiry guard",
        note(f"{explained} Lost, baseline and up: as it turned on. {rest}"),
        Table("Expiry guard", head, rows, "tttnnnnntt"),
    )


def topics_at_risk(numbers: Numbers) -> Section:
    found, time = numbers["topics_at_risk"], local_time(numbers)
    rule = "a time in which nobody, only slaves, or one broker alone could serve them"
    if not found["rows"]:
        return section("topics", "Topics at risk", note(f"{of_utc_days(numbers)}None: no topic had {rule}."))
    rows = [
        (
            topic(row),
            str(row["worst"]).replace("_", " "),
            duration(row["unwritable_seconds"]),
            duration(row["no_master_seconds"]),
            duration(row["one_broker_seconds"]),
            number(row["brokers"]),
            moment(time, row["first_at"]),
        )
        for row in found["rows"][:TOP]
    ]
    head = ("Topic", "Worst", "Unwritable", "No master", "One broker alone", "Brokers", "First at")
    rest = left_out(found["in_all"], len(rows), "topics", "report.json or the table topics_at_risk")
    explained = note(f"{of_utc_days(numbers)}Topics that had {rule}. {rest}")
    return section("topics", "Topics at risk", explained, Table("Topics at risk", head, rows, "ttnnnnt"))


def topic_churn(numbers: Numbers) -> Section | None:
    found = numbers["topic_churn"]
    if not found["rows"]:
        return None
    names = ("created", "removed", "queue_changes", "perm_changes", "brokers")
    rows: list[Row] = [(topic(row), *(number(row[name]) for name in names)) for row in found["rows"][:TOP]]
    head = ("Topic", "Created", "Removed", "Queues changed", "Permission changed", "Brokers")
    rest = left_out(found["in_all"], len(rows), "topics", "report.json or the table topic_churn")
    return section(
        "churn",
        "Topics that changed",
        note(f"{of_utc_days(numbers)}Counted at each broker that has the topic. {rest}"),
        Table("Topics that changed", head, rows, "tnnnnn"),
    )
