"""The summary for a chat: as GitHub-flavoured Markdown, and as the JSON body of a webhook."""

from __future__ import annotations

import json
import re

from pointsman.names import printable
from pointsman_report.report.contents import Report
from pointsman_report.report.formatting import counted
from pointsman_report.report.overview import overview
from pointsman_report.report.tiles import Tile, tiles

MAX_FINDINGS = 10
MAX_CHARS = 400
"""Longest text of a finding, before it is escaped."""
MAX_BODY_BYTES = 262_144
"""A larger body has no ``summary``."""

_ZERO_WIDTH_SPACE = "\N{ZERO WIDTH SPACE}"
# Slack reads these entities, but no backslashes; an underscore within a word is not a mark in Markdown.
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_MARKS = re.compile(r"[&<>@]|[\\`*~|\[\]#]|(?<![^\W_])_|_(?![^\W_])")


def markdown(report: Report) -> str:
    """Return the summary: what was seen, the worst findings with what to do, and the headline's figures."""
    top = report.headline
    title = ", ".join(part for part in (report.fleet, report.days) if part)
    lines = [f"### Pointsman: {_text(title)} ({_text(report.interval.timezone)})", ""]
    lines.append(" ".join(f"{_text(text)}." for text in (*overview(report), *top.notices)))
    if report.findings:
        lines.append("")
        for number, finding in enumerate(report.findings[:MAX_FINDINGS], 1):
            lines += [f"{number}. {_text(finding.text)}", f"    - {_text(finding.do)}"]
        more = len(report.findings) - MAX_FINDINGS
        lines += ["", f"... and {counted(more, 'more finding')}"] if more > 0 else []
    elif not top.no_data:
        lines += ["", "No findings."]
    if figures := tiles(report):
        lines += ["", "| Figure | Value | |", "|---|---|---|"]
        lines += [f"| {_text(figure.name)} | {_text(figure.value)} | {_text(_below(figure))} |" for figure in figures]
    return "\n".join(lines) + "\n"


def body(report: Report, *, page: str, exit_code: int) -> bytes:
    """Return the JSON body: ``text`` is the Markdown, ``summary`` has keys of ``report.json``, ``report`` is the page's
    path."""
    numbers = report.as_dict()
    message = {
        "text": markdown(report),
        "summary": {name: numbers[name] for name in ("headline", "findings")},
        "report": page,
        "from": numbers["from"],
        "to": numbers["to"],
        "exit_code": exit_code,
    }
    encoded = json.dumps(message, allow_nan=False).encode()
    if len(encoded) > MAX_BODY_BYTES:
        encoded = json.dumps(message | {"summary": None}, allow_nan=False).encode()
    return encoded


def _below(figure: Tile) -> str:
    return "; ".join(text for text in (figure.below, *(change.text for change in figure.changes)) if text)


def _text(text: str) -> str:
    """Escape one line: names of the history are neither marks nor mentions."""
    short = text if len(text) <= MAX_CHARS else f"{text[: MAX_CHARS - 1]}\N{HORIZONTAL ELLIPSIS}"
    return _MARKS.sub(_escaped, printable(short))


def _escaped(mark: re.Match[str]) -> str:
    sign = mark[0]
    return f"@{_ZERO_WIDTH_SPACE}" if sign == "@" else _ENTITIES.get(sign, f"\\{sign}")
