"""A second implementation of intervals and penalties in plain Python, step by step, for complete histories.

Nothing here is shared with the Spark job: it plays the rows one after another and keeps what each observer said.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from typing import Any

from tests.spark.histories import Row
from tests.spark.plain_watch import (
    Blind,
    Boot,
    Opinion,
    blind_times,
    by_boot,
    gaps,
    midnight_after,
    midnight_before,
    opinions,
    watches,
    when,
    whole_checkpoints,
)

HALF_LIFE, CEILING, SUPPRESS, REUSE = 3_600.0, 16_000.0, 3_000.0, 1_000.0
SLOT = timedelta(seconds=600)
_POINTS = {"RESTARTED": 1_000.0, "ADDRESS_CHANGED": 500.0, "ROLE_CHANGED": 500.0, "LATE_HEARTBEAT": 100.0}
_WHAT_IS_NEW = {"RESTARTED": "incarnation", "ADDRESS_CHANGED": "broker_addr", "ROLE_CHANGED": "broker_addr"}

Instance = tuple[str, str, int]
Sides = tuple[tuple[str, ...], tuple[str, ...]]


@dataclass(frozen=True)
class Interval:
    """One stretch of a broker's life, as all observers together saw it."""

    state: str
    start_at: datetime
    end_at: datetime
    start_censored: bool
    end_censored: bool
    planned: bool
    continues: bool
    reason: str | None


@dataclass(frozen=True)
class View:
    """A time of one day in which some nodes saw a broker up and others saw it down."""

    dt: date
    from_at: datetime
    to_at: datetime
    open: bool
    seen_up_by: tuple[str, ...]
    seen_down_by: tuple[str, ...]


@dataclass(frozen=True)
class Charge:
    """Points, and the penalty just after them."""

    at: datetime
    cause: str
    points: float
    penalty: float


@dataclass
class Moment:
    """Events of one broker's observers at one instant, in this order."""

    see_again: list[Blind]
    say: list[Opinion]
    leave_out: list[Opinion]
    go_blind: list[Blind]


class Broker:
    """Plays one broker's moments."""

    def __init__(self, until: datetime) -> None:
        self._until = until
        self._said: dict[Boot, Opinion] = {}
        self._off: dict[Boot, set[str]] = defaultdict(set)
        self._loss: Opinion | None = None
        self._open: dict[str, Any] | None = None
        self._was: str | None = None
        self._last_known: str | None = None
        self.intervals: list[Interval] = []
        self.sides: list[tuple[datetime, Sides]] = []

    def play(self, at: datetime, moment: Moment) -> None:
        for blind in moment.see_again:
            self._off[blind.boot].remove(blind.why)
        self._settle(at, None, left_alone=False)
        for opinion in sorted(moment.say, key=lambda opinion: (opinion.boot, opinion.seq)):
            self._said[opinion.boot] = opinion
            if opinion.said == "down" and opinion.planned is not None:
                self._loss = opinion
            self._settle(opinion.at, opinion, left_alone=False)
        for opinion in moment.leave_out:
            self._said[opinion.boot] = opinion
        for blind in moment.go_blind:
            self._off[blind.boot].add(blind.why)
        self._settle(at, None, left_alone=True)
        votes = self._votes()
        up, down = (tuple(sorted({boot[0] for boot, vote in votes.items() if vote == side})) for side in ("up", "down"))
        self.sides.append((at, (up, down)))

    def _votes(self) -> dict[Boot, str]:
        return {boot: opinion.said for boot, opinion in self._said.items() if not self._off[boot]}

    def _label(self) -> str:
        """up, down, left (down by plan) or none."""
        votes = set(self._votes().values())
        if "up" in votes:
            return "up"
        if "lost" in votes or "down" not in votes:
            return "none"
        return "left" if self._loss is not None and self._loss.planned else "down"

    def _settle(self, at: datetime, opinion: Opinion | None, *, left_alone: bool) -> None:
        if not self._said:
            return
        now = self._label()
        if now != self._was:
            if self._open:
                self._close(at, censored=now == "none")
            if now != "none":
                self._begin(at, now, opinion, left_alone=left_alone and now != "up")
        self._was = now

    def _begin(self, at: datetime, label: str, opinion: Opinion | None, *, left_alone: bool) -> None:
        censored = self._was == "none" or (self._was is None and not (opinion and opinion.is_fresh))
        cause = opinion if label == "up" else self._loss
        self._open = {
            "state": "up" if label == "up" else "down",
            "start_at": at,
            "start_censored": censored or left_alone,
            "planned": label == "left",
            "continues": label == "down" and (left_alone or (censored and self._last_known == "down")),
            "reason": cause.reason if cause else None,
        }
        self._last_known = label

    def _close(self, at: datetime, *, censored: bool) -> None:
        assert self._open is not None
        self.intervals.append(Interval(**self._open, end_at=at, end_censored=censored))
        self._open = None

    def finish(self) -> None:
        if self._open:
            self._close(self._until, censored=True)


