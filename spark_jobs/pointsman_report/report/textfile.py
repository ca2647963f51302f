"""The report for Prometheus: a file for the node exporter's textfile collector.

It is written after the report, so a run that fails leaves the file as it was and its timestamp ages: alert on that.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, Gauge, write_to_textfile

PREFIX = "namesrv_report"


def write_textfile(path: Path, numbers: dict[str, Any], *, succeeded_at: float) -> None:
    """Write the headline's figures, whole or not at all; ``succeeded_at`` is in seconds since 1970."""
    registry = CollectorRegistry()

    def gauge(name: str, says: str, value: float, labels: tuple[str, ...] = ()) -> Gauge:
        made = Gauge(f"{PREFIX}_{name}", says, labels, registry=registry)
        if not labels:
            made.set(value)
        return made

    headline, data = numbers["headline"], numbers["completeness"]
    gauge("last_success_timestamp_seconds", "When a report was last written.", succeeded_at)
    gauge("findings", "Findings that somebody has to look at.", len(headline["findings"]))
    gauge("no_data", "1 if there was not one row of history.", headline["no_data"])
    gauge("incidents", "Outages of several brokers at once.", numbers["incidents"]["in_all"])
    at_risk = gauge("topics_at_risk", "Topics that could not be written to, or nearly so.", 0, ("worst",))
    for worst in ("unwritable", "no_master", "one_broker"):
        at_risk.labels(worst).set(numbers["topics_at_risk"]["by_worst"].get(worst, 0))
    gauge("topics_unwritable", "Topics that nobody could write to for a time.", numbers["topics_at_risk"]["unwritable"])
    gauge("rows", "Rows of history that the report rests on.", data["rows"])
    gauge("rows_missing", "Rows of history that were lost.", data["rows_missing"])
    gauge("quarantined_lines", "Lines of history that could not be read.", data["quarantined_lines"])
    gauge("watched_ratio", "Share of the days in which a name server watched.", _watched(data))
    by_class = gauge("brokers_by_class", "Brokers of each class, all clusters.", 0, ("class",))
    for name, count in headline["by_class"].items():
        by_class.labels(name).set(count)
    _clusters(registry, headline["clusters"])
    path.parent.mkdir(parents=True, exist_ok=True)
    write_to_textfile(str(path), registry)


def _watched(data: dict[str, Any]) -> float:
    return float(data["watched_seconds"] / data["span_seconds"])


def _clusters(registry: CollectorRegistry, clusters: list[dict[str, Any]]) -> None:
    def gauge(name: str, says: str, *more: str) -> Gauge:
        return Gauge(f"{PREFIX}_{name}", says, ("cluster", *more), registry=registry)

    brokers = gauge("brokers", "Brokers of a cluster, by class.", "class")
    outages = gauge("outages", "Outages that began in the days.")
    available = gauge("availability_ratio", "Up time over up and unplanned down time.")
    objective = gauge("slo_ratio", "Availability that the cluster is held to.")
    budget = gauge("slo_budget_left_seconds", "Broker time that may still be down under the objective.")
    for cluster in clusters:
        name = cluster["cluster"]
        for which, count in cluster["by_class"].items():
            brokers.labels(name, which).set(count)
        outages.labels(name).set(cluster["outages"])
        for metric, value in ((available, "availability"), (objective, "slo"), (budget, "budget_left_seconds")):
            if cluster[value] is not None:
                metric.labels(name).set(cluster[value])
