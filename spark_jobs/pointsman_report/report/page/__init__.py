"""The report as one HTML page: no script, nothing fetched, readable on a screen, a phone and paper.

The functions of a module choose what a section shows; templates/sections.html lays it out, and holds all HTML.
"""

from __future__ import annotations

from functools import partial
from importlib import resources

from markupsafe import Markup

from pointsman_report.parameters import Parameters
from pointsman_report.report.numbers import Drawn, Numbers
from pointsman_report.report.page import basis, brokers, health, incidents, top
from pointsman_report.report.page.rendering import TEMPLATES
from pointsman_report.report.page.section import Section, local_time, of_utc_days
from pointsman_report.report.wording import coarse_percent, days_of


def page(numbers: Numbers, drawn: Drawn, parameters: Parameters) -> str:
    """Render the numbers; every figure on the page stands in them too."""
    sections = [section for section in _sections(numbers, drawn, parameters) if section]
    style = resources.files("pointsman_report.report").joinpath("page.css").read_text(encoding="utf-8")
    return TEMPLATES.get_template("page.html").render(
        style=Markup(style),  # noqa: S704 - our own file
        numbers=numbers,
        days=days_of(numbers),
        hours=top.hours(numbers),
        tiles=top.tiles(numbers),
        sections=sections,
        titles={section.ident: section.title for section in sections},
        local=local_time(numbers),
        utc_days=of_utc_days(numbers),
        share=partial(coarse_percent, is_short=numbers["coverage"]["is_short"]),
    )


def _sections(numbers: Numbers, drawn: Drawn, parameters: Parameters) -> tuple[Section | None, ...]:
    resting_on = (basis.name_servers(numbers), basis.basis(numbers))
    if numbers["headline"]["no_data"]:
        # An empty table, or "none", would look like an answer.
        return (health.trend(numbers), *resting_on)
    return (
        top.clusters(numbers),
        brokers.worst_brokers(numbers),
        *brokers.states(numbers, drawn, parameters),
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
