"""The worst brokers, each with what can be said of it on one line; their states, hours and penalties drawn."""

from __future__ import annotations

from spark_jobs.parameters import FlapParameters, Parameters
from spark_jobs.report.classes import cause_name
from spark_jobs.report.numbers.drawn import MOST_TIMELINES, Drawn, most_charged, window_of
from spark_jobs.report.numbers.rows import key
from spark_jobs.report.page.parts import (
    Content,
    Numbers,
    Piece,
    Section,
    Table,
    Tag,
    broker,
    local_time,
    note,
    plots,
    section,
    share,
    small,
)
from spark_jobs.report.plots.heat_map import heat_map
from spark_jobs.report.plots.penalty import penalty_curves
from spark_jobs.report.plots.timeline import timeline
from spark_jobs.report.wording import duration, label, micros, number

TOP = 20
Window = tuple[int, int]


def worst_brokers(numbers: Numbers) -> Section | None:
    brokers = numbers["brokers"]
    if not brokers:
        return None
    # Among many, a healthy one only fills the table.
    ill = [entry for entry in brokers if entry["class"] != "healthy"]
    worth = (ill if ill and len(brokers) > TOP else brokers)[:TOP]
    rows = [
        (
            (*broker(entry), _known(entry)),
            Tag("span", (entry["class"],), css=f"class {entry['class']}"),
            number(entry["penalty_max"]),
            (number(entry["down_count"]), _unless_none(entry["incident_downs"], "in incidents")),
            duration(entry["longest_outage_seconds"]),
            (duration(entry["mttr_seconds"]), _unless_none(entry["censored"], "cut off")),
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
        Table("Worst brokers", (*head, "State change", "Rank in cluster", "Likely cause"), rows, "ttnnnnnnnnt"),
        note(rest + explained),
    )


def _known(entry: Numbers) -> Tag:
    owner = f"owner {entry['owner']}" if entry["owner"] else ""
    since = f"since {entry['first_seen_on']}" if entry["first_seen_on"] else ""
    return small(", ".join(part for part in (owner, since) if part))


def _unless_none(count: int, what: str) -> Tag:
    return small(f"{count:,} {what}" if count else "")


def _state_change(entry: Numbers) -> str | None:
    share = entry["percent_state_change"]
    return None if share is None else f"{share:.1f} %"


def _rank(entry: Numbers) -> Content:
    ranking = entry["ranking"]
    # A healthy broker has a rank too, which says nothing of it.
    if not ranking or not ranking["outlier"] or ranking["rank"] is None:
        return None
    ratio = ranking["ratio"]
    return f"{ranking['rank']:,}", small(f"{ratio:,.1f} times its rate" if ratio else "")


def _cause(entry: Numbers) -> Content:
    reasons = ", ".join(f"{reason} ({n})" for reason, n in entry["reasons"].items())
    if entry["cause"]:
        return cause_name(entry["cause"]), small("; ".join(part for part in (entry["cause_says"], reasons) if part))
    return reasons


def states(numbers: Numbers, drawn: Drawn, parameters: Parameters) -> tuple[Section | None, ...]:
    """Plots of the worst brokers over the span."""
    if not drawn.intervals:
        return ()
    window = window_of(numbers, drawn.intervals)
    return (
        _up_and_down(numbers, drawn, window),
        _hours(numbers),
        _penalty(numbers, drawn, parameters.flapping, window),
    )


def _up_and_down(numbers: Numbers, drawn: Drawn, window: Window) -> Section:
    shown = numbers["brokers"][:MOST_TIMELINES]
    names = [(key(entry), label(entry)) for entry in shown]
    rest = numbers["headline"]["brokers_seen"] - len(shown)
    legend: list[Piece] = []
    for state, meaning in (("up", "up "), ("down", "down "), ("planned", "away after a polite leave; ")):
        legend += [Tag("span", css=f"swatch {state}"), meaning]
    more = f" The {rest:,} least conspicuous are left out." if rest else ""
    bars = timeline(names, drawn.intervals, window=window, zone=local_time(numbers).zone)
    explained = note(*legend, f"blank where no name server watched.{more}")
    return section("states", "Up and down", explained, plots(bars, wide=True))


def _penalty(numbers: Numbers, drawn: Drawn, flapping: FlapParameters, window: Window) -> Section | None:
    scored = most_charged(numbers)
    if not scored:
        return None
    half_lives = (window[0] - micros(numbers["interval"]["from_at"])) / (flapping.half_life_minutes * 60e6)
    curves = [(key(entry), label(entry), entry["penalty_start"] * 2**-half_lives) for entry in scored]
    plot = penalty_curves(curves, drawn.charges, flapping, window=window, zone=local_time(numbers).zone)
    explained = (
        f"Each outage adds {flapping.points_outage:g} points; half is forgotten every "
        f"{flapping.half_life_minutes:g} minutes."
    )
    return section("penalty", "Flap penalty", note(explained), plots(plot, wide=True))


def _hours(numbers: Numbers) -> Section | None:
    found = numbers["transitions"]
    if not found["rows"] or found["columns"] < 2:
        return None
    unit = "hour" if found["step_seconds"] == 3_600 else "day"
    explained = f"How often each of the worst brokers went down, by {unit}; the darker, the more often."
    plot = heat_map(found, start=micros(numbers["interval"]["from_at"]), zone=local_time(numbers).zone)
    return section("hours", f"Outages by {unit}", note(explained), plots(plot, wide=True))
