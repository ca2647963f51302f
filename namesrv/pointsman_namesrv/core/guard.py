"""The expiry guard: keeps brokers in the routes when many of a cluster are lost on weak evidence.

Such a loss may be the fault of the network or of this name server. A broker counts as lost when it is silent, its
stream broke or its probe fails on weak evidence, and when it was removed for that reason within the window, which is
one expiry long. Lost brokers are compared with the baseline: the brokers that were alive when the window began.
Counting per sweep does not work: heartbeats are spread over an interval, so a fleet that was cut off is mostly removed
before one sweep sees many losses (design, section 5). The window does not move while the guard is on. The guard ends
when enough brokers are up, also under new names. It never overrules strong evidence. Brokers that it keeps are
PROTECTED, and its status contains the reason.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from pointsman_namesrv.core.events import Event, EventKind
from pointsman_namesrv.core.group import Replica
from pointsman_namesrv.core.liveness import SUSPECT_AFTER_INTERVALS
from pointsman_namesrv.core.model import Evidence, GroupKey, Position, Reason
from pointsman_namesrv.core.node_refusals import LimitExceeded

LONGEST_CREDIT_SECONDS = SUSPECT_AFTER_INTERVALS * 3_600.0
"""Extension after a release, for the longest interval that a server may allow."""


MAX_SETTINGS = 1_000
"""Guards that are not AUTO. A setting outlives its cluster, so it needs a bound."""
MAX_DEPARTED = 20_000
"""Departed brokers that are remembered, of all clusters; beyond that the first to leave are dropped."""


class GuardMode(StrEnum):
    """Mode of a cluster's guard, set by an operator."""

    AUTO = "AUTO"
    """Protect brokers while too many are lost at the same time."""
    HOLD = "HOLD"
    """Protect every broker."""
    OFF = "OFF"
    """Protect no broker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardRules:
    """Settings of the guard."""

    enabled: bool = True
    """Whether AUTO has any effect."""
    share: float = 0.5
    """Share of lost brokers in a cluster above which the guard turns on."""
    at_least: int = 3
    """Fewest lost brokers at which the guard turns on."""
    limit: float = 600.0
    """Seconds after which it reports again that it is on, as overdue."""


@dataclass(frozen=True, slots=True)
class GuardStatus:
    """State of one cluster's guard, for operators. Times are monotonic seconds."""

    cluster: str
    mode: GuardMode
    active: bool
    lost: int
    baseline: int
    up: int
    active_since: float | None
    why: str
    mode_until: float | None


class GuardSetting(NamedTuple):
    """A mode that an operator set. ``until``: monotonic seconds, None: until it is changed."""

    cluster: str
    mode: GuardMode
    until: float | None


@dataclass(slots=True)
class _Departed:
    at: float
    expiry: float
    alive_since: float | None
    lost: bool


@dataclass(slots=True)
class _Watch:
    """State of one cluster."""

    mode: GuardMode = GuardMode.AUTO
    mode_until: float | None = None
    active_since: float | None = None
    began_at: float | None = None
    """When it turned on, also for the time after its release."""
    released_at: float | None = None
    paused: float = 0.0
    """Seconds since the release in which this process was paused."""
    is_overdue: bool = False
    registered: int = 0
    """Registered replicas."""
    present: int = 0
    """Registered replicas that count."""
    lost: int = 0
    baseline: int = 0
    up: int = 0
    new_failures: int = 0
    """Probes that began to fail on weak evidence since the last count."""
    departed: dict[Position, _Departed] = field(default_factory=dict)

    def edge(self, now: float) -> float:
        """Return the end of the window; it does not move while the guard is on."""
        return now if self.active_since is None else self.active_since


