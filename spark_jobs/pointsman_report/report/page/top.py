"""What is read first: the headline's figures, each cluster against its objective."""

from __future__ import annotations

from typing import NamedTuple

from pointsman_report.report.page.section import Numbers, Section, local_time, section
from pointsman_report.report.wording import coarse_percent, counted, duration, number, percent, some


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


def tiles(numbers: Numbers) -> list[Tile]:
    headline, topics = numbers["headline"], numbers["topics_at_risk"]
    if headline["no_data"]:
        return []
    flapping, in_incidents = headline["flapping"], headline["incident_downs"]
    return [
        Tile(
            coarse_percent(headline["availability"], is_short=numbers["coverage"]["is_short"]),
            "availability",
            f"{duration(headline['down_seconds'])} downtime",
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
    headline = numbers["headline"]
    if not headline["clusters"]:
        return None
    return section(
        "clusters",
        "Clusters",
        rows=[cluster | {"rate": _rate(cluster), "is_below": _is_below(cluster)} for cluster in headline["clusters"]],
        slo_days=max(cluster["slo_days"] or 0 for cluster in headline["clusters"]),
        names=" ".join(
            f"{title}: {some(group['brokers'], of=group['count'], most=10)}."
            for title, group in (("New", headline["new"]), ("Gone", headline["gone"]))
            if group["count"]
        ),
    )


def _rate(cluster: Numbers) -> str:
    rate, low, high = (cluster[f"outages_per_broker_day{which}"] for which in ("", "_low", "_high"))
    if rate is None:
        return ""
    # More than a hundred are of a day that has just begun.
    low, rate, high = (f"{value:,.0f}" if value >= 100 else f"{value:.2g}" for value in (low, rate, high))
    return f"{rate} a day ({low} to {high})"


def _is_below(cluster: Numbers) -> bool:
    availability, slo = cluster["availability"], cluster["slo"]
    return slo is not None and availability is not None and bool(availability < slo)
