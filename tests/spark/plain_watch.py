"""What each name server could see and what it recorded, in plain Python: the first half of the reference.

Nothing here is shared with the Spark job.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise

from tests.spark.histories import Row

MANY = {"HEARTBEAT", "HEARTBEATS", "QUEUE_STATS", "TOPICS"}

Boot = tuple[str, str]


@dataclass(frozen=True)
class Blind:
    """A pause of a name server, a period of its guard, or the time after its window."""

    boot: Boot
    why: str
    cluster: str | None
    begin: datetime
    end: datetime | None


@dataclass(frozen=True)
class Opinion:
    """The state of a broker at an observer, from ``at`` on: up, down, none or lost.

    Of a removal ``planned`` and ``reason`` are known; ``planned`` None: a checkpoint alone shows that it is gone.
    """

    at: datetime
    boot: Boot
    seq: int
    said: str
    since: datetime | None = None
    planned: bool | None = False
    reason: str | None = None
    is_fresh: bool = False
    left_out: bool = False
    is_change: bool = False


@dataclass(frozen=True)
class Gap:
    """Numbers of an observer that are missing, up to ``to_seq``, and when their rows may have been written."""

    from_seq: int
    to_seq: int
    begin: datetime
    end: datetime

    @property
    def over_midnight(self) -> bool:
        return self.begin.date() < self.end.date()

    def begin_on(self, day: date) -> datetime | None:
        """When it begins on a day; None if it does not touch it."""
        if not self.begin.date() <= day <= self.end.date():
            return None
        return max(self.begin, datetime(day.year, day.month, day.day, tzinfo=UTC))


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
            elif _ends_guard(row) and row["cluster"] in guards:
                found.append(Blind(boot, "GUARD", row["cluster"], guards.pop(row["cluster"]), min(at, last)))
            elif row["event"] == "NAMESRV_PAUSED":
                began = at - timedelta(seconds=row["detail"]["seconds"])
                found.append(Blind(boot, "PAUSED", None, max(began, midnight_before(at), paused_until), min(at, last)))
                paused_until = at
        found += [Blind(boot, "SILENT", None, begin, end) for begin, end in _silences(own)]
        end = last if last < until else None
        found += [Blind(boot, "GUARD", cluster, begin, end) for cluster, begin in guards.items()]
        every[boot] = [time for time in found if time.end is None or time.begin < time.end]
    return every


def _silences(own: list[Row]) -> Iterator[tuple[datetime, datetime]]:
    """More than three stated intervals without a row, for each row that is missing and one more."""
    stated = [row["detail"].get("alive_seconds") for row in own if row["event"] == "NAMESRV_STARTED"]
    for one, other in pairwise(sorted(own, key=lambda row: row["seq"])) if any(stated) else ():
        if when(other) - when(one) > (other["seq"] - one["seq"]) * timedelta(seconds=3 * stated[0]):
            yield when(one), when(other)


def _ends_guard(row: Row) -> bool:
    """A broker kept by a guard does not expire, except in a maintenance window."""
    return row["event"] == "GUARD_OFF" or (row["event"] == "EXPIRED" and not row["planned"])


def gaps(own: list[Row]) -> list[Gap]:
    """Missing rows of one boot."""
    found = []
    by_number = {row["seq"]: row for row in own}
    first = min(by_number)
    began = when(by_number[first]) - timedelta(milliseconds=by_number[first]["uptime_ms"])
    previous = 0 if midnight_before(began) == midnight_before(when(by_number[first])) else first - 1
    for seq in sorted(by_number):
        if seq > previous + 1:
            known = previous in by_number
            begin = when(by_number[previous]) if known else midnight_before(when(by_number[seq]))
            found.append(Gap(previous + 1, seq - 1, begin, when(by_number[seq])))
        previous = seq
    return found


@dataclass(frozen=True)
class Checkpoint:
    """All replicas that a name server held, in rows of which none is missing."""

    first: int
    last: int
    at: datetime


def whole_checkpoints(own: list[Row]) -> list[Checkpoint]:
    """Those of one boot."""
    found: list[Checkpoint] = []
    rows: list[Row] = []
    for row in sorted(own, key=lambda row: row["seq"]):
        if row["event"] != "CHECKPOINT":
            continue
        rows = [row] if row["detail"]["i"] == 1 else [*rows, row]
        same = [one for one in rows if one["detail"]["n"] == row["detail"]["n"]]
        if [one["detail"]["i"] for one in same] == list(range(1, row["detail"]["n"] + 1)):
            found.append(Checkpoint(same[0]["seq"], row["seq"], max(map(when, same))))
    return found


def opinions(own: list[Row], missing: list[Gap], checkpoints: list[Checkpoint]) -> list[Opinion]:
    """The state of one broker at one observer, each change once; ``own`` are its rows about the broker."""
    recorded = sorted(filter(None, map(_opinion, own)), key=lambda opinion: (opinion.at, opinion.seq))
    rows = sorted(
        [*recorded, *_left_out(recorded, missing, checkpoints)], key=lambda opinion: (opinion.at, opinion.seq)
    )
    found: list[Opinion] = []
    # It may have been registered in rows that are missing.
    before = [gap for gap in missing if rows and gap.from_seq < rows[0].seq and gap.begin_on(rows[0].at.date())]
    found += [_lost(rows[0], gap, gap.begin_on(rows[0].at.date()) or gap.begin) for gap in before[:1]]
    for index, opinion in enumerate(rows):
        found.append(opinion)
        after = rows[index + 1] if index + 1 < len(rows) else None
        gap = _gap_between(opinion, after, missing)
        if gap is not None and not (after and _bridges(after, opinion, gap)):
            found.append(_lost(opinion, gap, max(opinion.at, gap.begin)))
    return _changes(found)


def _lost(opinion: Opinion, gap: Gap, at: datetime) -> Opinion:
    return Opinion(at, opinion.boot, gap.from_seq, "lost", planned=None)


def _opinion(row: Row) -> Opinion | None:
    """A function of one row."""
    state, reason = row["state"], row.get("reason")
    if state == "PROTECTED" and row["event"] in MANY:
        return None
    by_agent = reason == "PROBE" or (reason not in {"SILENCE", "STREAM_BROKEN"} and "probe" in row["detail"])
    is_out = state == "OUT" or (state == "PROTECTED" and by_agent)
    said = "up" if state in {"UP", "SUSPECT"} else "down" if is_out or state == "GONE" else "none"
    since = None if row["since_ms"] is None else when(row) - timedelta(milliseconds=row["since_ms"])
    is_fresh = row["since_ms"] == 0 and reason != "SNAPSHOT"
    if is_out and reason not in {"REFUSED", "PROBE"}:
        reason = None
    if row["event"] == "CHECKPOINT" and state == "GONE":
        reason = row["detail"]["gone_reason"]
    boot = (row["node"], row["boot_id"])
    is_change = row["event"] in {"PROBE_FAILED", "PROTECTED"}
    return Opinion(
        when(row), boot, row["seq"], said, since, row["planned"], reason, is_fresh=is_fresh, is_change=is_change
    )


def _gap_between(before: Opinion, after: Opinion | None, missing: list[Gap]) -> Gap | None:
    behind = [gap for gap in missing if gap.from_seq > before.seq and (after is None or gap.from_seq < after.seq)]
    return min(behind, key=lambda gap: gap.from_seq, default=None)


def _reach(opinion: Opinion) -> datetime:
    """When the state of a row began, at the earliest at the start of its day."""
    return max(opinion.since or opinion.at, midnight_before(opinion.at))


def _bridges(after: Opinion, before: Opinion, gap: Gap) -> bool:
    agrees = (after.said, after.planned) == (before.said, before.planned)
    reaches = _reach(after) <= gap.begin + timedelta(milliseconds=10)
    return agrees and reaches and not gap.over_midnight and not after.is_change


def _left_out(recorded: list[Opinion], missing: list[Gap], checkpoints: list[Checkpoint]) -> list[Opinion]:
    """Where a checkpoint does not name the broker, and only missing rows explain that."""
    found: list[Opinion] = []
    for checkpoint in checkpoints:
        if any(checkpoint.first <= opinion.seq <= checkpoint.last for opinion in recorded):
            continue
        real = [opinion for opinion in recorded if opinion.seq < checkpoint.first]
        before = max([*real, *found], key=lambda opinion: opinion.seq, default=None)
        if real and before and any(before.seq < gap.from_seq < checkpoint.last for gap in missing):
            was_down = max(real, key=lambda opinion: opinion.seq).said == "down"
            said = "down" if was_down else "none"
            found.append(
                Opinion(checkpoint.at, before.boot, checkpoint.last, said, planned=None, left_out=not was_down)
            )
    return found


def _changes(recorded: list[Opinion]) -> list[Opinion]:
    """Each change once; a broker that is up after an unknown time was up since its state began."""
    found: list[Opinion] = []
    before: Opinion | None = None
    for opinion in recorded:
        one = opinion
        if opinion.said == "up" and (before is None or before.said == "lost"):
            one = replace(opinion, at=max(_reach(opinion), before.at) if before else _reach(opinion))
        same = before is not None and (before.said, before.planned) == (one.said, one.planned)
        removed_again = before is not None and one.said == "down" and one.since == one.at != before.since
        if not same or removed_again:
            found.append(one)
        before = opinion
    return found
