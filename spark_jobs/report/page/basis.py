"""What the report rests on: name servers, what changed, rows and lines, parameters and code."""

from __future__ import annotations

from html import escape
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
    small,
    table,
    text,
)
from spark_jobs.report.wording import NOTHING, counted, duration, number, percent, some

Numbers = dict[str, Any]
TOP = 20


def name_servers(numbers: Numbers) -> str:
    found = numbers["name_servers"]
    offsets = {row["node"]: row for row in found["clocks"]}
    rows = [
        (
            f"<b>{text(row['node'])}</b>",
            small(number(row["lives"]), f"{row['starts'] or 0:,} starts, {row['stops'] or 0:,} stops"),
            number(row["vanished"]),
            duration(row["watched_seconds"]),
            duration(row["warm_up_seconds_max"]),
            small(number(row["pauses"]), duration(row["paused_seconds"]) if row["paused_seconds"] else ""),
            small(number(row["guard_activations"]), duration(row["guard_seconds"]) if row["guard_seconds"] else ""),
            number(row["rejected"]),
            number(row["rows"]),
            small(number(row["rows_missing"]), f"{row['rows_dropped']:,} dropped" if row["rows_dropped"] else ""),
            _clock(offsets.get(row["node"])),
        )
        for row in found["nodes"]["rows"]
    ]
    head = ("Name server", "Lives", "Vanished", "Watched", "Warm-up, longest", "Pauses", "Guard", "Rejected", "Rows")
    parts = [table("Name servers", (*head, "Rows lost", "Clock ahead"), rows, numbers="tnnnnnnnnnn")] if rows else []
    parts.append(_lives(numbers))
    parts.append(_views(numbers))
    if not any(parts):
        return ""
    explained = (
        f"{of_utc_days(numbers)}Pauses and the guard's times are excluded from what is said of brokers." if rows else ""
    )
    return section("nameservers", "Name servers", note(explained), *parts)


def _clock(row: Numbers | None) -> str:
    if row is None:
        return NOTHING
    ahead, stepped = row["offset_seconds"], row["stepped_seconds"]
    told = f"stepped by {duration(stepped)}" if stepped and stepped >= 1 else ""
    return small(NOTHING if ahead is None else duration(ahead), told)


def _lives(numbers: Numbers) -> str:
    time = local_time(numbers)
    lives = [
        (
            f"{text(life['node'])}<small>{text(life['boot_id'])}</small>",
            moment(time, life["from_at"]),
            "still watching" if life["open"] else moment(time, life["to_at"]),
            number(life["rows"]),
            number(life["rows_missing"]),
        )
        for life in numbers["observers"][:TOP]
    ]
    if not lives:
        return ""
    said = left_out(numbers["completeness"]["lives"] - len(lives), "lives", len(lives), "the table observer_windows")
    head = ("Life of", "Watched from", "To", "Rows", "Lost")
    return table("Lives of name servers", head, lives, numbers="tttnn") + note(said)


def _views(numbers: Numbers) -> str:
    found, time = numbers["name_servers"]["partial_views"], local_time(numbers)
    rows = [
        (
            broker(row),
            moment(time, row["from_at"]),
            duration(row["seconds"]),
            text(some(row["seen_up_by"] or [])),
            text(some(row["seen_down_by"] or [])),
        )
        for row in found["rows"][:TOP]
    ]
    if not rows:
        return ""
    head = ("Disagreed on", "From", "For", "Seen up by", "Seen down by")
    said = left_out(found["in_all"] - len(rows), "disagreements over a minute", len(rows), "the table partial_views")
    return table("Disagreements of name servers", head, rows, numbers="ttntt") + note(said)


