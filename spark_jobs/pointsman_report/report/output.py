"""Output of a report: the files ``report.html``, ``report.json`` and ``report.md``, and metrics for Prometheus.

The file for the node exporter's textfile collector is written after the report, so a failed run leaves it unchanged and
its timestamp grows old: alert on that.
"""

from __future__ import annotations

import json
from pathlib import Path

from prometheus_client import CollectorRegistry, Gauge, write_to_textfile

from pointsman_report.hadoop_files import Files
from pointsman_report.report.chat_message import markdown
from pointsman_report.report.contents import Report
from pointsman_report.report.page import page
from pointsman_report.report.sections.broker_states import Drawn
from pointsman_report.report.sections.headline import Cluster

PAGE = "report.html"
PREFIX = "pointsman_report"


def report_files(report: Report, drawn: Drawn) -> dict[str, str]:
    """Render the files, by name; the page comes last: when it exists, the others exist too."""
    return {
        "report.json": json.dumps(report.as_dict(), indent=1, ensure_ascii=False, allow_nan=False) + "\n",
        "report.md": markdown(report),
        PAGE: page(report, drawn),
    }


def write_report(directory: Path, texts: dict[str, str]) -> str:
    """Write the files to a local folder and return the page's path."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        unfinished = directory / f".{name}.tmp"
        unfinished.write_text(text, encoding="utf-8")
        unfinished.replace(directory / name)
    return str(directory / PAGE)


def write_remote_report(files: Files, folder: str, texts: dict[str, str]) -> str:
    """Write the files to a folder on a Hadoop file system and return the page's path."""
    files.make(folder)
    for name, text in texts.items():
        files.write(f"{folder}/{name}", text)
    return f"{folder}/{PAGE}"


def write_textfile(path: Path, report: Report, *, succeeded_at: float) -> None:
    """Write the headline's figures atomically; ``succeeded_at`` is in seconds since 1970."""
    registry = CollectorRegistry()

    def gauge(name: str, says: str, value: float, labels: tuple[str, ...] = ()) -> Gauge:
        made = Gauge(f"{PREFIX}_{name}", says, labels, registry=registry)
        if not labels:
            made.set(value)
        return made

    headline, data = report.headline, report.completeness
    gauge("last_success_timestamp_seconds", "Time at which the last report was written.", succeeded_at)
    gauge("findings", "Findings that need attention.", len(headline.findings))
    gauge("no_data", "1 if the report is based on no history at all.", headline.no_data)
    gauge("incidents", "Outages of several brokers at the same time.", report.incidents.in_all)
    at_risk = gauge(
        "topics_at_risk", "Topics at risk, by worst state: unwritable, no_master, one_broker.", 0, ("worst",)
    )
    for worst in ("unwritable", "no_master", "one_broker"):
        at_risk.labels(worst).set(report.topics_at_risk.by_worst.get(worst, 0))
    gauge("topics_unwritable", "Topics that were not writable for a time.", report.topics_at_risk.unwritable)
    gauge("history_rows", "History rows that the report is based on.", data.rows)
    gauge("history_rows_missing", "History rows that were lost.", data.rows_missing)
    gauge("history_quarantined_lines", "Invalid history lines moved to the quarantine.", data.quarantined_lines)
    gauge(
        "coverage_ratio",
        "Share of the reported time with a name server running that lost no rows.",
        report.coverage.share,
    )
    by_class = gauge("brokers_by_class", "Brokers of all clusters, by class.", 0, ("class",))
    for name, count in headline.by_class.items():
        by_class.labels(name).set(count)
    _clusters(registry, headline.clusters)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_to_textfile(str(path), registry)


def _clusters(registry: CollectorRegistry, clusters: list[Cluster]) -> None:
    def gauge(name: str, says: str, *more: str) -> Gauge:
        return Gauge(f"{PREFIX}_{name}", says, ("cluster", *more), registry=registry)

    brokers = gauge("brokers", "Brokers of a cluster, by class.", "class")
    outages = gauge("outages", "Outages that began in the reported days.")
    available = gauge("availability_ratio", "Uptime divided by uptime plus unplanned downtime.")
    objective = gauge("slo_ratio", "Availability objective (SLO) of the cluster.")
    budget = gauge("slo_budget_remaining_seconds", "Remaining error budget, in broker downtime.")
    for cluster in clusters:
        name = cluster.cluster
        for which, count in cluster.by_class.items():
            brokers.labels(name, which).set(count)
        outages.labels(name).set(cluster.outages)
        figures = ((available, cluster.availability), (objective, cluster.slo), (budget, cluster.budget_left_seconds))
        for metric, value in figures:
            if value is not None:
                metric.labels(name).set(value)
