"""The summary as Markdown, and the body of the webhook's message."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from pointsman_report.report.chat_message import MAX_BODY_BYTES, MAX_CHARS, body, markdown
from pointsman_report.report.contents import Finding
from pointsman_report.report.overview import overview
from tests.kit.report.contents import a_cluster, calm_report


def finding(text: str, do: str = "see its log") -> Finding:
    return Finding("flapping", text, do, "brokers")


def test_a_calm_day_has_what_was_seen_and_a_table_of_the_figures() -> None:
    assert markdown(calm_report()).splitlines() == [
        "### Pointsman: c, 2026-03-05 (UTC)",
        "",
        " ".join(f"{text}." for text in overview(calm_report())),
        "",
        "No findings.",
        "",
        "| Figure | Value | |",
        "|---|---|---|",
        "| availability | 100 % | 0 s downtime |",
        "| brokers | 1 | 0 new, 0 removed |",
        "| flapping | 0 | 0 in 7 days |",
        "| outages | 0 |  |",
        "| topics at risk | 0 | 0 unwritable for some time |",
        "| monitoring coverage | 100 % | 0 rows lost, 0 bad lines |",
    ]


def test_findings_keep_their_order_with_what_to_do_and_the_number_of_those_not_shown() -> None:
    report = calm_report(findings=[finding(f"finding {n}", f"do {n}") for n in range(1, 13)])

    text = markdown(report)

    assert "\n\n1. finding 1\n    - do 1\n2. finding 2\n" in text
    assert "10. finding 10\n    - do 10\n\n... and 2 more findings\n" in text
    assert "finding 11" not in text
    assert "No findings" not in text


def test_without_data_there_are_no_figures() -> None:
    text = markdown(calm_report(headline={"no_data": True}, findings=[finding("NO DATA: the history has no rows")]))

    assert "\n\nNO DATA on 2026-03-05 (UTC).\n" in text
    assert "|" not in text
    assert "No findings" not in text


def test_it_has_the_sentences_of_the_page_and_the_notices() -> None:
    report = calm_report(headline={"notices": ["daylight saving time changed"]})

    for text in (*overview(report), "daylight saving time changed"):
        assert f"{text}." in markdown(report)


@pytest.mark.parametrize(
    ("name", "escaped"),
    [
        ("a|b", r"a\|b"),
        ("`rm`", r"\`rm\`"),
        ("<script>", "&lt;script&gt;"),
        ("<!channel>", "&lt;!channel&gt;"),
        ("&lt;", "&amp;lt;"),
        ("**bold** _it_ ~no~", r"\*\*bold\*\* \_it\_ \~no\~"),
        ("broker_a_1", "broker_a_1"),
        ("__init__", r"\_\_init\_\_"),
        ("[x](http://evil)", r"\[x\](http://evil)"),
        ("# title", r"\# title"),
        ("a\\|b", r"a\\\|b"),
        ("@here", "@\N{ZERO WIDTH SPACE}here"),
        ("a\n\n# b\r\x1b[31m\x00", "a\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}\\# b"),
        ("\ud800\N{RIGHT-TO-LEFT OVERRIDE}x", "\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}x"),
    ],
)
def test_a_hostile_name_is_plain_text_on_one_line(name: str, escaped: str) -> None:
    lines = markdown(calm_report(findings=[finding(f"flapping: c/{name}/0", name)])).splitlines()

    assert f"1. flapping: c/{escaped}" in lines[4]
    assert lines[5].startswith(f"    - {escaped}")
    assert len(lines) == len(markdown(calm_report()).splitlines()) + 1


def test_a_long_finding_is_cut() -> None:
    (line,) = [
        line for line in markdown(calm_report(findings=[finding("x" * 10_000)])).splitlines() if line.startswith("1. ")
    ]
    assert line == f"1. {'x' * (MAX_CHARS - 1)}\N{HORIZONTAL ELLIPSIS}"


def test_the_body_has_the_markdown_as_text_and_keys_of_the_json() -> None:
    report = calm_report(findings=[finding("flapping: c/a/0")])
    numbers = report.as_dict()

    assert json.loads(body(report, page="/srv/report.html", exit_code=1)) == {
        "text": markdown(report),
        "summary": {"headline": numbers["headline"], "findings": numbers["findings"]},
        "report": "/srv/report.html",
        "from": "2026-03-05",
        "to": "2026-03-05",
        "exit_code": 1,
    }


def test_a_body_that_would_be_too_large_has_no_summary() -> None:
    report = calm_report()
    many = replace(report.headline, clusters=[a_cluster("c" * 255 + str(n)) for n in range(1_000)])

    sent = body(replace(report, headline=many), page="p", exit_code=0)

    assert len(sent) < MAX_BODY_BYTES
    assert json.loads(sent)["summary"] is None
    assert "1 broker was 100 % available" in json.loads(sent)["text"]