def intervals(rows: list[Row], *, until: datetime) -> dict[Instance, list[Interval]]:
    """Each broker's intervals, in order."""
    return {broker: player.intervals for broker, player in played(rows, until=until).items()}


def played(rows: list[Row], *, until: datetime) -> dict[Instance, Broker]:
    """Process the complete history of each broker."""
    windows, blind = watches(rows), blind_times(rows, until=until)
    missing = {boot: gaps(own) for boot, own in by_boot(rows).items()}
    checkpoints = {boot: whole_checkpoints(own) for boot, own in by_boot(rows).items()}
    stories: dict[tuple[Instance, Boot], list[Row]] = defaultdict(list)
    for row in rows:
        if row.get("state") is not None:
            key = (row["cluster"], row["broker_name"], row["broker_id"])
            stories[key, (row["node"], row["boot_id"])].append(row)
    moments: dict[Instance, dict[datetime, Moment]] = defaultdict(lambda: defaultdict(lambda: Moment([], [], [], [])))
    for (broker, boot), own in stories.items():
        begin, end = windows[boot]
        assert begin is not None
        counted = _in_window(opinions(own, missing[boot], checkpoints[boot]), begin, end)
        for opinion in counted:
            moment = moments[broker][opinion.at]
            (moment.leave_out if opinion.left_out else moment.say).append(opinion)
        times = [time for time in blind[boot] if time.why in {"PAUSED", "SILENT"}]
        if end < until:
            times.append(Blind(boot, "LIFE", None, end, None))
        for time in times if counted else []:
            moments[broker][time.begin].go_blind.append(time)
            if time.end is not None:
                moments[broker][time.end].see_again.append(time)
    found = {}
    for broker, own_moments in moments.items():
        found[broker] = Broker(until)
        for at, moment in sorted(own_moments.items(), key=lambda entry: entry[0]):
            found[broker].play(at, moment)
        found[broker].finish()
    return found


def _in_window(recorded: list[Opinion], begin: datetime, end: datetime) -> list[Opinion]:
    """Statements within the window; the last one before it counts from its beginning."""
    early = [opinion for opinion in recorded if opinion.at < begin]
    within = [opinion for opinion in recorded if begin <= opinion.at <= end]
    return [*(replace(opinion, at=begin) for opinion in early[-1:] if begin <= end), *within]


def views(rows: list[Row], *, until: datetime) -> dict[Instance, list[View]]:
    """Each broker's partial views, in order."""
    found: dict[Instance, list[View]] = defaultdict(list)
    for broker, player in played(rows, until=until).items():
        for piece in _pieces([*player.sides, (until, ((), ()))]):
            last = found[broker][-1] if found[broker] else None
            sides = (piece.seen_up_by, piece.seen_down_by)
            touches = last and (last.dt, last.to_at, last.seen_up_by, last.seen_down_by) == (
                piece.dt,
                piece.from_at,
                *sides,
            )
            if last and touches:
                found[broker][-1] = replace(last, to_at=piece.to_at, open=piece.open)
            else:
                found[broker].append(piece)
    return {broker: own for broker, own in found.items() if own}


def _pieces(sides: list[tuple[datetime, Sides]]) -> Iterator[View]:
    for (begin, (up, down)), (end, _) in pairwise(sides):
        at = begin
        while up and down and at < end:
            to = min(end, midnight_after(at))
            yield View(midnight_before(at).date(), at, to, to == midnight_after(at), up, down)
            at = to


