"""The report as one HTML page: no scripts, no external resources, readable on a screen, a phone and paper.

A section's module selects its values; templates/sections.html has the layout and all HTML. Values become HTML in one
place: jinja2 escapes them, and control characters are replaced.
"""

from __future__ import annotations

import re
from functools import partial
from importlib import resources
from typing import NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from pointsman_report.report.contents import Report
from pointsman_report.report.formatting import (
    NO_VALUE,
    ahead_or_behind,
    coarse_percent,
    counted,
    duration,
    milliseconds,
    number,
    percent,
    printable,
    some,
)
from pointsman_report.report.meanings import ADVICE, STATES, cause_name
from pointsman_report.report.section import Section
from pointsman_report.report.sections.availability_trend import trend_section
from pointsman_report.report.sections.broker_changes import changes_section
from pointsman_report.report.sections.broker_states import Drawn, state_sections
from pointsman_report.report.sections.headline import clusters_section
from pointsman_report.report.sections.heartbeat_times import heartbeats_section
from pointsman_report.report.sections.incident_list import (
    Incident,
    RollingRestart,
    guards_section,
    incidents_section,
    rolling_restarts_section,
)
from pointsman_report.report.sections.long_memory import memory_section, weekly_section
from pointsman_report.report.sections.name_server_record import name_servers_section
from pointsman_report.report.sections.outage_lengths import outages_section
from pointsman_report.report.sections.queue_advice import queues_section
from pointsman_report.report.sections.report_basis import basis_section
from pointsman_report.report.sections.topic_risk import topic_churn_section, topics_at_risk_section
from pointsman_report.report.sections.worst_brokers import brokers_section


def members(event: Incident | RollingRestart) -> str:
    """List the first brokers of an incident or a rolling restart."""
    names = [f"{member.broker_name}/{member.broker_id}" for member in event.members]
    return some(names, of=event.brokers, most=3)


def _shown(value: object) -> str:
    """Return what an expression of a template shows, before it is escaped; Markup comes from a macro and stays."""
    if isinstance(value, Markup):
        return value
    return NO_VALUE if value is None else printable(str(value))


def labelled(cells: Markup, titles: list[str]) -> Markup:
    """Add the title of its column to each cell of a row: on a phone the row is a card without a header."""
    titled = iter(titles)
    return Markup(_CELL.sub(lambda cell: f'{cell[0]} data-label="{escape(next(titled))}"', cells))  # noqa: S704 - as above


_CELL = re.compile(r"<t[dh](?= |>)")

