"""The rules of intervals and penalties once more, in plain Python and step by step, for whole histories.

Nothing here is shared with the Spark job: it plays the rows one after another and keeps what each observer said.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.spark.histories import Row

UP = {"REGISTERED", "REREGISTERED", "ROLE_CHANGED", "ADDRESS_CHANGED", "RESTARTED", "RECOVERED"}
DOWN = {"EXPIRED", "PROBE_FAILED", "UNREGISTERED"}
SIGNS = {"SUSPECTED", "LATE_HEARTBEAT", "HEARTBEATS", "CHECKPOINT"}
HALF_LIFE, CEILING, SUPPRESS, REUSE = 3_600.0, 16_000.0, 3_000.0, 1_000.0

Instance = tuple[str, str, int]
Boot = tuple[str, str]


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
class Charge:
    """Points, and the penalty just after them."""

    at: datetime
    cause: str
    points: float
    penalty: float


def when(row: Row) -> datetime:
    return datetime.fromisoformat(row["event_at"])


def midnight_after(moment: datetime) -> datetime:
    return moment.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)


def watches(rows: list[Row]) -> dict[Boot, tuple[datetime | None, datetime]]:
    """When each life of a name server watched."""
    by_boot: dict[Boot, list[Row]] = defaultdict(list)
    for row in rows:
        by_boot[row["node"], row["boot_id"]].append(row)
    found = {}
    for boot, own in by_boot.items():
        ready = [when(row) for row in own if row["event"] == "NAMESRV_READY"]
        work = [when(row) for row in own if row["event"] != "NAMESRV_STARTED"]
        stopped = [when(row) for row in own if row["event"] == "NAMESRV_STOPPED"]
        end = min(stopped) if stopped else max(when(row) for row in own)
        if not stopped and midnight_after(end) - end <= timedelta(seconds=150):
            end = midnight_after(end)
        found[boot] = (min(ready or work, default=None), end)
    return found


class Broker:
    """Plays one broker's rows."""

    def __init__(self, until: datetime) -> None:
        self._until = until
        self._said: dict[Boot, str] = {}
        self._loss: Row | None = None
        self._open: dict[str, Any] | None = None
        self._ever = False
        self._last_known: str | None = None
        self.intervals: list[Interval] = []

    def step(self, at: datetime, boot: Boot, said: str, row: Row) -> None:
        """An observer says up or down."""
        self._said[boot] = said
        if row["event"] in DOWN:
            self._loss = row
        self._settle(at, row)

    def leave(self, at: datetime, boots: list[Boot]) -> None:
        """Observers watch no more, all at once."""
        for boot in boots:
            self._said.pop(boot, None)
        self._settle(at, None)

    def _settle(self, at: datetime, row: Row | None) -> None:
        now = "none" if not self._said else "up" if "up" in self._said.values() else "down"
        before = self._open["state"] if self._open else "none"
        if now == before:
            return
        if self._open:
            self._close(at, censored=now == "none")
        if now != "none":
            self._begin(at, now, row)

    def _begin(self, at: datetime, state: str, row: Row | None) -> None:
        if self._ever:
            censored = not self.intervals or self.intervals[-1].end_censored
        else:
            censored = row is not None and (row["event"] in SIGNS or row.get("reason") == "SNAPSHOT")
        left_alone = state == "down" and row is None
        planned = state == "down" and self._loss is not None and self._loss["event"] == "UNREGISTERED"
        kind = "left" if planned else state
        cause = self._loss if state == "down" else row
        self._open = {
            "state": state,
            "start_at": at,
            "start_censored": censored or left_alone,
            "planned": planned,
            "continues": kind == "down" and (left_alone or (censored and self._last_known == "down")),
            "reason": cause.get("reason") if cause else None,
        }
        self._ever, self._last_known = True, kind

    def _close(self, at: datetime, *, censored: bool) -> None:
        assert self._open is not None
        self.intervals.append(Interval(**self._open, end_at=at, end_censored=censored))
        self._open = None

    def finish(self) -> list[Interval]:
        if self._open:
            self._close(self._until, censored=True)
        return self.intervals


