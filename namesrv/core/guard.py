"""The guard: when too many brokers of a cluster are lost at once, the fault may be ours or the network's, so keep all.

It counts in a window that slides along: brokers that are silent, broken or failing now, and those removed within
their own last expiry time, against the brokers that lived when that window began. Counting per sweep does not work:
beats are spread over an interval, and most of a fully cut fleet is gone before one sweep sees many (design, section 5).
It never hides a true state: what it keeps is marked PROTECTED, and it says why it is on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from namesrv.core.events import Event, EventKind, Reason
from namesrv.core.group import Replica
from namesrv.core.liveness import SUSPECT_AFTER_INTERVALS
from namesrv.core.model import GroupKey, Position, ProbeVerdict

LONGEST_CREDIT_SECONDS = SUSPECT_AFTER_INTERVALS * 3_600.0
"""After a release, for the longest interval that a server may allow."""


MOST_GONE = 20_000
"""Brokers that left and are remembered, of all clusters; beyond that the first to leave are forgotten."""


class GuardMode(StrEnum):
    """What the guard of a cluster was told."""

    AUTO = "AUTO"
    """Keep brokers while too many are lost at once."""
    HOLD = "HOLD"
    """Keep every broker."""
    OFF = "OFF"
    """Keep none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardRules:
    """What the operator may set."""

    enabled: bool = True
    """Whether AUTO means anything."""
    share: float = 0.5
    """Above this share of a cluster nobody is removed."""
    at_least: int = 3
    """Fewer lost brokers than this never turn it on."""
    limit: float = 600.0
    """Seconds after which it says again, and louder, that it is on."""


@dataclass(frozen=True, slots=True)
class GuardStatus:
    """The guard of one cluster, for people. Times are monotonic seconds."""

    cluster: str
    mode: GuardMode
    active: bool
    lost: int
    lived: int
    active_since: float | None
    why: str
    mode_until: float | None


class GuardSetting(NamedTuple):
    """What the guard of a cluster was told; ``until``: monotonic seconds, None: until told otherwise."""

    cluster: str
    mode: GuardMode
    until: float | None


@dataclass(slots=True)
class _Gone:
    at: float
    expiry: float
    known_since: float
    lost: bool
    long_out: bool


@dataclass(slots=True)
class _Watch:
    """What is known of one cluster."""

    mode: GuardMode = GuardMode.AUTO
    mode_until: float | None = None
    active_since: float | None = None
    released_at: float | None = None
    is_overdue: bool = False
    lost: int = 0
    lived: int = 0
    gone: dict[Position, _Gone] = field(default_factory=dict)


