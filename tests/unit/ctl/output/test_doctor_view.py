"""Findings of ``pointsmanctl doctor``: the worst first, each once, with its next step."""

from __future__ import annotations

import pytest

from pointsman_ctl.output import output_layout
from pointsman_ctl.output.doctor_view import (
    MAX_OF_A_KIND,
    DoctorFinding,
    doctor_parts,
    merged,
    section,
    to_finding_documents,
)

OUT = DoctorFinding("ALARM", "OUT", "c1/a/0", "for 3.0s", "`pointsmanctl why a`", ("ns1:1",))
WIPED = DoctorFinding("WARNING", "WRITE_WIPED", "c1/b", "wiped", "look", ("ns1:1",))


def printed(findings: list[DoctorFinding], capsys: pytest.CaptureFixture[str], *notes: str) -> list[str]:
    output_layout.show(doctor_parts(findings, notes, servers=["ns1:1", "ns2:1"]))
    return capsys.readouterr().out.splitlines()


def test_alarms_come_first_and_what_two_name_servers_report_is_one_finding() -> None:
    later = DoctorFinding("ALARM", "OUT", "c1/a/0", "for 4.0s", "`pointsmanctl why a`", ("ns2:1",))
    first, second = merged([WIPED, OUT, later])
    assert (first.kind, first.text, first.servers) == ("OUT", "for 3.0s", ("ns1:1", "ns2:1"))
    assert second == WIPED


def test_findings_that_no_name_server_reports_are_all_kept() -> None:
    one, two = (DoctorFinding("ALARM", "STUCK", "group g", text, "look") for text in ("queue 1", "queue 2"))
    assert merged([one, two]) == [one, two]


def test_a_finding_names_its_servers_unless_all_report_it(capsys: pytest.CaptureFixture[str]) -> None:
    both = DoctorFinding("WARNING", "FLAPPING", "c1/a/0", "often\x1b", "`pointsmanctl why a`", ("ns2:1", "ns1:1"))
    assert printed([OUT, both], capsys, "a note") == [
        "OUT c1/a/0: for 3.0s (at ns1:1)",
        "  To do: `pointsmanctl why a`",
        "FLAPPING c1/a/0: often\ufffd",
        "  To do: `pointsmanctl why a`",
        "a note",
        "1 alarm, 1 warning; 2 name servers checked",
    ]


def test_of_many_findings_of_one_kind_the_first_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    many = [DoctorFinding("ALARM", "NO_MASTER", f"c1/b{number}", "none", "look") for number in range(12)]
    lines = printed([*many, WIPED], capsys)
    assert len([line for line in lines if line.startswith("NO MASTER")]) == MAX_OF_A_KIND
    assert "2 more NO MASTER: see --output json" in lines
    assert "WRITE WIPED c1/b: wiped (at ns1:1)" in lines
    assert lines[-1] == "12 alarms, 1 warning; 2 name servers checked"


def test_no_findings_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed([], capsys) == ["no findings; 2 name servers checked"]


def test_a_finding_as_json() -> None:
    assert to_finding_documents([OUT]) == [
        {
            "severity": "ALARM",
            "kind": "OUT",
            "subject": "c1/a/0",
            "text": "for 3.0s",
            "remedy": "`pointsmanctl why a`",
            "servers": ["ns1:1"],
        }
    ]


def test_a_section_is_an_anchor() -> None:
    assert section("Name servers") == "deploy/runbook.md#name-servers"
