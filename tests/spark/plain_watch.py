"""What each name server could see and what it said, once more in plain Python: the first half of the reference.

Nothing here is shared with the Spark job.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from tests.spark.histories import Row

UP = {"REGISTERED", "REREGISTERED", "ROLE_CHANGED", "ADDRESS_CHANGED", "RESTARTED", "RECOVERED"}
DOWN = {"EXPIRED", "PROBE_FAILED", "UNREGISTERED"}
SIGNS = {"SUSPECTED", "LATE_HEARTBEAT", "HEARTBEATS", "CHECKPOINT"}
UNSURE = {"PROVISIONAL", "PROBE_FAILED", "PROTECTED"}

Boot = tuple[str, str]
Announced = Callable[[Row], bool]


@dataclass(frozen=True)
class Blind:
    """A time in which a life of a name server could not tell who was alive."""

    boot: Boot
    why: str
    cluster: str | None
    begin: datetime
    end: datetime | None


@dataclass(frozen=True)
class Opinion:
    """What an observer says of a broker, from ``at`` on."""

    at: datetime
    boot: Boot
    seq: int
    said: str
    said_at: datetime
    row: Row


def when(row: Row) -> datetime:
    return datetime.fromisoformat(row["event_at"])


def midnight_before(moment: datetime) -> datetime:
    return moment.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def midnight_after(moment: datetime) -> datetime:
    return midnight_before(moment) + timedelta(days=1)


def by_boot(rows: list[Row]) -> dict[Boot, list[Row]]:
    found: dict[Boot, list[Row]] = defaultdict(list)
    for row in rows:
        found[row["node"], row["boot_id"]].append(row)
    return found


def watches(rows: list[Row]) -> dict[Boot, tuple[datetime | None, datetime]]:
    """When each life of a name server watched."""
    lives = by_boot(rows)
    born: dict[str, list[datetime]] = defaultdict(list)
    for (node, _), own in lives.items():
        born[node].append(min(map(when, own)))
    found = {}
    for boot, own in lives.items():
        ready = [when(row) for row in own if row["event"] == "NAMESRV_READY"]
        work = [when(row) for row in own if row["event"] != "NAMESRV_STARTED"]
        stopped = [when(row) for row in own if row["event"] == "NAMESRV_STOPPED"]
        end = min(stopped) if stopped else max(map(when, own))
        later = [other for other in born[boot[0]] if end < other < midnight_after(end)]
        if not stopped and not later and midnight_after(end) - end <= timedelta(seconds=150):
            end = midnight_after(end)
        found[boot] = (min(ready or work, default=None), end)
    return found


def blind_times(rows: list[Row], *, until: datetime) -> dict[Boot, list[Blind]]:
    """Pauses and guards of each life, none of no length."""
    every = {}
    windows = watches(rows)
    for boot, own in by_boot(rows).items():
        last = windows[boot][1]
        found = []
        guards: dict[str, datetime] = {}
        paused_until = datetime.min.replace(tzinfo=UTC)
        for row in sorted(own, key=lambda row: (when(row), row["seq"])):
            at = when(row)
            if row["event"] == "GUARD_ON":
                guards.setdefault(row["cluster"], at)
            elif row["event"] in {"GUARD_OFF", "EXPIRED"} and row["cluster"] in guards:
                found.append(Blind(boot, "GUARD", row["cluster"], guards.pop(row["cluster"]), min(at, last)))
            elif row["event"] == "NAMESRV_PAUSED":
                began = at - timedelta(seconds=row["detail"]["seconds"])
                found.append(Blind(boot, "PAUSED", None, max(began, midnight_before(at), paused_until), min(at, last)))
                paused_until = at
        end = last if last < until else None
        found += [Blind(boot, "GUARD", cluster, begin, end) for cluster, begin in guards.items()]
        every[boot] = [time for time in found if time.end is None or time.begin < time.end]
    return every


def announced(rows: list[Row]) -> Announced:
    """Whether a row stands in a maintenance window of its broker or cluster."""
    told: dict[tuple[str, str, str | None], list[Row]] = defaultdict(list)
    for row in rows:
        if row["event"] in {"MAINTENANCE_ON", "MAINTENANCE_OFF"}:
            told[row["node"], row["cluster"], row.get("broker_name")].append(row)
    windows: dict[str, list[tuple[str | None, datetime, datetime]]] = defaultdict(list)
    for (_, cluster, name), own in told.items():
        own.sort(key=lambda row: (when(row), row["boot_id"], row["seq"]))
        for row, following in zip(own, [*own[1:], None], strict=True):
            if row["event"] == "MAINTENANCE_ON":
                over = when(row) + timedelta(seconds=row["detail"].get("seconds", 86_400))
                windows[cluster].append((name, when(row), min(over, when(following)) if following else over))

    def covers(row: Row) -> bool:
        at = when(row)
        own = windows.get(row["cluster"], [])
        return any(begin <= at < end and name in {None, row["broker_name"]} for name, begin, end in own)

    return covers


@dataclass(frozen=True)
class Checkpoint:
    """Whom a name server held as a day began, told whole."""

    first: int
    at: datetime
    names: frozenset[tuple[str, str, int]]


def whole_checkpoints(own: list[Row]) -> list[Checkpoint]:
    """Those of one life, in which and beside which no row is missing, and which it survived by two minutes."""
    by_day: dict[date, list[Row]] = defaultdict(list)
    for row in own:
        if row["event"] == "CHECKPOINT" and row["reason"] == "DAY":
            by_day[when(row).date()].append(row)
    seqs = {row["seq"] for row in own}
    found = []
    for day, rows in sorted(by_day.items()):
        numbers = [row["seq"] for row in rows]
        alive = [when(row) for row in own if row["event"] == "NAMESRV_ALIVE" and when(row).date() == day]
        lived_on = alive and max(alive) - max(map(when, rows)) >= timedelta(minutes=2)
        # Behind the last row that arrived none can be missing.
        beside = range(max(1, min(numbers) - 1), min(max(seqs), max(numbers) + 1) + 1)
        if lived_on and seqs.issuperset(beside):
            names = frozenset((row["cluster"], row["broker_name"], row["broker_id"]) for row in rows)
            found.append(Checkpoint(min(numbers), min(map(when, rows)), names))
    return found


def opinions(own: list[Row], seqs: set[int], covers: Announced, checkpoints: list[Checkpoint]) -> list[Opinion]:
    """What one observer said of one broker; ``seqs``: the numbers of all rows of it that arrived."""
    told = _told(own, seqs, covers)
    about = (own[0]["cluster"], own[0]["broker_name"], own[0]["broker_id"])
    left_out: dict[int, Opinion] = {}
    for checkpoint in checkpoints:
        before = [opinion for opinion in told if opinion.seq < checkpoint.first]
        last = max(before, key=lambda opinion: opinion.seq, default=None)
        if last is None or last.said != "up" or about in checkpoint.names or last.seq in left_out:
            continue
        if any(seq not in seqs for seq in range(last.seq + 1, checkpoint.first)):
            at = checkpoint.at
            left_out[last.seq] = Opinion(at, last.boot, checkpoint.first, "none", at, {"event": "LEFT_OUT"})
    return sorted([*told, *left_out.values()], key=lambda opinion: (opinion.at, opinion.seq))


def _told(own: list[Row], seqs: set[int], covers: Announced) -> list[Opinion]:
    found: list[Opinion] = []
    decided: Row | None = None
    for told in sorted(own, key=lambda row: (when(row), row["seq"])):
        if told["event"] == "CHECKPOINT" and told["detail"].get("state") in UNSURE:
            continue
        row = _as_planned(told, covers)
        if decided is not None and row["event"] in SIGNS and _came_back(decided, row, seqs):
            decided = None
        said = _said(row, decided)
        if row["event"] in DOWN or (row["event"] in UP and not only_a_beat(row)):
            decided = row
        repeats = row["event"] in SIGNS and found and found[-1].said == "up"
        if said is not None and not repeats:
            found.append(Opinion(when(row), (row["node"], row["boot_id"]), row["seq"], said, when(row), row))
    return found


def _as_planned(row: Row, covers: Announced) -> Row:
    return row | {"reason": "MAINTENANCE"} if row["event"] in DOWN and covers(row) else row


def _came_back(decided: Row, sign: Row, seqs: set[int]) -> bool:
    """Whether rows are missing between a removal and a sign of life that only a registered broker gives."""
    if decided["event"] not in DOWN:
        return False
    may_be_out = decided["event"] == "PROBE_FAILED" or decided.get("reason") == "MAINTENANCE"
    if sign["event"] == "HEARTBEATS" and may_be_out:
        return False
    return any(seq not in seqs for seq in range(decided["seq"] + 1, sign["seq"]))


def only_a_beat(row: Row) -> bool:
    return row["event"] == "RECOVERED" and row.get("reason") == "HEARTBEAT"


def _said(row: Row, decided: Row | None) -> str | None:
    if row["event"] in DOWN:
        return "down"
    if row["event"] in SIGNS:
        return "up" if decided is None else None
    if only_a_beat(row) and decided is not None and decided["event"] == "PROBE_FAILED":
        return None
    return "up"
