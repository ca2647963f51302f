"""The summary of a report in three sentences: impact, reliability, and the data that it is based on."""

from __future__ import annotations

from pointsman.names import printable
from pointsman_report.report.contents import Report
from pointsman_report.report.formatting import coarse_percent, counted, duration, some
from pointsman_report.report.sections.impact import owners_hit
from pointsman_report.report.summary import basis

MAX_NAMED = 3


def overview(report: Report) -> list[str]:
    """Return the sentences, without their full stops; one if there are no data."""
    if report.headline.no_data:
        # Without data any count would be misleading.
        return [f"NO DATA on {report.days} ({report.interval.timezone})"]
    return [_impact(report), _reliability(report), basis(report)]


def _impact(report: Report) -> str:
    topics, incidents = report.topics_at_risk, report.incidents
    if topics.unwritable:
        seconds = duration(topics.unwritable_seconds)
        hit = f"{counted(topics.unwritable, 'topic')} had no writable queue, for {seconds} (sum over the topics)"
    else:
        hit = "No topic was without a writable queue"
    if incidents.in_all:
        events = f"{counted(incidents.in_all, 'incident')} took down {counted(incidents.outages, 'broker')}"
    else:
        events = "there was no incident"
    owners = [f"{printable(row.owner)} ({duration(row.down_seconds)})" for row in owners_hit(report.brokers)]
    most = f"; most broker downtime: {some(owners, most=MAX_NAMED)}" if owners else ""
    return f"{hit}, and {events}{most}"


def _reliability(report: Report) -> str:
    top = report.headline
    brokers = f"{counted(top.brokers_seen, 'broker')} {_was(top.brokers_seen)}"
    share = coarse_percent(top.availability, is_short=report.coverage.is_short)
    outages = f"{counted(top.outages, 'outage')}, {top.flapping_count:,} flapping"
    return f"{brokers} {share} available{_objectives(report)}: {outages}"


def _was(count: int) -> str:
    return "was" if count == 1 else "were"


def _objectives(report: Report) -> str:
    """How many clusters met their objectives; nothing for less than an hour, which shows no rates."""
    clusters = [row for row in report.headline.clusters if row.slo is not None and row.availability is not None]
    missed = [row for row in clusters if row.is_below_objective]
    if report.coverage.is_short or not clusters:
        return ""
    if missed:
        names = some([printable(row.cluster) for row in missed], most=MAX_NAMED)
        return f", {names} below the objective"
    return ", every cluster above its objective"
