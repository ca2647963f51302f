"""Incidents with what they did to topics; topics at risk; topics whose registration changed."""

from __future__ import annotations

from typing import Any

from spark_jobs.report.findings import scope
from spark_jobs.report.page.table import left_out, local_time, moment, note, of_utc_days, section, small, table, text
from spark_jobs.report.plots.scatter import incident_scatter
from spark_jobs.report.wording import NOTHING, duration, number, some

Numbers = dict[str, Any]
TOP = 20


def incidents(numbers: Numbers) -> str:
    found, time, within = numbers["incidents"], local_time(numbers), numbers["parameters"]["incidents"]
    rule = f"{within['brokers']} or more brokers of one zone, host or cluster within {within['within_seconds']:g} s"
    if not found["rows"]:
        return section("incidents", "Incidents", note(f"None: no outages of {rule}."))
    rows = [
        (
            f"{moment(time, row['from_at'])}<small>{text(scope(row))}</small>",
            text(row["cluster"]),
            small(number(row["brokers"]), f"of {row['known_brokers']:,}" if row["known_brokers"] else ""),
            moment(time, row["back_at"]) if row["back_at"] else "not yet",
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
        "All back",
        "Down in all",
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
        note(f"Outages of {rule}: one event, which no broker is charged for. {said}"),
        table("Incidents", head, rows, numbers="ttntnnnntt"),
        f'<div class="plots">{plot}</div>',
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