def changes(numbers: Numbers) -> str:
    found, time = numbers["changes"], local_time(numbers)
    if not found["by_what"]:
        return ""
    counts = ", ".join(
        f"{text(row['what'])} {counted(row['changes'], 'time')} at {counted(row['brokers'], 'broker')}"
        for row in found["by_what"]
    )
    steps = [
        (f"{text(row['before'])} → <b>{text(row['after'])}</b>", number(row["brokers"]), moment(time, row["first_at"]))
        for row in found["versions"]
    ]
    rows = [
        (broker(row), moment(time, row["changed_at"]), text(row["what"]), text(row["before"]), text(row["after"]))
        for row in found["rows"][:TOP]
    ]
    said = left_out(found["in_all"] - len(rows), "changes", len(rows), "report.json or the table broker_changes")
    parts = [note(f"{counts}. An incarnation is a start of the broker's process.")]
    if steps:
        parts.append(table("New versions", ("New version", "Brokers", "First at"), steps, numbers="tnt"))
    if rows:
        parts.append(table("Changes", ("Broker", "At", "What", "Before", "After"), rows))
    return section("changes", "Changes", *parts, note(said))


def basis(numbers: Numbers) -> str:
    data, computed = numbers["completeness"], numbers["computed"]
    arrived = data["rows_arrived"]
    share = f": {percent(arrived)} of what the name servers numbered" if arrived and data["rows"] else ""
    facts = [f"{counted(data['rows'], 'row')} in {counted(data['files'], 'file')}{share}."]
    if data["rows_ahead"]:
        facts.append(f"{counted(data['rows_ahead'], 'row')} dated in the future; they end no name server's watch.")
    if data["unknown_events"]:
        unknown = ", ".join(f"{k} ({v:,})" for k, v in data["unknown_events"].items())
        facts.append(f"Events of another version, counted only: {unknown}.")
    if not data["continues_day_before"]:
        facts.append(
            "There was no state of the day before: what was already down or up then begins with its first row."
        )
    if computed["other_parameters"]:
        facts.append(f"Computed with other parameters: {some(computed['other_parameters'])}.")
    parts = [f"<p>{text(' '.join(facts))}</p>"]
    by = [
        (
            f"{text(row['code_version'])}<small>tables {number(row['warehouse_version'])}</small>",
            number(row["days"]),
            text(row["first"]),
            text(row["last"]),
        )
        for row in computed["by"]
    ]
    if by:
        parts.append(table("Days by code version", ("Computed by", "UTC days", "First", "Last"), by, numbers="tntt"))
    if data["quarantined"]:
        bad = [
            (text(row["reason"]), number(row["lines"]), f"<code>{text(row['first_file'])}</code>")
            for row in data["quarantined"][:TOP]
        ]
        parts.append(table("Quarantine", ("Quarantined because", "Lines", "First in"), bad, numbers="tnt"))
    return section("basis", "What this rests on", *parts)


def footnotes(numbers: Numbers) -> str:
    classes = "".join(f"<dt>{text(name)}</dt><dd>{text(says)}</dd>" for name, says in numbers["classes"].items())
    causes = "".join(
        f"<dt>{text(cause_name(name))}</dt><dd>{text(says)}</dd>" for name, says in numbers["causes"].items()
    )
    parameters = "".join(
        f"<dt>{text(name)}.{text(key)}</dt><dd>{text(value)}</dd>"
        for name, values in numbers["parameters"].items()
        for key, value in values.items()
    )
    span = numbers["interval"]
    return (
        f'<section class="foot"><div><h2>Classes</h2><dl>{classes}</dl>'
        f"<h2>Likely causes</h2><dl>{causes}</dl></div>"
        f'<div><h2>Parameters</h2><dl class="numbers">{parameters}</dl></div></section>'
        "<footer>Availability is up / (up + unplanned down). MTTR: mean of the outages that ended here with both "
        "ends seen. MTBF: up time / outages that began here. An outage begins when the last name server that watched "
        "saw the broker go. State change: Nagios' percentage, the day's highest. "
        f"Data from {span['from_at']} to {span['to_at']}, UTC days {span['utc_days'][0]} to {span['utc_days'][1]}. "
        f"pointsman {escape(numbers['code_version'])}.</footer>"
    )
