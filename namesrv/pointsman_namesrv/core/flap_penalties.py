"""How much each broker flaps: RFC 2439 damping, live, with the numbers of the nightly report.

Each event adds points, and the sum halves with every half-life. A flag is set above one threshold and cleared below a
lower one. For operators only: no route depends on it. A broker is its position (cluster, broker name, broker id), so
that one that returns under another address keeps its penalty. A start counts the events of earlier runs again
(:class:`ReplayedPenalties`); the nightly report carries penalties from day to day.
"""

from __future__ import annotations

import heapq
import math
from contextlib import suppress
from dataclasses import dataclass

from pointsman_namesrv.core.events import Event, EventKind
from pointsman_namesrv.core.maintenance import MaintenanceWindows
from pointsman_namesrv.core.model import Position, Reason
from pointsman_namesrv.core.node_refusals import LimitExceeded
from pointsman_namesrv.core.replica_state import ROUTED

MAX_POSITIONS = 20_000
"""Limit of known positions. Beyond it the lowest penalties are dropped, a twentieth in one go: it takes a full scan."""

DROPPED_PER_SCAN = MAX_POSITIONS // 20
LEAST_SHOWN = 0.5
"""A penalty that has decayed below this counts as zero."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlapRules:
    """Points and times (seconds). The same numbers as ``pointsman_report.parameters``; a test compares them."""

    half_life: float = 3_600.0
    suppress_above: float = 3_000.0
    reuse_below: float = 1_000.0
    ceiling: float = 16_000.0
    outage: float = 1_000.0
    """EXPIRED or PROBE_FAILED, once for each time out of the routes; after a maintenance window from its end."""
    restarted: float = 1_000.0
    moved: float = 500.0
    """ADDRESS_CHANGED or ROLE_CHANGED."""
    suspected: float = 300.0
    """SUSPECTED, and recovered with a heartbeat."""
    shutdown: float = 200.0
    """A planned SHUTDOWN that returned within ``shutdown_return``."""
    late: float = 100.0
    shutdown_return: float = 300.0

    @property
    def remembered_seconds(self) -> float:
        """Return the age at which the highest penalty has decayed to less than :data:`LEAST_SHOWN`."""
        return self.half_life * math.log2(self.ceiling / LEAST_SHOWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlapScore:
    """How much one broker flaps at one moment."""

    position: Position
    penalty: float
    flapping: bool
    outages: int
    """Outages that added points."""
    last_event: EventKind
    """The last event that added points; UNREGISTERED is a shutdown that returned soon."""
    last_event_at: float
    """Monotonic seconds."""


@dataclass(slots=True)
class _Record:
    penalty: float = 0.0
    at: float = 0.0
    rank: float = -math.inf
    """Binary logarithm of the penalty, as if all points had been added at time zero: orders penalties at any later
    time."""
    flagged: bool = False
    outages: int = 0
    last_event: EventKind | None = None
    out: bool = False
    """Not routed: further events belong to the same outage."""
    in_window: bool = False
    """Whether that is planned because of a maintenance window, which may end before it does."""
    shut_down_at: float | None = None


class Penalties:
    """The penalty of each position that an event added points to."""

    def __init__(self, rules: FlapRules | None = None) -> None:
        self._rules = rules or FlapRules()
        self._records: dict[Position, _Record] = {}

    def record(self, event: Event, *, now: float, in_window: bool = False) -> None:
        """Add the points of one event; none for an event without a broker or in a maintenance window."""
        if event.broker is None:
            return
        position, state = event.broker.identity.position, event.broker.state
        if state.phase not in ROUTED:
            self._record_outage(position, event, now=now, in_window=in_window)
            return
        record = self._records.get(position)
        if record is not None and record.out:
            left_at = record.shut_down_at
            if left_at is not None and now - left_at <= self._rules.shutdown_return:
                self._charge(position, self._rules.shutdown, EventKind.UNREGISTERED, now=now)
            record.out, record.shut_down_at = False, None
        if not in_window and (points := self._points_of_sign(event)):
            self._charge(position, points, event.kind, now=now)

    def _record_outage(self, position: Position, event: Event, *, now: float, in_window: bool) -> None:
        record = self._known(position, now=now)
        is_planned = event.broker is not None and event.broker.state.planned
        has_left = event.kind in {EventKind.EXPIRED, EventKind.PROBE_FAILED}
        if record.out and (is_planned or not (record.in_window and has_left)):
            return
        record.out, record.in_window = True, is_planned and has_left
        if event.kind is EventKind.UNREGISTERED:
            record.shut_down_at = now if event.reason is Reason.SHUTDOWN and not in_window else None
        elif not is_planned:
            self._charge(position, self._rules.outage, event.kind, now=now)
            record.outages += 1

    def _points_of_sign(self, event: Event) -> float:
        rules = self._rules
        match event.kind:
            case EventKind.RESTARTED:
                return rules.restarted
            case EventKind.ADDRESS_CHANGED | EventKind.ROLE_CHANGED:
                return rules.moved
            case EventKind.RECOVERED if event.reason is Reason.HEARTBEAT:
                return rules.suspected
            case EventKind.LATE_HEARTBEAT:
                return rules.late
        return 0.0

    def _charge(self, position: Position, points: float, kind: EventKind, *, now: float) -> None:
        record = self._known(position, now=now)
        before = self._decayed(record, now=now)
        record.flagged = self._is_flapping(record, before)
        record.penalty, record.at = min(self._rules.ceiling, before + points), now
        # Rounded, so that three times 1000 compares as 3000.
        record.flagged = record.flagged or round(record.penalty, 6) > self._rules.suppress_above
        record.rank = math.log2(record.penalty) + now / self._rules.half_life
        record.last_event = kind

    def _known(self, position: Position, *, now: float) -> _Record:
        record = self._records.get(position)
        if record is None:
            if len(self._records) >= MAX_POSITIONS:
                self._drop_lowest()
            record = self._records[position] = _Record(at=now)
        return record

    def _drop_lowest(self) -> None:
        for position in heapq.nsmallest(DROPPED_PER_SCAN, self._records, key=lambda key: self._records[key].rank):
            del self._records[position]

    def _decayed(self, record: _Record, *, now: float) -> float:
        return float(record.penalty * 2.0 ** ((record.at - now) / self._rules.half_life))

    def _is_flapping(self, record: _Record, penalty: float) -> bool:
        return record.flagged and round(penalty, 6) >= self._rules.reuse_below

    def score(self, position: Position, *, now: float) -> FlapScore | None:
        """Return how much a broker flaps; None without points, or after they decayed."""
        record = self._records.get(position)
        if record is None or record.last_event is None:
            return None
        penalty = self._decayed(record, now=now)
        if penalty < LEAST_SHOWN:
            return None
        return FlapScore(
            position=position,
            penalty=penalty,
            flapping=self._is_flapping(record, penalty),
            outages=record.outages,
            last_event=record.last_event,
            last_event_at=record.at,
        )

    def top(self, *, now: float, cluster: str = "", limit: int = 100) -> list[FlapScore]:
        """Return the brokers with the highest penalties first; equal ones by position."""
        known = (item for item in self._records.items() if not cluster or item[0].cluster == cluster)
        highest = heapq.nsmallest(limit, known, key=lambda item: (-item[1].rank, item[0]))
        scores = (self.score(position, now=now) for position, _ in highest)
        return [score for score in scores if score is not None]

    def flapping_count(self, *, now: float) -> int:
        """Return how many brokers are flapping."""
        flagged = (record for record in self._records.values() if record.flagged)
        return sum(self._is_flapping(record, self._decayed(record, now=now)) for record in flagged)

    def __len__(self) -> int:
        return len(self._records)


class ReplayedPenalties:
    """Penalties from the events of earlier runs, oldest first, and then from those of this run.

    They equal those of a run that recorded all of these events itself.
    """

    def __init__(self) -> None:
        self.penalties = Penalties()
        self._windows = MaintenanceWindows()

    def add_earlier(self, event: Event, *, at: float) -> None:
        """Add an event of an earlier run; ``at``: monotonic seconds of this run.

        Its maintenance windows follow from the events alone: the windows of today are not those of then.
        """
        if event.broker is not None:
            in_window = self._windows.covers(event.broker.identity.group_key, now=at)
            self.penalties.record(event, now=at, in_window=in_window)
        elif event.group is not None and event.kind in {EventKind.MAINTENANCE_ON, EventKind.MAINTENANCE_OFF}:
            self._windows.end_overdue(now=at)
            self._windows.close(event.group)
            seconds = event.detail.get("seconds")
            if isinstance(seconds, int | float):  # of MAINTENANCE_ON
                with suppress(LimitExceeded):  # the rows that ended others may be lost
                    self._windows.open(event.group, until=at + seconds)
