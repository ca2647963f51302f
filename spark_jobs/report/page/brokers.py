"""The worst brokers, each with what can be said of it on one line; their states, hours and penalties drawn."""

from __future__ import annotations

from typing import Any

from spark_jobs.parameters import Parameters
from spark_jobs.report.classes import cause_name
from spark_jobs.report.numbers.drawn import MOST_TIMELINES, Drawn, most_charged, window_of
from spark_jobs.report.numbers.rows import key
from spark_jobs.report.page.table import broker, local_time, note, section, share, small, table, text, wide
from spark_jobs.report.plots.heat_map import heat_map
from spark_jobs.report.plots.penalty import penalty_curves
from spark_jobs.report.plots.timeline import timeline
from spark_jobs.report.wording import NOTHING, duration, label, micros, number

Numbers = dict[str, Any]
TOP = 20


def worst_brokers(numbers: Numbers) -> str:
    brokers = numbers["brokers"]
    if not brokers:
        return ""
    # Among many, a healthy one only fills the table.
    ill = [entry for entry in brokers if entry["class"] != "healthy"]
    worth = (ill if ill and len(brokers) > TOP else brokers)[:TOP]
    rows = [
        (
            small(broker(entry), _known(entry)),
            f'<span class="class {entry["class"]}">{entry["class"]}</span>',
            number(entry["penalty_max"]),
            small(number(entry["down_count"]), _in_incidents(entry)),
            duration(entry["longest_outage_seconds"]),
            small(duration(entry["mttr_seconds"]), f"{entry['censored']:,} cut off" if entry["censored"] else ""),
            duration(entry["mtbf_seconds"]),
            share(numbers, entry["availability"]),
            _state_change(entry),
            _rank(entry),
            _cause(entry),
        )
        for entry in worth
    ]
    head = ("Broker", "Class", "Penalty, max", "Outages", "Longest", "MTTR", "MTBF", "Availability")
    in_all = numbers["headline"]["brokers_seen"]
    rest = (
        f"The worst {len(worth)} of {in_all:,}; report.json lists {len(brokers):,}, the tables hold all. "
        if in_all > len(worth)
        else ""
    )
    explained = "Since: first seen on that day."
    if any(entry["censored"] for entry in worth):
        explained += (
            " Cut off: outages whose start or end was not seen; they count in the availability, not in the MTTR."
        )
    return section(
        "brokers",
        "Worst brokers",
        table("Worst brokers", (*head, "State change", "Rank in cluster", "Likely cause"), rows, numbers="ttnnnnnnnnt"),
        note(rest + explained),
    )


def _known(entry: Numbers) -> str:
    owner = f"owner {text(entry['owner'])}" if entry["owner"] else ""
    since = f"since {entry['first_seen_on']}" if entry["first_seen_on"] else ""
    return ", ".join(part for part in (owner, since) if part)


def _in_incidents(entry: Numbers) -> str:
    return f"{entry['incident_downs']:,} in incidents" if entry["incident_downs"] else ""


def _state_change(entry: Numbers) -> str:
    share = entry["percent_state_change"]
    return NOTHING if share is None else f"{share:.1f} %"


def _rank(entry: Numbers) -> str:
    ranking = entry["ranking"]
    # A healthy broker has a rank too, which says nothing of it.
    if not ranking or not ranking["outlier"] or ranking["rank"] is None:
        return NOTHING
    ratio = ranking["ratio"]
    return small(f"{ranking['rank']:,}", "" if not ratio else f"{ratio:,.1f} times its rate")


def _cause(entry: Numbers) -> str:
    reasons = ", ".join(f"{reason} ({n})" for reason, n in entry["reasons"].items())
    if entry["cause"]:
        said = "; ".join(part for part in (entry["cause_says"], reasons) if part)
        return small(text(cause_name(entry["cause"])), text(said) if said else "")
    return text(reasons)


def states(numbers: Numbers, drawn: Drawn, parameters: Parameters) -> str:
    """Plots of the worst brokers over the span."""
    if not drawn.intervals:
        return ""
    window, zone = window_of(numbers, drawn.intervals), local_time(numbers).zone
    shown = numbers["brokers"][:MOST_TIMELINES]
    names = [(key(entry), label(entry)) for entry in shown]
    rest = numbers["headline"]["brokers_seen"] - len(shown)
    legend = (
        '<span class="swatch up"></span>up <span class="swatch down"></span>down <span class="swatch planned"></span>'
        "away after a polite leave; blank where no name server watched."
    )
    more = f" The {rest:,} least conspicuous are left out." if rest else ""
    bars = timeline(names, drawn.intervals, window=window, zone=zone)
    parts = [section("states", "Up and down", note(legend + more), wide(bars))]
    parts.append(_heat(numbers))
    scored = most_charged(numbers)
    if scored:
        flapping = parameters.flapping
        half_lives = (window[0] - micros(numbers["interval"]["from_at"])) / (flapping.half_life_minutes * 60e6)
        curves = [(key(entry), label(entry), entry["penalty_start"] * 2**-half_lives) for entry in scored]
        plot = penalty_curves(curves, drawn.charges, flapping, window=window, zone=zone)
        said = (
            f"Each outage adds {flapping.points_outage:g} points; half is forgotten every "
            f"{flapping.half_life_minutes:g} minutes."
        )
        parts.append(section("penalty", "Flap penalty", note(said), wide(plot)))
    return "\n".join(part for part in parts if part)


def _heat(numbers: Numbers) -> str:
    found = numbers["transitions"]
    if not found["rows"] or found["columns"] < 2:
        return ""
    unit = "hour" if found["step_seconds"] == 3_600 else "day"
    said = f"How often each of the worst brokers went down, by {unit}; the darker, the more often."
    zone = local_time(numbers).zone
    plot = heat_map(found, start=micros(numbers["interval"]["from_at"]), zone=zone)
    return section("hours", f"Outages by {unit}", note(said), wide(plot))
