"""What the report rests on: name servers, what changed, rows and lines, code."""

from __future__ import annotations

from pointsman_report.report.page.section import TOP, Numbers, Section, first, left_out, section
from pointsman_report.report.wording import counted, percent, some

_UNKNOWN = "heartbeats, probes, processes and versions of brokers are not known, so most causes are unknown"
_SOURCES = {
    "observe": f"by polling RocketMQ's own name servers: {_UNKNOWN}, and a planned shutdown counts as an outage",
    "rocketmq-log": f"from the logs of RocketMQ's own name servers, to the second: {_UNKNOWN}",
}


def name_servers(numbers: Numbers) -> Section | None:
    found, lives = numbers["name_servers"], numbers["observers"][:TOP]
    views = first(found["partial_views"], "disagreements over a minute", "the table partial_views")
    if not (found["nodes"]["rows"] or lives or views["rows"]):
        return None
    return section(
        "nameservers",
        "Name servers",
        nodes=found["nodes"]["rows"],
        clocks={row["node"]: row for row in found["clocks"]},
        lives=lives,
        other_lives=left_out(numbers["completeness"]["lives"], len(lives), "lives", "the table observer_windows"),
        views=views,
    )


def changes(numbers: Numbers) -> Section | None:
    found = numbers["changes"]
    if not found["by_what"]:
        return None
    counts = ", ".join(
        f"{row['what']} {counted(row['changes'], 'time')} at {counted(row['brokers'], 'broker')}"
        for row in found["by_what"]
    )
    listed = first(found, "changes", "report.json or the table broker_changes")
    return section("changes", "Changes", **listed, counts=counts, versions=found["versions"])


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
    for source, nodes in data["sources"].items():
        facts.append(f"Of {some(nodes)} {_SOURCES.get(source, f'from the source {source}')}.")
    if computed["other_parameters"]:
        facts.append(f"Computed with other parameters: {some(computed['other_parameters'])}.")
    bad = data["quarantined"][:TOP]
    return section("basis", "What this rests on", facts=" ".join(facts), by=computed["by"], quarantined=bad)
