"""The report as one HTML page: no script, nothing fetched, readable on a screen, a phone and paper."""

from __future__ import annotations

import re
from html import escape
from importlib import resources

from spark_jobs.parameters import Parameters
from spark_jobs.report.numbers import Drawn, Numbers
from spark_jobs.report.page import basis, brokers, health, incidents, top
from spark_jobs.report.wording import days_of

_SECTION = re.compile(r'<section id="(\w+)"[^>]*><h2[^>]*>([^<]*)</h2>')


def page(numbers: Numbers, drawn: Drawn, parameters: Parameters) -> str:
    """Render the numbers; every figure on the page stands in them too."""
    style = resources.files("spark_jobs.report").joinpath("page.css").read_text(encoding="utf-8")
    told = [part for part in _sections(numbers, drawn, parameters) if part]
    links = "".join(f'<a href="#{ident}">{title}</a>' for part in told for ident, title in _SECTION.findall(part))
    sections = (
        top.head(numbers),
        top.verdict(numbers),
        "" if numbers["headline"]["no_data"] else top.tiles(numbers),
        f'<nav aria-label="Sections">{links}</nav>',
        *told,
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>Brokers, {escape(days_of(numbers))}</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(sections)
        + "\n</main>\n</body>\n</html>\n"
    )


def _sections(numbers: Numbers, drawn: Drawn, parameters: Parameters) -> tuple[str, ...]:
    resting_on = (basis.name_servers(numbers), basis.basis(numbers), basis.footnotes(numbers))
    if numbers["headline"]["no_data"]:
        # An empty table, or "none", would look like an answer.
        return (health.trend(numbers), *resting_on)
    return (
        top.clusters(numbers),
        brokers.worst_brokers(numbers),
        brokers.states(numbers, drawn, parameters),
        incidents.incidents(numbers),
        incidents.guards(numbers),
        incidents.rolling_restarts(numbers),
        incidents.topics_at_risk(numbers),
        health.outages(numbers),
        health.trend(numbers),
        health.queues(numbers),
        health.heartbeats(numbers),
        incidents.topic_churn(numbers),
        basis.changes(numbers),
        *resting_on,
    )
