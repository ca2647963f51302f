"""What is read first: the verdict, the headline's figures, each cluster against its objective."""

from __future__ import annotations

from html import escape
from typing import Any

from spark_jobs.report.page.table import local_time, note, section, share, table, text
from spark_jobs.report.wording import NOTHING, counted, days_of, duration, number, percent, printable, some

Numbers = dict[str, Any]


_TITLES = {
    "basis": "what this rests on",
    "brokers": "worst brokers",
    "clusters": "clusters",
    "guards": "expiry guard",
    "heartbeats": "heartbeats",
    "incidents": "incidents",
    "nameservers": "name servers",
    "queues": "queues",
    "rolling": "rolling restarts",
    "topics": "topics at risk",
}


def head(numbers: Numbers) -> str:
    span, time = numbers["interval"], local_time(numbers)
    zone = span["timezone"]
    offsets = sorted({span["from_offset"], span["to_offset"]}, reverse=True)
    utc = "" if zone == "UTC" else f" (UTC{' and UTC'.join(offsets)}; {span['from_at'][:16]}Z to {span['to_at'][:16]}Z)"
    return (
        f"<header><h1>Brokers <span>{escape(days_of(numbers))}</span></h1>"
        f"<p>{time.plain(span['from_at'])[:16]} to {time.plain(span['to_at'])[:16]}, {span['hours']:g} hours; "
        f"all times are {escape(zone)}{escape(utc)}</p>{_coverage(numbers)}</header>"
    )


def _coverage(numbers: Numbers) -> str:
    covered = numbers["coverage"]
    if not covered["is_short"]:
        return ""
    days = "day" if numbers["from"] == numbers["to"] else "days"
    return (
        f'<p class="notice">This report covers {duration(covered["seconds"])} of the {days}: it gives no rates per day '
        "and no ranks.</p>"
    )


def verdict(numbers: Numbers) -> str:
    """The findings, worst first, each with what to do; and what must be known besides."""
    headline = numbers["headline"]
    told = "".join(f'<p class="notice">{escape(printable(said))}</p>' for said in headline["notices"])
    loud = " loud" if headline["no_data"] else ""
    if not numbers["findings"]:
        if headline["no_data"]:
            return f'<div class="verdict loud">{told}</div>'
        return f'{told}<p class="verdict fine">Nothing to look at.</p>'
    lines = "".join(
        f"<li><b>{escape(finding['text'])}</b> <span>{escape(finding['do'])}. "
        f'<a href="#{finding["see"]}">See {_TITLES[finding["see"]]}</a></span></li>'
        for finding in numbers["findings"]
    )
    title = counted(len(numbers["findings"]), "finding")
    return f'{told}<section class="verdict{loud}" aria-label="Findings"><h2>{title}</h2><ol>{lines}</ol></section>'


def tiles(numbers: Numbers) -> str:
    headline, flapping = numbers["headline"], numbers["headline"]["flapping"]
    topics = numbers["topics_at_risk"]
    in_incidents = headline["incident_downs"]
    tiles = (
        (
            share(numbers, headline["availability"]),
            "availability",
            f"{duration(headline['down_seconds'])} downtime",
            "",
        ),
        (number(headline["brokers_seen"]), "brokers", _new_and_gone(headline), ""),
        (
            number(flapping["now"]),
            "flapping",
            f"{flapping['day_before']:,} the day before, {flapping['seven_days']:,} in 7 days",
            "bad" if flapping["now"] else "",
        ),
        (number(headline["outages"]), "outages", f"{in_incidents:,} of them in incidents" if in_incidents else "", ""),
        (
            number(topics["in_all"]),
            "topics at risk",
            f"{topics['unwritable']:,} could not be written to",
            "bad" if topics["unwritable"] else "",
        ),
        _coverage_tile(numbers),
    )
    cells = (
        f'<div class="{kind}"><b>{value}</b><span>{name}</span>{f"<small>{below}</small>" if below else ""}</div>'
        for value, name, below, kind in tiles
    )
    return f'<section class="tiles" aria-label="Headline">{"".join(cells)}</section>'


