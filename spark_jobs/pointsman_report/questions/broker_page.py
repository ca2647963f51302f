"""The page of one broker: its states and penalty over the days as plots, and what ``history`` lists as tables."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from functools import partial
from importlib import resources
from typing import Any

from markupsafe import Markup

from pointsman.history.row_format import microseconds
from pointsman_report import __version__
from pointsman_report.parameters import Parameters
from pointsman_report.questions.broker_history import BrokerHistory, ReplicaHistory
from pointsman_report.report.broker_plots import Charge, Curve, StateBar, penalty_curves, timeline
from pointsman_report.report.drawing import drawn_twice
from pointsman_report.report.formatting import LocalTime
from pointsman_report.report.page import TEMPLATES
from pointsman_report.report.span import Window

MOST_ROWS = 200
"""Outages in the table."""


def broker_page(history: BrokerHistory, parameters: Parameters) -> str:
    """Render the page; everything on it is in the JSON of ``history`` too."""
    style = resources.files("pointsman_report.report").joinpath("page.css").read_text(encoding="utf-8")
    document, window = history.as_dict(), _window(history)
    return TEMPLATES.get_template("broker.html").render(
        style=Markup(style),  # noqa: S704 - our own file
        name=history.asked.broker_name,
        document=document,
        computed=history.computed,
        replicas=[
            (facts, _plots(one, window, parameters))
            for one, facts in zip(history.replicas, document["replicas"], strict=True)
        ],
        local=LocalTime(parameters.report.zone),
        flapping=parameters.flapping,
        most=MOST_ROWS,
        version=__version__,
    )


def _window(history: BrokerHistory) -> Window:
    """The computed part of the days."""
    first = history.computed[0] if history.computed else history.first_day
    last = history.computed[-1] if history.computed else history.last_day
    begin, end = (datetime.combine(day, time(), UTC) for day in (first, last + timedelta(days=1)))
    return microseconds(begin), microseconds(end)


def _plots(one: ReplicaHistory, window: Window, parameters: Parameters) -> dict[str, Any]:
    zone = parameters.report.zone
    if not one.intervals:
        return {"states": None, "penalty": None}
    bars = [
        StateBar(
            *one.replica,
            each.state,
            each.planned,
            microseconds(each.start_at),
            window[1] if each.end_at is None else microseconds(each.end_at),
        )
        for each in one.intervals
    ]
    label = f"{one.replica[1]}/{one.replica[2]}"
    states = drawn_twice(partial(timeline, [(one.replica, label)], bars, window=window, zone=zone))
    if not one.charges:
        return {"states": states, "penalty": None}
    charges = [Charge(*one.replica, microseconds(each.at), each.penalty) for each in one.charges]
    curve = Curve(one.replica, label, one.days[0]["penalty_start"] if one.days else 0.0)
    draw = partial(penalty_curves, [curve], charges, parameters.flapping, window=window, zone=zone)
    return {"states": states, "penalty": drawn_twice(draw)}
