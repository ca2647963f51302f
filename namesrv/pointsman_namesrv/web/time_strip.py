"""When a broker was out of the routes, as rectangles of a strip, and its flap penalty as a curve. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from pointsman_namesrv.core.flap_penalties import FlapRules, Penalties
from pointsman_namesrv.core.model import Position
from pointsman_namesrv.core.replica_state import ROUTED
from pointsman_namesrv.history.recent import PER_BROKER
from pointsman_namesrv.history.row import Record

WIDTH = 1_000
"""Width of a strip and of a curve, in units of the drawing."""
CURVE_HEIGHT = 120
CURVE_STEPS = 160
LEAST_WIDTH = 8.0
"""The shortest outage that is seen: ten minutes of a day are about a pixel of a row."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A part of a strip."""

    x: float
    width: float
    kind: str
    """out, planned or unknown; the rest was routed."""
    title: str


@dataclass(frozen=True, slots=True)
class Absence:
    """A time out of the routes."""

    began_at: datetime
    ended_at: datetime | None
    planned: bool
    cause: str
    """Kind and reason of the event that began it."""


def absences(records: Sequence[Record], position: Position) -> list[Absence]:
    """Return the times in which a replica was out of the routes, by its events, oldest first.

    The first may have begun earlier than its event, where the one before it is not in memory.
    """
    found = list[Absence]()
    began_at: datetime | None = None
    is_planned, cause = True, ""
    for record in records:
        broker = record.event.broker
        if broker is None or broker.identity.position != position:
            continue
        if broker.state.phase in ROUTED:
            if began_at is not None:
                found.append(Absence(began_at, record.event_at, is_planned, cause))
            began_at, is_planned = None, True
            continue
        if began_at is None:
            for_seconds = broker.state_for or 0.0
            began_at = record.event_at - timedelta(seconds=for_seconds)
            cause = " ".join(filter(None, (record.event.kind.value, record.event.reason)))
        is_planned = is_planned and broker.state.planned
    if began_at is not None:
        found.append(Absence(began_at, None, is_planned, cause))
    return found


def strip(
    records: Sequence[Record],
    position: Position,
    *,
    now: datetime,
    hours: float,
    known_since: datetime,
    most: int = PER_BROKER,
) -> list[Bar]:
    """Return the parts of the strip of the last hours in which a replica was not routed, or that is not known.

    ``most``: number of records from which on there may be earlier ones.
    """
    span, begin = hours * 3_600.0, now - timedelta(hours=hours)

    def x(at: datetime) -> float:
        return max(0.0, min(1.0, (at - begin).total_seconds() / span)) * WIDTH

    bars = list[Bar]()
    of_it = [each for each in records if each.event.broker and each.event.broker.identity.position == position]
    # Of a name with very many events only the last are in memory.
    is_cut = len(records) >= most
    first = records[0].event_at if is_cut else min([known_since, *(each.event_at for each in of_it[:1])])
    if first > begin:
        bars.append(Bar(0.0, round(x(first), 1), "unknown", f"not known before {first:%Y-%m-%d %H:%M} UTC"))
    for each in absences(of_it, position):
        ended_at = each.ended_at or now
        if ended_at < begin:
            continue
        width = max(LEAST_WIDTH, x(ended_at) - x(each.began_at))
        until = f"to {ended_at:%m-%d %H:%M:%S}" if each.ended_at else "until now"
        title = (
            f"{'planned, ' if each.planned else ''}out from {each.began_at:%m-%d %H:%M:%S} {until} UTC: {each.cause}"
        )
        left = min(x(each.began_at), WIDTH - width)
        bars.append(Bar(round(left, 1), round(width, 1), "planned" if each.planned else "out", title))
    return bars


@dataclass(frozen=True, slots=True)
class Curve:
    """A penalty over time: points of a line, and the heights of the thresholds from the top."""

    points: str
    """As the attribute ``points`` of SVG's ``polyline``."""
    suppress_y: float
    reuse_y: float
    highest: float
    now: float


def penalty_curve(records: Sequence[Record], position: Position, *, now: datetime, hours: float) -> Curve | None:
    """Return the penalty that the events in memory give, by the rules that the core uses; None: no points.

    A maintenance window counts as far as the state of an event is planned.
    """
    rules, penalties = FlapRules(), Penalties()
    span, begin = hours * 3_600.0, now - timedelta(hours=hours)
    rest = [each for each in records if each.event.broker and each.event.broker.identity.position == position]
    values = list[float]()
    at = 0
    for step in range(CURVE_STEPS + 1):
        moment = begin + timedelta(seconds=span * step / CURVE_STEPS)
        while at < len(rest) and rest[at].event_at <= moment:
            penalties.record(rest[at].event, now=rest[at].event_at.timestamp())
            at += 1
        score = penalties.score(position, now=moment.timestamp())
        values.append(0.0 if score is None else score.penalty)
    highest = max(values)
    if not highest:
        return None
    top = 1.1 * max(highest, rules.suppress_above)

    def y(value: float) -> float:
        return round(CURVE_HEIGHT * (1 - value / top), 1)

    points = " ".join(f"{WIDTH * step / CURVE_STEPS:g},{y(value):g}" for step, value in enumerate(values))
    return Curve(points, y(rules.suppress_above), y(rules.reuse_below), highest, values[-1])