class Guard:
    """All clusters. A cluster that nobody lives in and nothing was set for is forgotten."""

    def __init__(self, rules: GuardRules, *, hand_over: float) -> None:
        self._rules = rules
        self._hand_over = hand_over
        self._watches: dict[str, _Watch] = {}
        self._left: deque[tuple[str, Position, _Gone]] = deque()

    # --- what happens -----------------------------------------------------------------------------------------

    def note_gone(self, replica: Replica, *, lost: bool, now: float) -> None:
        """Remember a replica that left the table; ``lost``: by silence, broken stream or probe, unannounced."""
        long_out = replica.protected_from is None and _is_long_out(replica, now=now)
        gone = _Gone(now, replica.pulse.expiry, replica.known_since, lost and not long_out, long_out)
        cluster, position = replica.identity.cluster, replica.identity.position
        self._watch(cluster).gone[position] = gone
        self._left.append((cluster, position, gone))
        if len(self._left) > MOST_GONE:
            cluster, position, gone = self._left.popleft()
            watch = self._watches.get(cluster)
            # One that came back and left again is remembered by its last leave.
            if watch is not None and watch.gone.get(position) is gone:
                del watch.gone[position]

    def note_back(self, cluster: str, position: Position) -> float | None:
        """Forget that a position was gone, for it is registered again; return since when it was known before."""
        watch = self._watches.get(cluster)
        gone = None if watch is None else watch.gone.pop(position, None)
        return None if gone is None else gone.known_since

    def set_mode(self, cluster: str, mode: GuardMode, *, until: float | None, now: float) -> tuple[Event, ...]:
        """Tell the guard of a cluster what to do, for a time or until told otherwise."""
        watch = self._watch(cluster)
        watch.mode, watch.mode_until = mode, None if mode is GuardMode.AUTO else until
        if mode is GuardMode.OFF:
            watch.released_at = None
        return tuple(self._turn(cluster, watch, now=now, reason=Reason.ADMIN))

    def restore(self, settings: Iterable[GuardSetting]) -> None:
        """Take the modes that a snapshot kept."""
        for setting in settings:
            watch = self._watch(setting.cluster)
            watch.mode, watch.mode_until = setting.mode, setting.until

    def settings(self) -> list[GuardSetting]:
        """What was told, sorted by cluster; AUTO is not, for it holds anyway."""
        return [
            GuardSetting(cluster, watch.mode, watch.mode_until)
            for cluster, watch in sorted(self._watches.items())
            if watch.mode is not GuardMode.AUTO
        ]

    def judge(self, members: Iterable[tuple[Replica, bool]], *, now: float) -> list[Event]:
        """Count every cluster anew and turn its guard on or off.

        ``members``: all there are, and whether a maintenance window covers them: such a one lived, and is never lost.
        """
        for watch in self._watches.values():
            watch.lost = watch.lived = 0
        for replica, is_covered in members:
            watch = self._watch(replica.identity.cluster)
            if not is_covered and self._is_lost(replica, now=now):
                watch.lost += 1
            if _lived(replica, now=now):
                watch.lived += 1
        events: list[Event] = []
        for cluster, watch in list(self._watches.items()):
            self._count_gone(watch, now=now)
            reason = Reason.SHARE
            if watch.mode_until is not None and now > watch.mode_until:
                watch.mode, watch.mode_until, reason = GuardMode.AUTO, None, Reason.TIME_OVER
            turned = list(self._turn(cluster, watch, now=now, reason=reason))
            if reason is Reason.TIME_OVER and not turned:
                kind = EventKind.GUARD_OFF if watch.active_since is None else EventKind.GUARD_ON
                turned = [_event(kind, cluster, watch, reason)]
            events += turned
            if watch.released_at is not None and now - watch.released_at > LONGEST_CREDIT_SECONDS:
                watch.released_at = None
            if watch == _Watch():
                del self._watches[cluster]
        return events

    def _is_lost(self, replica: Replica, *, now: float) -> bool:
        pulse = replica.pulse
        if replica.protected_from is not None:
            return True
        if pulse.is_well(now=now) and replica.failing_since is None:
            return False
        if replica.health.verdict is ProbeVerdict.FAILING:
            return not _is_long_out(replica, now=now)
        if pulse.stream_broken_at is not None:
            return True
        if pulse.handed_over_at is not None:
            return now - pulse.handed_over_at > self._hand_over
        return pulse.silence(now=now) > SUSPECT_AFTER_INTERVALS * pulse.heartbeat_interval

    def _count_gone(self, watch: _Watch, *, now: float) -> None:
        if watch.gone:
            watch.gone = {who: gone for who, gone in watch.gone.items() if now - gone.at <= gone.expiry}
            watch.lost += sum(gone.lost for gone in watch.gone.values())
            watch.lived += sum(
                not gone.long_out and gone.known_since <= now - gone.expiry for gone in watch.gone.values()
            )

    def _turn(self, cluster: str, watch: _Watch, *, now: float, reason: Reason) -> Iterator[Event]:
        wanted = self._should_hold(watch)
        if wanted and watch.active_since is None:
            watch.active_since, watch.released_at, watch.is_overdue = now, None, False
            yield _event(EventKind.GUARD_ON, cluster, watch, reason)
        elif not wanted and watch.active_since is not None:
            seconds = round(now - watch.active_since, 3)
            watch.active_since, watch.is_overdue = None, False
            # The rest of a cut fleet is about to come back as well: it gets the time of two beats. Not from an operator
            # who lets go.
            watch.released_at = None if watch.mode is GuardMode.OFF else now
            yield _event(EventKind.GUARD_OFF, cluster, watch, reason, active_seconds=seconds)
        elif watch.active_since is not None and not watch.is_overdue and now - watch.active_since > self._rules.limit:
            watch.is_overdue = True
            seconds = round(now - watch.active_since, 3)
            yield _event(EventKind.GUARD_ON, cluster, watch, Reason.LIMIT, active_seconds=seconds)

    def _should_hold(self, watch: _Watch) -> bool:
        if watch.mode is not GuardMode.AUTO:
            return watch.mode is GuardMode.HOLD
        rules = self._rules
        return rules.enabled and watch.lost >= rules.at_least and watch.lost > rules.share * watch.lived

    # --- what it says -----------------------------------------------------------------------------------------

    def keeps(self, replica: Replica, *, now: float) -> bool:
        """Whether a replica whose time is over stays in the routes."""
        watch = self._watches.get(replica.identity.cluster)
        if watch is None:
            return False
        if watch.active_since is not None:
            return True
        if watch.released_at is None:
            return False
        pulse = replica.pulse
        if replica.failing_since is not None:
            # A probe's verdict is as old as the last beat: the rest may be passing by now.
            released = replica.protected_from is None or now - watch.released_at > pulse.heartbeat_interval
            return not released
        if (pulse.last_seen if pulse.stream_broken_at is None else pulse.stream_broken_at) > watch.released_at:
            return False
        return now - watch.released_at <= SUSPECT_AFTER_INTERVALS * replica.pulse.heartbeat_interval

    def might_turn_on(self, cluster: str) -> bool:
        """Whether one more lost broker could turn the guard on, by the last count: then it is to judge anew."""
        watch = self._watch(cluster)
        if watch.active_since is not None or watch.mode is not GuardMode.AUTO:
            return False
        watch.lost += 1
        return self._should_hold(watch)

    def excuse(self, seconds: float) -> None:
        """Take a pause of our own: nobody could come back in it."""
        for watch in self._watches.values():
            if watch.released_at is not None:
                watch.released_at += seconds

    def status(self, cluster: str) -> GuardStatus:
        """The guard of one cluster."""
        watch = self._watches.get(cluster) or _Watch()
        return GuardStatus(
            cluster,
            watch.mode,
            watch.active_since is not None,
            watch.lost,
            watch.lived,
            watch.active_since,
            self._why(watch),
            watch.mode_until,
        )

    def _why(self, watch: _Watch) -> str:
        counted = f"{watch.lost} lost of {watch.lived} that lived when the window began"
        if watch.active_since is None:
            if watch.mode is GuardMode.AUTO:
                return "" if self._rules.enabled else "disabled by the configuration"
            return f"told to be {watch.mode}; {counted}"
        told = "told to hold; " if watch.mode is GuardMode.HOLD else ""
        late = f"; on for longer than {self._rules.limit:g}s" if watch.is_overdue else ""
        return f"{told}{counted}{late}"

    def clusters(self) -> list[str]:
        """The clusters of which something is known, sorted."""
        return sorted(self._watches)

    def overdue(self) -> list[str]:
        """Clusters whose guard has been on for longer than its limit, sorted."""
        return sorted(cluster for cluster, watch in self._watches.items() if watch.is_overdue)

    def _watch(self, cluster: str) -> _Watch:
        watch = self._watches.get(cluster)
        if watch is None:
            watch = self._watches[cluster] = _Watch()
        return watch


def _lived(replica: Replica, *, now: float) -> bool:
    if replica.protected_from is None and _is_long_out(replica, now=now):
        return False
    return replica.known_since <= now - replica.pulse.expiry


def _is_long_out(replica: Replica, *, now: float) -> bool:
    """Whether its probe failed before the window began: then it neither lived nor was lost in it."""
    failing_since = replica.failing_since
    return failing_since is not None and now - failing_since > replica.pulse.expiry


def _event(kind: EventKind, cluster: str, watch: _Watch, reason: Reason, **more: object) -> Event:
    detail = {"mode": watch.mode.value, "lost": watch.lost, "lived": watch.lived} | more
    return Event(kind=kind, reason=reason, group=GroupKey(cluster, ""), detail=detail)
