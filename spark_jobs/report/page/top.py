"""What is read first: the headline's figures, each cluster against its objective."""

from __future__ import annotations

from typing import NamedTuple

from spark_jobs.report.page.parts import (
    Content,
    Numbers,
    Section,
    Table,
    Tag,
    bold,
    local_time,
    note,
    section,
    share,
    small,
)
from spark_jobs.report.wording import NOTHING, counted, duration, number, percent, some


class Tile(NamedTuple):
    """One figure of the headline, with a line of small text below."""

    value: str
    name: str
    below: str = ""
    bad: bool = False


def hours(numbers: Numbers) -> str:
    """The time that the report is of, in its zone and in UTC."""
    span, time = numbers["interval"], local_time(numbers)
    zone = span["timezone"]
    offsets = sorted({span["from_offset"], span["to_offset"]}, reverse=True)
    utc = "" if zone == "UTC" else f" (UTC{' and UTC'.join(offsets)}; {span['from_at'][:16]}Z to {span['to_at'][:16]}Z)"
    return (
        f"{time.plain(span['from_at'])[:16]} to {time.plain(span['to_at'])[:16]}, {span['hours']:g} hours; "
        f"all times are {zone}{utc}"
    )


def short_coverage(numbers: Numbers) -> str:
    covered = numbers["coverage"]
    if not covered["is_short"]:
        return ""
    days = "day" if numbers["from"] == numbers["to"] else "days"
    return f"This report covers {duration(covered['seconds'])} of the {days}: it gives no rates per day and no ranks."


def tiles(numbers: Numbers) -> list[Tile]:
    headline, topics = numbers["headline"], numbers["topics_at_risk"]
    if headline["no_data"]:
        return []
    flapping, in_incidents = headline["flapping"], headline["incident_downs"]
    return [
        Tile(
            share(numbers, headline["availability"]), "availability", f"{duration(headline['down_seconds'])} downtime"
        ),
        Tile(
            number(headline["brokers_seen"]),
            "brokers",
            f"{headline['new']['count']:,} new, {headline['gone']['count']:,} gone",
        ),
        Tile(
            number(flapping["now"]),
            "flapping",
            f"{flapping['day_before']:,} the day before, {flapping['seven_days']:,} in 7 days",
            bad=bool(flapping["now"]),
        ),
        Tile(number(headline["outages"]), "outages", f"{in_incidents:,} of them in incidents" if in_incidents else ""),
        Tile(
            number(topics["in_all"]),
            "topics at risk",
            f"{topics['unwritable']:,} could not be written to",
            bad=bool(topics["unwritable"]),
        ),
        _coverage_tile(numbers),
    ]


def _coverage_tile(numbers: Numbers) -> Tile:
    data, covered = numbers["completeness"], numbers["coverage"]
    lost = f"{counted(data['rows_missing'], 'row')} lost, {counted(data['quarantined_lines'], 'bad line')}"
    if covered["is_short"]:
        return Tile(duration(covered["seconds"]), "of the day covered", lost)
    ratio = covered["seconds"] / covered["span_seconds"]
    return Tile(percent(ratio, digits=1), "monitoring coverage", lost, bad=ratio < 0.99)


def clusters(numbers: Numbers) -> Section | None:
    found = numbers["headline"]["clusters"]
    if not found:
        return None
    rows = [
        (
            bold(cluster["cluster"]),
            number(cluster["brokers"]),
            _against(numbers, cluster),
            percent(cluster["slo"]),
            _budget(cluster),
            duration(cluster["down_seconds"]),
            duration(cluster["planned_seconds"]),
            (number(cluster["outages"]), small(_rate(cluster))),
            number(cluster["incident_downs"]),
            duration(cluster["mttr_seconds"]),
            duration(cluster["mtbf_seconds"]),
            number(cluster["flapping"]),
        )
        for cluster in found
    ]
    titles = ("Cluster", "Brokers", "Availability", "Objective", "Error budget", "Down", "Planned", "Outages")
    head = (*titles, "In incidents", "MTTR", "MTBF", "Flapping")
    days = max((cluster["slo_days"] or 0 for cluster in found), default=0)
    explained = (
        [
            f"The budget is broker time that may be down in {counted(days, 'UTC day')} under the objective.",
            "MTTR: of outages whose start and end were seen. MTBF: up time per outage.",
            f"Both, and the outages per broker and day (95 % limits), are of the UTC day {numbers['to']}.",
        ]
        if days
        else []
    )
    if numbers["headline"]["clusters_left_out"]:
        explained.append(f"{numbers['headline']['clusters_left_out']:,} more clusters are in the tables.")
    names = [
        f"{title}: {some(group['brokers'], of=group['count'], most=10)}."
        for title, group in (("New", numbers["headline"]["new"]), ("Gone", numbers["headline"]["gone"]))
        if group["count"]
    ]
    return section(
        "clusters",
        "Clusters",
        Table("Clusters", head, rows, "tnnnnnnnnnnn"),
        note(" ".join(explained)),
        note(" ".join(names)),
    )


def _rate(cluster: Numbers) -> str:
    rate, low, high = (cluster[f"outages_per_broker_day{which}"] for which in ("", "_low", "_high"))
    if rate is None:
        return ""
    # More than a hundred are of a day that has just begun.
    low, rate, high = (f"{value:,.0f}" if value >= 100 else f"{value:.2g}" for value in (low, rate, high))
    return f"{rate} a day ({low} to {high})"


def _against(numbers: Numbers, cluster: Numbers) -> Content:
    shown, availability, slo = share(numbers, cluster["availability"]), cluster["availability"], cluster["slo"]
    return _under(shown) if slo is not None and availability is not None and availability < slo else shown


def _budget(cluster: Numbers) -> Content:
    left, budget = cluster["budget_left_seconds"], cluster["budget_seconds"]
    if left is None or not budget:
        return NOTHING
    rest = _under(f"over by {duration(-left)}") if left < 0 else f"{duration(left)} left"
    return rest, small(f"used {duration(budget - left)} of {duration(budget)}")


def _under(text: str) -> Tag:
    return Tag("span", (text,), css="under")