class Guard:
    """Expiry guards by cluster. Clusters without brokers and without an operator setting are dropped."""

    def __init__(self, rules: GuardRules, *, hand_over: float) -> None:
        self._rules = rules
        self._hand_over = hand_over
        self._watches: dict[str, _Watch] = {}
        self._left: deque[tuple[str, Position, _Departed]] = deque()

    # --- departures and modes ---------------------------------------------------------------------------------

    def note_departed(self, replica: Replica, *, now: float) -> None:
        """Remember a departed replica; it is lost if it left on weak evidence and unplanned."""
        cluster, position = replica.identity.cluster, replica.identity.position
        watch = self._watch(cluster)
        lost = not replica.left_in_window
        if replica.health.failing is not None:
            lost = lost and _may_be_kept(replica, watch.edge(now) - replica.pulse.expiry)
        departed = _Departed(now, replica.pulse.expiry, replica.alive_since, lost)
        watch.departed[position] = departed
        self._left.append((cluster, position, departed))
        if len(self._left) > MAX_DEPARTED:
            cluster, position, departed = self._left.popleft()
            oldest = self._watches.get(cluster)
            # A replica that returned and left again counts with its latest departure.
            if oldest is not None and oldest.departed.get(position) is departed:
                del oldest.departed[position]

    def note_back(self, cluster: str, position: Position) -> float | None:
        """Drop a position that registered again. Return since when it was alive, if known."""
        watch = self._watches.get(cluster)
        departed = None if watch is None else watch.departed.pop(position, None)
        return None if departed is None else departed.alive_since

    def set_mode(self, cluster: str, mode: GuardMode, *, until: float | None, now: float) -> tuple[Event, ...]:
        """Set the mode of a cluster's guard, for a time or until it is changed. Raises LimitExceeded."""
        self.check_mode(cluster, mode)
        watch = self._watch(cluster)
        is_new_mode = watch.mode is not mode
        watch.mode, watch.mode_until = mode, None if mode is GuardMode.AUTO else until
        if mode is GuardMode.OFF:
            watch.released_at = None
        return tuple(self._turn(cluster, watch, now=now, reason=Reason.ADMIN, is_new_mode=is_new_mode))

    def check_mode(self, cluster: str, mode: GuardMode) -> None:
        """Raise LimitExceeded if too many guards have a mode other than AUTO."""
        if mode is GuardMode.AUTO or self.setting(cluster) is not None:
            return
        if sum(watch.mode is not GuardMode.AUTO for watch in self._watches.values()) >= MAX_SETTINGS:
            raise LimitExceeded("guard_settings", MAX_SETTINGS)

    def restore(self, settings: Iterable[GuardSetting]) -> None:
        """Set the modes that an earlier process saved. Raises LimitExceeded."""
        for setting in settings:
            self.check_mode(setting.cluster, setting.mode)
            watch = self._watch(setting.cluster)
            watch.mode, watch.mode_until = setting.mode, setting.until

    def setting(self, cluster: str) -> GuardSetting | None:
        """Return the mode that an operator set for a cluster; None: AUTO."""
        watch = self._watches.get(cluster)
        if watch is None or watch.mode is GuardMode.AUTO:
            return None
        return GuardSetting(cluster, watch.mode, watch.mode_until)

    def settings(self) -> list[GuardSetting]:
        """Return the modes that operators set, sorted by cluster, without AUTO, which is the default."""
        return [
            GuardSetting(cluster, watch.mode, watch.mode_until)
            for cluster, watch in sorted(self._watches.items())
            if watch.mode is not GuardMode.AUTO
        ]

    def judge(self, members: Iterable[tuple[Replica, bool]], *, now: float) -> list[Event]:
        """Count every cluster again and turn its guard on or off.

        ``members``: all replicas, and whether a maintenance window covers them.
        """
        for watch in self._watches.values():
            watch.registered = watch.present = watch.lost = watch.baseline = watch.up = watch.new_failures = 0
        for replica, is_covered in members:
            watch = self._watch(replica.identity.cluster)
            watch.registered += 1
            self._count(watch, replica, is_covered=is_covered, now=now)
        events: list[Event] = []
        for cluster, watch in list(self._watches.items()):
            self._count_departed(watch, now=now)
            is_over = watch.mode_until is not None and now > watch.mode_until
            if is_over:
                watch.mode, watch.mode_until = GuardMode.AUTO, None
            reason = Reason.TIME_OVER if is_over else Reason.SHARE
            turned = list(self._turn(cluster, watch, now=now, reason=reason, is_new_mode=is_over))
            if is_over and not turned:
                kind = EventKind.GUARD_OFF if watch.active_since is None else EventKind.GUARD_ON
                turned = [_event(kind, cluster, watch, reason)]
            events += turned
            is_old = watch.released_at is not None and now - watch.released_at - watch.paused > LONGEST_CREDIT_SECONDS
            if is_old or not watch.registered:  # the credit is for brokers that were registered at the release
                watch.released_at = None
            if watch.active_since is None and watch.released_at is None:
                watch.began_at, watch.paused = None, 0.0
            if watch == _Watch():
                del self._watches[cluster]
        return events

    def _count(self, watch: _Watch, replica: Replica, *, is_covered: bool, now: float) -> None:
        """Count a replica as lost or up, and in the baseline. Its absence may also mean nothing: then not at all."""
        window_begin = watch.edge(now) - replica.pulse.expiry
        is_failing = replica.failing_since is not None
        is_lost = is_failing or self._is_silent(replica, now=now)
        if is_lost and is_covered:
            replica.left_in_window = True
        if is_lost and replica.left_in_window:
            return
        if is_failing and not _may_be_kept(replica, window_begin):
            return
        if is_lost:
            watch.lost += 1
        elif not replica.is_provisional:
            watch.up += 1
        watch.present += 1
        watch.baseline += replica.alive_since is not None and replica.alive_since <= window_begin

    def _is_silent(self, replica: Replica, *, now: float) -> bool:
        pulse = replica.pulse
        if pulse.is_healthy(now=now):
            return False
        if pulse.handed_over_at is not None:
            return now - pulse.handed_over_at > self._hand_over
        return True

    def _count_departed(self, watch: _Watch, *, now: float) -> None:
        if not watch.departed:
            return
        edge = watch.edge(now)
        watch.departed = {who: each for who, each in watch.departed.items() if edge - each.at <= each.expiry}
        for each in watch.departed.values():
            watch.lost += each.lost
            watch.baseline += each.lost and each.alive_since is not None and each.alive_since <= edge - each.expiry

    def _turn(
        self, cluster: str, watch: _Watch, *, now: float, reason: Reason, is_new_mode: bool = False
    ) -> Iterator[Event]:
        wanted = self._should_hold(watch, is_new_mode=is_new_mode)
        if wanted and watch.active_since is None:
            watch.active_since = watch.began_at = now
            watch.released_at, watch.is_overdue = None, False
            yield _event(EventKind.GUARD_ON, cluster, watch, reason)
        elif not wanted and watch.active_since is not None:
            seconds = round(now - watch.active_since, 3)
            watch.active_since, watch.is_overdue = None, False
            # The other brokers of a fleet that was cut off are about to return: they get the time of two heartbeats,
            # but not when an operator turns the guard off.
            watch.released_at, watch.paused = None if watch.mode is GuardMode.OFF else now, 0.0
            yield _event(EventKind.GUARD_OFF, cluster, watch, reason, active_seconds=seconds)
        elif watch.active_since is not None and not watch.is_overdue and now - watch.active_since > self._rules.limit:
            watch.is_overdue = True
            seconds = round(now - watch.active_since, 3)
            yield _event(EventKind.GUARD_ON, cluster, watch, Reason.LIMIT, active_seconds=seconds)

    def _should_hold(self, watch: _Watch, *, is_new_mode: bool = False, more: int = 0) -> bool:
        """Return whether the guard should be on; ``more``: lost replicas that are not counted as such yet."""
        if watch.mode is not GuardMode.AUTO:
            return watch.mode is GuardMode.HOLD
        rules, lost, up = self._rules, watch.lost + more, max(0, watch.up - more)
        if not (rules.enabled and watch.present) or up >= (1 - rules.share) * watch.baseline:
            return False
        is_on = watch.active_since is not None and not is_new_mode
        return is_on or (lost >= rules.at_least and lost > rules.share * watch.baseline)

    # --- decisions and status ---------------------------------------------------------------------------------

    def protects(self, replica: Replica, *, now: float) -> bool:
        """Return whether a replica stays in the routes despite weak evidence against it."""
        watch = self._watches.get(replica.identity.cluster)
        if watch is None or watch.began_at is None or replica.left_in_window:
            return False
        pulse, is_failing = replica.pulse, replica.health.failing is not None
        if is_failing and not _may_be_kept(replica, watch.began_at - pulse.expiry):
            return False
        if watch.active_since is not None:
            return True
        released_at = watch.released_at
        if released_at is None:
            return False
        if is_failing:
            # The probe's result is as old as the last heartbeat, so the probe may pass by now.
            lost_since, patience = replica.failing_since, pulse.heartbeat_interval
        else:
            lost_since = pulse.last_seen if pulse.stream_broken_at is None else pulse.stream_broken_at
            patience = SUSPECT_AFTER_INTERVALS * pulse.heartbeat_interval
        return lost_since is not None and lost_since <= released_at and now - released_at - watch.paused <= patience

    def might_turn_on(self, cluster: str) -> bool:
        """Return whether one more lost broker could turn the guard on, by the last count. Then it must judge again."""
        watch = self._watch(cluster)
        if watch.active_since is not None or watch.mode is not GuardMode.AUTO:
            return False
        watch.new_failures += 1
        return self._should_hold(watch, more=watch.new_failures)

    def credit_pause(self, seconds: float) -> None:
        """Extend the time after a release by a pause of this process, in which no broker could return."""
        for watch in self._watches.values():
            if watch.released_at is not None:
                watch.paused += seconds

    def status(self, cluster: str) -> GuardStatus:
        """Return the state of one cluster's guard."""
        watch = self._watches.get(cluster) or _Watch()
        return GuardStatus(
            cluster,
            watch.mode,
            watch.active_since is not None,
            watch.lost,
            watch.baseline,
            watch.up,
            watch.active_since,
            self._why(watch),
            watch.mode_until,
        )

    def _why(self, watch: _Watch) -> str:
        counted = f"{watch.lost} lost, {watch.up} up, of {watch.baseline} alive when the window began"
        if watch.active_since is None:
            if watch.mode is GuardMode.AUTO:
                return "" if self._rules.enabled else "disabled by the configuration"
            return f"set to {watch.mode}; {counted}"
        mode = "set to HOLD; " if watch.mode is GuardMode.HOLD else ""
        late = f"; on for longer than {self._rules.limit:g}s" if watch.is_overdue else ""
        return f"{mode}{counted}{late}"

    def clusters(self) -> list[str]:
        """Return the clusters with any state, sorted."""
        return sorted(self._watches)

    def clusters_in_use(self) -> list[str]:
        """Return the clusters that have a registered broker or a mode set by an operator, sorted."""
        return sorted(
            cluster for cluster, watch in self._watches.items() if watch.registered or watch.mode is not GuardMode.AUTO
        )

    def overdue(self) -> list[str]:
        """Return the clusters whose guard has been on for longer than its limit, sorted."""
        return sorted(cluster for cluster, watch in self._watches.items() if watch.is_overdue)

    def _watch(self, cluster: str) -> _Watch:
        watch = self._watches.get(cluster)
        if watch is None:
            watch = self._watches[cluster] = _Watch()
        return watch


def _may_be_kept(replica: Replica, window_begin: float) -> bool:
    """Return whether a failing probe may be a common fault: weak evidence on a broker that was alive in the window."""
    return (
        replica.health.failing is Evidence.WEAK
        and replica.alive_since is not None
        and replica.failing_since is not None
        and replica.failing_since >= window_begin
    )


def _event(kind: EventKind, cluster: str, watch: _Watch, reason: Reason, **more: object) -> Event:
    detail = {"mode": watch.mode.value, "lost": watch.lost, "baseline": watch.baseline, "up": watch.up} | more
    return Event(kind=kind, reason=reason, group=GroupKey(cluster, ""), detail=detail)
