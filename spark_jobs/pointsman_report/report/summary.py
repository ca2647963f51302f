"""The report in a few lines of text, for a terminal."""

from __future__ import annotations

from pointsman.names import printable
from pointsman_report.report.contents import Report
from pointsman_report.report.formatting import coarse_percent, counted, duration, objective, percent
from pointsman_report.report.meanings import cause_name
from pointsman_report.report.sections.headline import Cluster
from pointsman_report.report.sections.worst_brokers import Broker

MAX_BROKERS = 10


def summary(report: Report) -> str:
    """Return the main figures, the worst brokers, and the findings."""
    headline = report.headline
    lines = [_seen(report)]
    if not headline.no_data:
        clusters = (_cluster(report, cluster) for cluster in headline.clusters)
        lines += (f"  {text}" for text in (*clusters, basis(report)))
        lines += _worst(report)
    lines += ["", *(f"! {text}" for text in headline.notices)] if headline.notices else [""]
    for finding in report.findings:
        lines += [f"! {finding.text}", f"    {finding.do}"]
    if not report.findings and not headline.no_data:
        lines.append("No findings.")
    # Names may contain control characters of a terminal.
    return "\n".join(printable(line) for line in lines)


def _seen(report: Report) -> str:
    headline, zone = report.headline, report.interval.timezone
    if headline.no_data:
        # Without data any count would be misleading.
        return f"NO DATA on {report.days} ({zone})"
    counts = f"{counted(headline.outages, 'outage')}, {headline.flapping_count} flapping"
    return f"Brokers on {report.days} ({zone}): {headline.brokers_seen} seen, {counts}"


def basis(report: Report) -> str:
    """Return a sentence about the amount of data."""
    data = report.completeness
    return f"{counted(data.rows, 'history row')} from {counted(data.lives, 'name server run')}; {_covers(report)}"


def _covers(report: Report) -> str:
    covered = report.coverage
    if covered.is_short:
        return f"covers {duration(covered.seconds)} of the day: rates and ranks are left out"
    return f"monitoring coverage {percent(covered.share, digits=1)}"


def _worst(report: Report) -> list[str]:
    healthy = ("healthy", "new", "retired")
    shown = [broker for broker in report.brokers if broker.class_ not in healthy][:MAX_BROKERS]
    if not shown:
        return []
    width = max(len(broker.label) for broker in shown)
    head = ("class", "penalty", "outages", "longest", "available")
    titles = f"{'broker':<{width}}  {head[0]:<9} {head[1]:>8} {head[2]:>7} {head[3]:>11} {head[4]:>11}  cause"
    rows = [
        f"{broker.label:<{width}}  {broker.class_:<9} {broker.penalty_max:>8.0f} {broker.down_count:>7} "
        f"{duration(broker.longest_outage_seconds):>11} {_share(report, broker.availability):>11}  "
        f"{_cause(broker)}".rstrip()
        for broker in shown
    ]
    return ["", titles, *rows]


def _cause(broker: Broker) -> str:
    cause = cause_name(broker.cause)
    return ", ".join(part for part in (cause, f"owner {broker.owner}" if broker.owner else "") if part)


def _share(report: Report, value: float | None) -> str:
    return coarse_percent(value, is_short=report.coverage.is_short)


def _cluster(report: Report, cluster: Cluster) -> str:
    brokers = counted(cluster.brokers, "broker")
    text = f"{cluster.cluster}: {brokers}, {_share(report, cluster.availability)} available"
    left = cluster.budget_left_seconds
    if left is None or not cluster.budget_seconds:
        return text
    budget = f"error budget {duration(cluster.budget_seconds)}, used {duration(cluster.budget_seconds - left)}"
    over = f" (over by {duration(-left)})" if left < 0 else ""
    return f"{text}, {budget}{over} ({objective(cluster.slo)} over {counted(cluster.slo_days or 0, 'day')})"
