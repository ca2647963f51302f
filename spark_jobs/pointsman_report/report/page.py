"""The report as one HTML page: no scripts, no external resources, readable on a screen, a phone and paper.

A section's module selects its values; templates/sections.html has the layout and all HTML. Values become HTML in one
place: jinja2 escapes them, and control characters are replaced.
"""

from __future__ import annotations

import re
from functools import partial
from importlib import resources

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from pointsman.names import printable
from pointsman_report.report.budget_burn import burn_plot
from pointsman_report.report.contents import Report
from pointsman_report.report.formatting import (
    NO_VALUE,
    ahead_or_behind,
    coarse_percent,
    counted,
    duration,
    is_brief,
    milliseconds,
    number,
    objective,
    outage_duration,
    percent,
    some,
)
from pointsman_report.report.meanings import ADVICE, STATES, cause_name
from pointsman_report.report.overview import overview
from pointsman_report.report.section import Section
from pointsman_report.report.sections.availability_trend import trend_section
from pointsman_report.report.sections.broker_changes import changes_section
from pointsman_report.report.sections.broker_states import Drawn, state_sections, window_of
from pointsman_report.report.sections.headline import clusters_section
from pointsman_report.report.sections.heartbeat_times import heartbeats_section
from pointsman_report.report.sections.impact import owners_section
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
from pointsman_report.report.sections.planned_work import planned_section
from pointsman_report.report.sections.queue_advice import queues_section
from pointsman_report.report.sections.report_basis import basis_section
from pointsman_report.report.sections.topic_risk import topic_churn_section, topics_at_risk_section
from pointsman_report.report.sections.worst_brokers import brokers_section
from pointsman_report.report.shell_commands import history_command
from pointsman_report.report.tiles import tiles


def members(event: Incident | RollingRestart, most: int = 3) -> str:
    """List the first brokers of an incident or a rolling restart."""
    names = [f"{member.broker_name}/{member.broker_id}" for member in event.members]
    return some(names, of=event.brokers, most=most)


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
for _filter in (
    *(ahead_or_behind, cause_name, counted, duration, is_brief, labelled, members, milliseconds, number, objective),
    *(outage_duration, percent, some),
):
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
        summary=overview(report),
        tiles=tiles(report),
        sections=[section for section in sections if not section.is_empty],
        empty=[section for section in sections if section.is_empty],
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
    slo_days = parameters.health.slo_days
    command = partial(history_command, day=f"{interval.utc_days[1]}", warehouse=drawn.warehouse)
    topics = topics_at_risk_section(report.topics_at_risk)
    # Impact first: topics that only lost redundancy come later.
    hit, at_risk = (topics, None) if report.topics_at_risk.unwritable else (None, topics)
    return (
        owners_section(brokers),
        hit,
        incidents_section(report.incidents, brokers, interval, parameters.incidents, drawn.warehouse),
        clusters_section(top, partial(burn_plot, report.trend, top.clusters, last=report.to, slo_days=slo_days)),
        brokers_section(
            brokers, drawn.intervals, window_of(interval, drawn.intervals), command, in_all=top.brokers_seen
        ),
        memory_section(report.memory),
        weekly_section(report.weekly_patterns, false_discovery_rate=parameters.memory.false_discovery_rate),
        *state_sections(brokers, drawn, report.transitions, interval, parameters.flapping, in_all=top.brokers_seen),
        guards_section(report.guard_periods),
        rolling_restarts_section(report.rolling_restarts),
        planned_section(report.maintenance_windows, brokers),
        at_risk,
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