def _coverage_tile(numbers: Numbers) -> tuple[str, str, str, str]:
    data, covered = numbers["completeness"], numbers["coverage"]
    if covered["is_short"]:
        return duration(covered["seconds"]), "of the day covered", _lost(data), ""
    is_bad = covered["seconds"] < 0.99 * covered["span_seconds"]
    covers = percent(covered["seconds"] / covered["span_seconds"], digits=1)
    return covers, "monitoring coverage", _lost(data), "bad" if is_bad else ""


def _new_and_gone(headline: Numbers) -> str:
    return f"{headline['new']['count']:,} new, {headline['gone']['count']:,} gone"


def _lost(data: Numbers) -> str:
    return f"{counted(data['rows_missing'], 'row')} lost, {counted(data['quarantined_lines'], 'bad line')}"


def clusters(numbers: Numbers) -> str:
    found = numbers["headline"]["clusters"]
    if not found:
        return ""
    rows = [
        (
            f"<b>{text(cluster['cluster'])}</b>",
            number(cluster["brokers"]),
            _against(numbers, cluster),
            NOTHING if cluster["slo"] is None else percent(cluster["slo"]),
            _budget(cluster),
            duration(cluster["down_seconds"]),
            duration(cluster["planned_seconds"]),
            number(cluster["outages"]) + _rate(cluster),
            number(cluster["incident_downs"]),
            duration(cluster["mttr_seconds"]),
            duration(cluster["mtbf_seconds"]),
            number(cluster["flapping"]),
        )
        for cluster in found
    ]
    titles = ("Cluster", "Brokers", "Availability", "Objective", "Error budget", "Down", "Planned", "Outages")
    days = max((cluster["slo_days"] or 0 for cluster in found), default=0)
    said = (
        [
            f"The budget is broker time that may be down in {counted(days, 'UTC day')} under the objective.",
            "MTTR: of outages whose start and end were seen. MTBF: up time per outage.",
            f"Both, and the outages per broker and day (95 % limits), are of the UTC day {numbers['to']}.",
        ]
        if days
        else []
    )
    if numbers["headline"]["clusters_left_out"]:
        said.append(f"{numbers['headline']['clusters_left_out']:,} more clusters are in the tables.")
    names = _people(numbers["headline"])
    head = (*titles, "In incidents", "MTTR", "MTBF", "Flapping")
    return section(
        "clusters", "Clusters", table("Clusters", head, rows, numbers="tnnnnnnnnnnn"), note(" ".join(said)), names
    )


def _rate(cluster: Numbers) -> str:
    rate, low, high = (cluster[f"outages_per_broker_day{which}"] for which in ("", "_low", "_high"))
    if rate is None:
        return ""
    # More than a hundred are of a day that has just begun.
    low, rate, high = (f"{value:,.0f}" if value >= 100 else f"{value:.2g}" for value in (low, rate, high))
    return f"<small>{rate} a day ({low} to {high})</small>"


def _against(numbers: Numbers, cluster: Numbers) -> str:
    shown = share(numbers, cluster["availability"])
    below = (
        cluster["slo"] is not None and cluster["availability"] is not None and cluster["availability"] < cluster["slo"]
    )
    return f'<span class="under">{shown}</span>' if below else shown


def _budget(cluster: Numbers) -> str:
    left, budget = cluster["budget_left_seconds"], cluster["budget_seconds"]
    if left is None or not budget:
        return NOTHING
    used = f"used {duration(budget - left)} of {duration(budget)}"
    if left < 0:
        return f'<span class="under">over by {duration(-left)}</span><small>{used}</small>'
    return f"{duration(left)} left<small>{used}</small>"


def _people(headline: Numbers) -> str:
    parts = [
        f"{title}: {escape(some(group['brokers'], of=group['count'], most=10))}."
        for title, group in (("New", headline["new"]), ("Gone", headline["gone"]))
        if group["count"]
    ]
    return note(" ".join(parts))