TEMPLATES = Environment(
    loader=PackageLoader("pointsman_report.report"),
    autoescape=True,
    undefined=StrictUndefined,
    finalize=_shown,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
for _filter in (ahead_or_behind, cause_name, counted, duration, labelled, members, milliseconds, number, percent, some):
    TEMPLATES.filters[_filter.__name__] = _filter
TEMPLATES.globals |= {"ADVICE": ADVICE, "STATES": STATES}
# HTML is marked as Markup where it is made; templates cannot mark a string as safe.
del TEMPLATES.filters["safe"]


def page(report: Report, drawn: Drawn) -> str:
    """Render the report; every figure on the page is in ``report.json`` too."""
    sections = [section for section in _sections(report, drawn) if section]
    style = resources.files("pointsman_report.report").joinpath("page.css").read_text(encoding="utf-8")
    return TEMPLATES.get_template("page.html").render(
        style=Markup(style),  # noqa: S704 - our own file
        report=report,
        parameters=report.parameters.as_dict(),
        hours=_hours(report),
        tiles=tiles(report),
        sections=sections,
        titles={section.ident: section.title for section in sections},
        local=report.interval.time,
        utc_days=_of_utc_days(report),
        share=partial(coarse_percent, is_short=report.coverage.is_short),
    )


def _sections(report: Report, drawn: Drawn) -> tuple[Section | None, ...]:
    top = report.headline
    basis = (
        name_servers_section(report.name_servers, report.observers, in_all=report.completeness.lives),
        basis_section(report.completeness, report.computed),
    )
    if top.no_data:
        # An empty table, or "none", would look like a result.
        return (trend_section(report.trend), *basis)
    outages = [(broker.label, outage) for broker in report.brokers for outage in broker.outages]
    brokers, interval, parameters = report.brokers, report.interval, report.parameters
    return (
        clusters_section(top),
        brokers_section(brokers, in_all=top.brokers_seen),
        memory_section(report.memory),
        weekly_section(report.weekly_patterns, false_discovery_rate=parameters.memory.false_discovery_rate),
        *state_sections(brokers, drawn, report.transitions, interval, parameters.flapping, in_all=top.brokers_seen),
        incidents_section(report.incidents, interval, least_brokers=parameters.incidents.brokers),
        guards_section(report.guard_periods),
        rolling_restarts_section(report.rolling_restarts),
        topics_at_risk_section(report.topics_at_risk),
        outages_section(report.outages, outages, left_out=sum(broker.outages_left_out for broker in brokers)),
        trend_section(report.trend),
        queues_section(report.queues),
        heartbeats_section(report.punctuality),
        topic_churn_section(report.topic_churn),
        changes_section(report.changes),
        *basis,
    )


def _hours(report: Report) -> str:
    """The period of the report, in its time zone and in UTC."""
    span, time = report.interval, report.interval.time
    zone = span.timezone
    offsets = sorted({span.from_offset, span.to_offset}, reverse=True)
    utc = "" if zone == "UTC" else f" (UTC{' and UTC'.join(offsets)}; {span.from_at[:16]}Z to {span.to_at[:16]}Z)"
    return (
        f"{time.plain(span.from_at)[:16]} to {time.plain(span.to_at)[:16]}, {span.hours:g} hours; "
        f"all times are {zone}{utc}"
    )


def _of_utc_days(report: Report) -> str:
    """A note that a table covers whole UTC days, if the report does not."""
    if report.interval.from_at.endswith("T00:00:00.000Z") and report.interval.to_at.endswith("T00:00:00.000Z"):
        return ""
    return f"For the whole UTC {'day' if report.from_ == report.to else 'days'} {report.days}. "


class Tile(NamedTuple):
    """One figure of the headline, with a line of small text below."""

    value: str
    name: str
    below: str = ""
    bad: bool = False


def tiles(report: Report) -> list[Tile]:
    """Return the headline's figures; none without data."""
    top, topics, flapping = report.headline, report.topics_at_risk, report.headline.flapping
    if top.no_data:
        return []
    return [
        Tile(
            coarse_percent(top.availability, is_short=report.coverage.is_short),
            "availability",
            f"{duration(top.down_seconds)} downtime",
        ),
        Tile(number(top.brokers_seen), "brokers", f"{top.new.count:,} new, {top.gone.count:,} removed"),
        Tile(
            number(flapping.now),
            "flapping",
            f"{flapping.day_before:,} the day before, {flapping.seven_days:,} in 7 days",
            bad=bool(flapping.now),
        ),
        Tile(
            number(top.outages), "outages", f"{top.incident_downs:,} of them in incidents" if top.incident_downs else ""
        ),
        Tile(
            number(topics.in_all),
            "topics at risk",
            f"{topics.unwritable:,} unwritable for some time",
            bad=bool(topics.unwritable),
        ),
        _coverage_tile(report),
    ]


def _coverage_tile(report: Report) -> Tile:
    data, covered = report.completeness, report.coverage
    lost = f"{counted(data.rows_missing, 'row')} lost, {counted(data.quarantined_lines, 'bad line')}"
    if covered.is_short:
        return Tile(duration(covered.seconds), "monitoring coverage", lost)
    return Tile(percent(covered.share, digits=1), "monitoring coverage", lost, bad=covered.share < 0.99)
