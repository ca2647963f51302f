"""Incidents with what they did to topics; rolling restarts; guards; topics at risk; topics that changed."""

from __future__ import annotations

from pointsman_report.report.page.section import Numbers, Section, first, local_time, section
from pointsman_report.report.plots.scatter import incident_scatter


def incidents(numbers: Numbers) -> Section:
    found, within = numbers["incidents"], numbers["parameters"]["incidents"]["brokers"]
    rule = f"at least {within} brokers of one zone, host or cluster down at the same moment"
    plot = incident_scatter(found["drawn"], numbers["interval"], zone=local_time(numbers).zone)
    listed = first(found, "incidents", "report.json or the table incidents")
    return section("incidents", "Incidents", **listed, rule=rule, plot=plot)


def rolling_restarts(numbers: Numbers) -> Section | None:
    listed = first(numbers["rolling_restarts"], "rolling restarts", "report.json or the table rolling_restarts")
    return section("rolling", "Rolling restarts", **listed) if listed["rows"] else None


def guards(numbers: Numbers) -> Section | None:
    """When the expiry guard of a cluster was on, in order of time."""
    listed = first(numbers["guard_periods"], "periods", "report.json or the table guard_periods")
    listed["rows"].sort(key=lambda row: (row["from_at"], row["cluster"]))
    return section("guards", "Expiry guard", **listed) if listed["rows"] else None


def topics_at_risk(numbers: Numbers) -> Section:
    listed = first(numbers["topics_at_risk"], "topics", "report.json or the table topics_at_risk")
    rule = "a time in which nobody, only slaves, or one broker alone could serve them"
    return section("topics", "Topics at risk", **listed, rule=rule)


def topic_churn(numbers: Numbers) -> Section | None:
    listed = first(numbers["topic_churn"], "topics", "report.json or the table topic_churn")
    return section("churn", "Topics that changed", **listed) if listed["rows"] else None