def intervals(rows: list[Row], *, until: datetime) -> dict[Instance, list[Interval]]:
    """Each broker's intervals, in order."""
    windows = watches(rows)
    stories: dict[tuple[Instance, Boot], list[Row]] = defaultdict(list)
    for row in rows:
        if row.get("broker_name") is not None and row["event"] in UP | DOWN | SIGNS:
            key = (row["cluster"], row["broker_name"], row["broker_id"])
            stories[key, (row["node"], row["boot_id"])].append(row)
    steps: dict[Instance, list[tuple[Any, ...]]] = defaultdict(list)
    leaves: dict[Instance, dict[datetime, list[Boot]]] = defaultdict(lambda: defaultdict(list))
    for (broker, boot), own in stories.items():
        begin, end = windows[boot]
        assert begin is not None
        early, decided, last = None, None, None
        for row in sorted(own, key=lambda row: (when(row), row["seq"])):
            said = _said(row, decided, first=decided is None)
            if row["event"] in DOWN or (row["event"] in UP and not _only_a_beat(row)):
                decided = row["event"]
            if said is None or when(row) > end:
                continue
            last = said
            if when(row) < begin:
                early = (begin, boot, row["seq"], said, row)
            else:
                steps[broker].append((when(row), boot, row["seq"], said, row))
        if early and not any(step[0] == begin and step[1] == boot and step[2] < early[2] for step in steps[broker]):
            steps[broker].append(early)
        if last is not None and end < until:
            leaves[broker][end].append(boot)
    found = {}
    for broker, told in steps.items():
        found[broker] = _played(Broker(until), told, sorted(leaves[broker].items()))
    return found


def _played(player: Broker, told: list[tuple[Any, ...]], leaves: list[tuple[datetime, list[Boot]]]) -> list[Interval]:
    for at, boot, _, said, row in sorted(told, key=lambda step: step[:3]):
        while leaves and leaves[0][0] < at:
            player.leave(*leaves.pop(0))
        player.step(at, boot, said, row)
    for at, boots in leaves:
        player.leave(at, boots)
    return player.finish()


def _only_a_beat(row: Row) -> bool:
    return row["event"] == "RECOVERED" and row.get("reason") == "HEARTBEAT"


def _said(row: Row, decided: str | None, *, first: bool) -> str | None:
    if row["event"] in DOWN:
        return "down"
    if row["event"] in SIGNS:
        return "up" if first else None
    if _only_a_beat(row) and decided == "PROBE_FAILED":
        return None
    return "up"


def charges(rows: list[Row], merged: dict[Instance, list[Interval]]) -> dict[Instance, list[Charge]]:
    """What each broker is charged for, in order, with the penalty after it."""
    due: dict[Instance, list[tuple[datetime, float, str]]] = defaultdict(list)
    for broker, own in merged.items():
        for interval in own:
            if interval.state == "down" and not interval.planned and not interval.continues:
                due[broker].append((interval.start_at, 1_000.0, "outage"))
            length = (interval.end_at - interval.start_at).total_seconds()
            if interval.planned and interval.reason == "SHUTDOWN" and not interval.end_censored and length <= 300:
                due[broker].append((interval.end_at, 200.0, "SHUTDOWN"))
    signs: dict[tuple[Any, ...], dict[Boot, list[datetime]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        points = _points(row)
        if points:
            at = when(row)
            slot = int(at.timestamp()) // 600
            same = {"RESTARTED": "incarnation", "ADDRESS_CHANGED": "broker_addr"}.get(row["event"])
            sign = (at.date(), row["event"], row[same] if same else slot, points)
            broker = (row["cluster"], row["broker_name"], row["broker_id"])
            signs[broker, sign][row["node"], row["boot_id"]].append(at)
    for (broker, (_, event, _, points)), seen in signs.items():
        times = [sorted(own) for own in seen.values()]
        for nth in range(max(map(len, times))):
            due[broker].append((min(own[nth] for own in times if len(own) > nth), points, event))
    return {broker: _decayed(sorted(own)) for broker, own in due.items() if broker in merged}


def _points(row: Row) -> float:
    if row["event"] == "RECOVERED":
        return 300.0 if _only_a_beat(row) else 0.0
    return {"RESTARTED": 1_000.0, "ADDRESS_CHANGED": 500.0, "LATE_HEARTBEAT": 100.0}.get(row["event"], 0.0)


def _decayed(due: list[tuple[datetime, float, str]]) -> list[Charge]:
    penalty, since = 0.0, None
    scored = []
    for at, points, cause in due:
        if since is not None:
            penalty *= 2 ** (-(at - since).total_seconds() / HALF_LIFE)
        penalty, since = min(CEILING, penalty + points), at
        scored.append(Charge(at, cause, points, penalty))
    return scored
