"""What the report rests on: name servers, what changed, rows and lines, code."""

from __future__ import annotations

from spark_jobs.report.page.parts import (
    Content,
    Numbers,
    Paragraph,
    Part,
    Section,
    Table,
    Tag,
    bold,
    broker,
    left_out,
    local_time,
    moment,
    note,
    of_utc_days,
    section,
    small,
)
from spark_jobs.report.wording import counted, duration, number, percent, some

TOP = 20


def name_servers(numbers: Numbers) -> Section | None:
    found = numbers["name_servers"]
    clocks = {row["node"]: row for row in found["clocks"]}
    rows = [
        (
            bold(row["node"]),
            (number(row["lives"]), small(f"{row['starts'] or 0:,} starts, {row['stops'] or 0:,} stops")),
            number(row["vanished"]),
            duration(row["watched_seconds"]),
            duration(row["warm_up_seconds_max"]),
            (number(row["pauses"]), small(duration(row["paused_seconds"]) if row["paused_seconds"] else "")),
            (number(row["guard_activations"]), small(duration(row["guard_seconds"]) if row["guard_seconds"] else "")),
            number(row["rejected"]),
            number(row["rows"]),
            (number(row["rows_missing"]), small(f"{row['rows_dropped']:,} dropped" if row["rows_dropped"] else "")),
            _clock(clocks.get(row["node"])),
        )
        for row in found["nodes"]["rows"]
    ]
    head = ("Name server", "Lives", "Vanished", "Watched", "Warm-up, longest", "Pauses", "Guard", "Rejected", "Rows")
    explained = f"{of_utc_days(numbers)}Pauses and the guard's times are excluded from what is said of brokers."
    table = Table("Name servers", (*head, "Rows lost", "Clock ahead"), rows, "tnnnnnnnnnn")
    parts = [*([note(explained), table] if rows else []), *_lives(numbers), *_views(numbers)]
    return section("nameservers", "Name servers", *parts) if parts else None


def _clock(row: Numbers | None) -> Content:
    if row is None:
        return None
    ahead, stepped = row["offset_seconds"], row["stepped_seconds"]
    return duration(ahead), small(f"stepped by {duration(stepped)}" if stepped and stepped >= 1 else "")


def _lives(numbers: Numbers) -> list[Part | None]:
    time = local_time(numbers)
    rows = [
        (
            (life["node"], small(life["boot_id"])),
            moment(time, life["from_at"]),
            "still watching" if life["open"] else moment(time, life["to_at"]),
            number(life["rows"]),
            number(life["rows_missing"]),
        )
        for life in numbers["observers"][:TOP]
    ]
    head = ("Life of", "Watched from", "To", "Rows", "Lost")
    rest = left_out(numbers["completeness"]["lives"], len(rows), "lives", "the table observer_windows")
    return [Table("Lives of name servers", head, rows, "tttnn"), note(rest)] if rows else []


def _views(numbers: Numbers) -> list[Part | None]:
    found, time = numbers["name_servers"]["partial_views"], local_time(numbers)
    rows = [
        (
            broker(row),
            moment(time, row["from_at"]),
            duration(row["seconds"]),
            some(row["seen_up_by"] or []),
            some(row["seen_down_by"] or []),
        )
        for row in found["rows"][:TOP]
    ]
    head = ("Disagreed on", "From", "For", "Seen up by", "Seen down by")
    rest = left_out(found["in_all"], len(rows), "disagreements over a minute", "the table partial_views")
    return [Table("Disagreements of name servers", head, rows, "ttntt"), note(rest)] if rows else []


def changes(numbers: Numbers) -> Section | None:
    found, time = numbers["changes"], local_time(numbers)
    if not found["by_what"]:
        return None
    counts = ", ".join(
        f"{row['what']} {counted(row['changes'], 'time')} at {counted(row['brokers'], 'broker')}"
        for row in found["by_what"]
    )
    steps = [
        ((row["before"], " → ", bold(row["after"])), number(row["brokers"]), moment(time, row["first_at"]))
        for row in found["versions"]
    ]
    rows = [
        (broker(row), moment(time, row["changed_at"]), row["what"], row["before"], row["after"])
        for row in found["rows"][:TOP]
    ]
    return section(
        "changes",
        "Changes",
        note(f"{counts}. An incarnation is a start of the broker's process."),
        Table("New versions", ("New version", "Brokers", "First at"), steps, "tnt") if steps else None,
        Table("Changes", ("Broker", "At", "What", "Before", "After"), rows, "ttttt") if rows else None,
        note(left_out(found["in_all"], len(rows), "changes", "report.json or the table broker_changes")),
    )


def basis(numbers: Numbers) -> Section:
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
    by = [
        (
            (row["code_version"], small(f"tables {number(row['warehouse_version'])}")),
            number(row["days"]),
            row["first"],
            row["last"],
        )
        for row in computed["by"]
    ]
    bad = [
        (row["reason"], number(row["lines"]), Tag("code", (row["first_file"],))) for row in data["quarantined"][:TOP]
    ]
    return section(
        "basis",
        "What this rests on",
        Paragraph(" ".join(facts)),
        Table("Days by code version", ("Computed by", "UTC days", "First", "Last"), by, "tntt") if by else None,
        Table("Quarantine", ("Quarantined because", "Lines", "First in"), bad, "tnt") if bad else None,
    )
