"""Findings of ``pointsmanctl doctor``: their order, their table and their JSON. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from rich.console import RenderableType
from rich.text import Text

from pointsman.names import printable
from pointsman.wire.json_document import Document
from pointsman.wire.operator_texts import counted
from pointsman_ctl.output import output_layout

ALARM, WARNING = "ALARM", "WARNING"
_STYLES = {ALARM: output_layout.ALARM, WARNING: output_layout.WARNING}
MAX_OF_A_KIND = 10
"""Findings of one kind that the table shows; JSON has all."""
RUNBOOK = "deploy/runbook.md"


def section(heading: str) -> str:
    """Return the place of a section in the runbook, to open in an editor or a browser."""
    return f"{RUNBOOK}#{heading.lower().replace(' ', '-')}"


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """One thing that an operator should look at, and the next step."""

    severity: str
    """ALARM or WARNING."""
    kind: str
    subject: str
    """What it is about, e.g. CLUSTER/BROKER; empty: the text names it."""
    text: str
    remedy: str
    """A command to copy, a section of the runbook, or both."""
    servers: tuple[str, ...] = ()
    """Name servers that report it; empty: it does not depend on a name server."""


def merged(findings: Iterable[DoctorFinding]) -> list[DoctorFinding]:
    """Return what several name servers report once, with all of these servers; alarms first."""
    found: list[DoctorFinding] = []
    places: dict[tuple[str, str, str], int] = {}
    for each in findings:
        # Not by their texts: these have durations, which differ between name servers.
        place = places.setdefault((each.severity, each.kind, each.subject), len(found)) if each.servers else len(found)
        if place == len(found):
            found.append(each)
        else:
            known = found[place]
            found[place] = replace(known, servers=tuple(dict.fromkeys((*known.servers, *each.servers))))
    return sorted(found, key=lambda each: each.severity != ALARM)


def to_finding_documents(findings: Sequence[DoctorFinding]) -> list[Document]:
    """Render the findings."""
    return [
        {
            "severity": each.severity,
            "kind": each.kind,
            "subject": each.subject,
            "text": each.text,
            "remedy": each.remedy,
            "servers": list(each.servers),
        }
        for each in findings
    ]


def doctor_parts(
    findings: Sequence[DoctorFinding], notes: Sequence[str], *, servers: Sequence[str]
) -> Iterable[RenderableType]:
    """Show the findings with their next steps, then notes, then their number.

    ``servers``: the name servers that responded; a finding that not all of them report names those that do.
    """
    shown = Counter[str]()
    for each in findings:
        shown[each.kind] += 1
        if shown[each.kind] > MAX_OF_A_KIND:
            continue
        subject = f" {each.subject}" if each.subject else ""
        where = f" (at {', '.join(each.servers)})" if each.servers and set(each.servers) != {*servers} else ""
        heading = f"{each.kind.replace('_', ' ')}{subject}: {each.text}{where}"
        yield Text(printable(heading), style=_STYLES[each.severity])
        yield Text(printable(f"  To do: {each.remedy}"))
    for kind, count in shown.items():
        if count > MAX_OF_A_KIND:
            yield Text(f"{count - MAX_OF_A_KIND} more {kind.replace('_', ' ')}: see --output json")
    for note in notes:
        yield Text(printable(note), style="dim")
    checked = counted(len(servers), "name server")
    if not findings:
        yield Text(f"no findings; {checked} checked", style="green")
        return
    alarms = sum(each.severity == ALARM for each in findings)
    counts = ", ".join(
        counted(count, noun) for count, noun in ((alarms, "alarm"), (len(findings) - alarms, "warning")) if count
    )
    yield Text(f"{counts}; {checked} checked", style=_STYLES[ALARM if alarms else WARNING])