def charges(rows: list[Row], merged: dict[Instance, list[Interval]]) -> dict[Instance, list[Charge]]:
    """The events counted against each broker, in order, with the penalty after each."""
    due: dict[Instance, list[tuple[datetime, float, str]]] = defaultdict(list)
    windows = _maintenance(rows)
    for broker, own in merged.items():
        for interval in own:
            if interval.state == "down" and not interval.planned and not interval.continues:
                due[broker].append((interval.start_at, 1_000.0, "outage"))
            length = (interval.end_at - interval.start_at).total_seconds()
            was_polite = interval.planned and interval.reason == "SHUTDOWN" and not interval.end_censored
            if was_polite and length <= 300 and not _in_maintenance(windows, broker, interval.start_at):
                due[broker].append((interval.end_at, 200.0, "SHUTDOWN"))
    seen: dict[tuple[Any, ...], list[tuple[datetime, int, Boot, Any]]] = defaultdict(list)
    blind = blind_times(rows, until=max(map(when, rows)))
    for row in rows:
        points = _points(row)
        if points and not _was_its_own_silence(row, blind):
            at = when(row)
            same = _WHAT_IS_NEW.get(row["event"])
            recorded = (at, row["seq"], (row["node"], row["boot_id"]), row[same] if same else None)
            broker = (row["cluster"], row["broker_name"], row["broker_id"])
            today = midnight_after(at) - timedelta(days=1)
            # A day looks back over midnight by one slot.
            for day in (today, today + timedelta(days=1)):
                if at >= day - SLOT:
                    seen[broker, row["event"], points, day].append(recorded)
    for (broker, event, points, day), times in seen.items():
        due[broker] += [
            (at, points, event) for at in _each_once(times) if at >= day and not _in_maintenance(windows, broker, at)
        ]
    return {broker: _decayed(sorted(own)) for broker, own in due.items() if broker in merged}


def _maintenance(rows: list[Row]) -> list[tuple[str, str | None, datetime, datetime]]:
    """Cluster, broker name (None: all of it), beginning and end of each window."""
    of_key: dict[tuple[str, str, str | None], list[Row]] = defaultdict(list)
    for row in rows:
        if row["event"] in {"MAINTENANCE_ON", "MAINTENANCE_OFF"}:
            of_key[row["node"], row["cluster"], row.get("broker_name")].append(row)
    windows = []
    for (_, cluster, name), own in of_key.items():
        own.sort(key=lambda row: (when(row), row["boot_id"], row["seq"]))
        ends = [*map(when, own[1:]), datetime.max.replace(tzinfo=UTC)]
        for row, end in zip(own, ends, strict=True):
            if row["event"] == "MAINTENANCE_ON":
                seconds = (row["detail"] or {}).get("seconds", 86_400)
                windows.append((cluster, name, when(row), min(end, when(row) + timedelta(seconds=seconds))))
    return windows


def _in_maintenance(windows: list[tuple[str, str | None, datetime, datetime]], broker: Instance, at: datetime) -> bool:
    return any(
        cluster == broker[0] and name in {None, broker[1]} and begin <= at < end
        for cluster, name, begin, end in windows
    )


def _was_its_own_silence(row: Row, blind: dict[Boot, list[Blind]]) -> bool:
    """Whether the silence before a late heartbeat overlaps a time in which the observer was blind."""
    if row["event"] in _WHAT_IS_NEW:
        return False
    until, silence = when(row), timedelta(milliseconds=row.get("interval_ms") or 0)
    times = (time for time in blind[row["node"], row["boot_id"]] if time.cluster in {None, row["cluster"]})
    return any(time.begin <= until and (time.end is None or until - silence <= time.end) for time in times)


def _each_once(own: list[tuple[datetime, int, Boot, Any]]) -> list[datetime]:
    """When each sign was seen first: the nth of one observer is the nth of the others, within a slot."""
    slots: dict[Any, dict[Boot, list[datetime]]] = defaultdict(lambda: defaultdict(list))
    began = last = None
    for at, _, boot, what in sorted(own, key=lambda recorded: recorded[:3]):
        if began is None or last is None or at - last > SLOT:
            began = at
        last = at
        slots[what or began + (at - began) // SLOT * SLOT][boot].append(at)
    return [
        min(times[nth] for times in seen.values() if len(times) > nth)
        for seen in slots.values()
        for nth in range(max(map(len, seen.values())))
    ]


def _points(row: Row) -> float:
    if row["event"] == "RECOVERED":
        return 300.0 if row["reason"] == "HEARTBEAT" else 0.0
    return _POINTS.get(row["event"], 0.0)


def _decayed(due: list[tuple[datetime, float, str]]) -> list[Charge]:
    penalty, since = 0.0, None
    scored = []
    for at, points, cause in due:
        if since is not None:
            penalty *= 2 ** (-(at - since).total_seconds() / HALF_LIFE)
        penalty, since = min(CEILING, penalty + points), at
        scored.append(Charge(at, cause, points, penalty))
    return scored
