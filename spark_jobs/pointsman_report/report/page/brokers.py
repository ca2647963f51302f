"""The worst brokers, each with what can be said of it on one line; their states, hours and penalties drawn."""

from __future__ import annotations

from pointsman_report.parameters import FlapParameters, Parameters
from pointsman_report.report.numbers.drawn import MOST_TIMELINES, Drawn, most_charged, window_of
from pointsman_report.report.numbers.rows import key
from pointsman_report.report.page.section import TOP, Numbers, Section, local_time, section
from pointsman_report.report.plots.heat_map import heat_map
from pointsman_report.report.plots.penalty import penalty_curves
from pointsman_report.report.plots.timeline import timeline
from pointsman_report.report.wording import label, micros

Window = tuple[int, int]


def worst_brokers(numbers: Numbers) -> Section | None:
    brokers = numbers["brokers"]
    if not brokers:
        return None
    # Among many, a healthy one only fills the table.
    ill = [entry for entry in brokers if entry["class"] != "healthy"]
    worst = (ill if ill and len(brokers) > TOP else brokers)[:TOP]
    in_all = numbers["headline"]["brokers_seen"]
    rest = f"The worst {len(worst)} of {in_all:,}; report.json lists {len(brokers):,}, the tables hold all. "
    return section(
        "brokers",
        "Worst brokers",
        worst=[entry | {"known": _known(entry), "reasons": _reasons(entry)} for entry in worst],
        rest=rest if in_all > len(worst) else "",
        is_cut=any(entry["censored"] for entry in worst),
    )


def _known(entry: Numbers) -> str:
    owner = f"owner {entry['owner']}" if entry["owner"] else ""
    since = f"since {entry['first_seen_on']}" if entry["first_seen_on"] else ""
    return ", ".join(part for part in (owner, since) if part)


def _reasons(entry: Numbers) -> str:
    return ", ".join(f"{reason} ({n})" for reason, n in entry["reasons"].items())


def states(numbers: Numbers, drawn: Drawn, parameters: Parameters) -> tuple[Section | None, ...]:
    """Plots of the worst brokers over the span."""
    if not drawn.intervals:
        return ()
    window, flapping = window_of(numbers, drawn.intervals), parameters.flapping
    return _up_and_down(numbers, drawn, window), _hours(numbers), _penalty(numbers, drawn, flapping, window)


def _up_and_down(numbers: Numbers, drawn: Drawn, window: Window) -> Section:
    shown = numbers["brokers"][:MOST_TIMELINES]
    names = [(key(entry), label(entry)) for entry in shown]
    plot = timeline(names, drawn.intervals, window=window, zone=local_time(numbers).zone)
    return section("states", "Up and down", rest=numbers["headline"]["brokers_seen"] - len(shown), plot=plot)


def _hours(numbers: Numbers) -> Section | None:
    found = numbers["transitions"]
    if not found["rows"] or found["columns"] < 2:
        return None
    unit = "hour" if found["step_seconds"] == 3_600 else "day"
    plot = heat_map(found, start=micros(numbers["interval"]["from_at"]), zone=local_time(numbers).zone)
    return section("hours", f"Outages by {unit}", unit=unit, plot=plot)


def _penalty(numbers: Numbers, drawn: Drawn, flapping: FlapParameters, window: Window) -> Section | None:
    scored = most_charged(numbers)
    if not scored:
        return None
    half_lives = (window[0] - micros(numbers["interval"]["from_at"])) / (flapping.half_life_minutes * 60e6)
    curves = [(key(entry), label(entry), entry["penalty_start"] * 2**-half_lives) for entry in scored]
    plot = penalty_curves(curves, drawn.charges, flapping, window=window, zone=local_time(numbers).zone)
    points, half_life = f"{flapping.points_outage:g}", f"{flapping.half_life_minutes:g}"
    return section("penalty", "Flap penalty", points=points, half_life=half_life, plot=plot)
