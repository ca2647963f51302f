"""Judge one broker's liveness from the time of its last heartbeat, and record how punctual it is. No I/O, no clock.

Boundaries are strict: silence of exactly the expiry keeps a broker alive (RocketMQ ``scanNotActiveBroker``).
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

from pointsman_namesrv.core.model import Reason

SUSPECT_AFTER_INTERVALS = 2.5
"""At this many intervals two heartbeats are certainly missing, whatever their jitter. The guard uses the same value."""

LATE_AFTER_INTERVALS = 1.5
"""A heartbeat after this many intervals is late. A stream that ends later adds nothing to the silence."""

MAX_SWEEP_SECONDS = 5.0
SWEEPS_PER_EXPIRY = 5

PERIOD_SECONDS = 3_600.0
LATE_PERIOD_SECONDS = 600.0
"""Time covered by one history row: an hour, or less if a heartbeat in it was late."""

EDGES = tuple(0.25 * 2 ** (i / 2) for i in range(25))
"""Upper edges of the buckets in seconds, from a quarter to 1,024 in steps of the square root of two."""

EDGES_MS = (*(str(round(edge * 1000)) for edge in EDGES), "inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class LivenessRules:
    """Settings of liveness, in seconds."""

    stream_grace: float = 10.0
    """How long a broker stays after its stream broke; 0: a broken stream has no effect."""
    hand_over: float = 60.0
    """How long a registration stays after its agent handed over."""


@dataclass(slots=True, kw_only=True)
class Pulse:
    """Heartbeats of one broker. Times are monotonic seconds."""

    last_seen: float
    heartbeat_interval: float
    expiry: float
    stream: int | None = None
    """The KeepAlive stream of the last heartbeat; None: it was a unary call."""
    stream_broken_at: float | None = None
    handed_over_at: float | None = None
    """When its agent handed over, by a flag on its last heartbeat. The end of a stream is never a planned shutdown."""
    vouched_since: float | None = None
    """The agent's own last heartbeat, if the broker itself has sent one since."""
    excused: float = 0.0
    """Seconds since the last heartbeat in which this server itself was paused."""
    ended_late: bool = False
    """Whether its stream ended when the next heartbeat was already late."""

    def beat(self, *, now: float, stream: int | None, hand_over: bool) -> None:
        """Record a heartbeat and clear all suspicion."""
        self.last_seen = now
        if stream is not None:
            self.stream = stream
        self.stream_broken_at = None
        self.handed_over_at = now if hand_over else None
        self.vouched_since = None
        self.excused = 0.0
        self.ended_late = False

    def vouch(self, *, now: float) -> None:
        """Record a heartbeat of the broker itself, whose agent may be silent. The stream remains the agent's."""
        if self.vouched_since is None:
            self.vouched_since = self.last_seen
        self.last_seen = now
        self.stream_broken_at = None
        self.handed_over_at = None
        self.excused = 0.0
        self.ended_late = False

    def is_left_to_broker(self, *, now: float) -> bool:
        """Return whether only the broker itself sent heartbeats for an expiry: its agent no longer holds it."""
        return self.vouched_since is not None and now - self.vouched_since > self.expiry

    def break_stream(self, stream: int, *, now: float) -> bool:
        """Record the end of a stream; return whether it counts against the broker.

        It does not if a later stream replaced it or the agent handed over. It does not either if the last heartbeat is
        so old that the silence already counts.
        """
        if self.stream != stream:
            return False
        self.clear_stream(stream, now=now)
        if self.handed_over_at is not None or self.is_late(now=now):
            return False
        self.stream_broken_at = now
        return True

    def clear_stream(self, stream: int, *, now: float) -> None:
        """Clear a stream whose end does not count against the broker."""
        if self.stream == stream:
            self.stream, self.ended_late = None, self.is_late(now=now)

    @property
    def is_silent_on_open_stream(self) -> bool:
        """Return whether the stream was open when heartbeats began to be missing; for a pulse that is silent.

        A process that ends closes its stream. One that hangs does not, nor does a machine that is frozen or cut off.
        """
        return self.handed_over_at is None and (self.stream is not None or self.ended_late)

    def silence(self, *, now: float) -> float:
        """Return the seconds since the last heartbeat, without this server's own pauses."""
        return now - self.last_seen - self.excused

    def is_healthy(self, *, now: float) -> bool:
        """Return whether nothing counts against the broker; the fast path of a sweep."""
        return (
            self.stream_broken_at is None
            and self.handed_over_at is None
            and now - self.last_seen - self.excused <= SUSPECT_AFTER_INTERVALS * self.heartbeat_interval
        )

    def credit_pause(self, seconds: float, *, now: float) -> None:
        """Credit a pause of this process that ends now: no heartbeat could be received in it."""
        self.excused += min(seconds, now - self.last_seen)
        if self.stream_broken_at is not None:
            self.stream_broken_at += min(seconds, now - self.stream_broken_at)
        if self.handed_over_at is not None:
            self.handed_over_at += min(seconds, now - self.handed_over_at)

    def is_late(self, *, now: float) -> bool:
        """Return whether a heartbeat at ``now`` is late."""
        return self.silence(now=now) > LATE_AFTER_INTERVALS * self.heartbeat_interval

    def why_suspect(self, *, now: float) -> Reason | None:
        """Return why the broker is suspect, or None."""
        if self.handed_over_at is not None:
            return None
        if self.stream_broken_at is not None:
            return Reason.STREAM_BROKEN
        if self.silence(now=now) > SUSPECT_AFTER_INTERVALS * self.heartbeat_interval:
            return Reason.SILENCE
        return None

    def why_expired(self, *, now: float, rules: LivenessRules, lenient_since: float) -> Reason | None:
        """Return why the broker expires, or None.

        ``lenient_since``: when this server started or was last paused. A stream that broke within an expiry of that
        time gets the complete expiry, because its agent may still be waiting to reconnect.
        """
        if self.handed_over_at is not None:
            return Reason.SILENCE if now - self.handed_over_at > rules.hand_over else None
        broken_at = self.stream_broken_at
        grace = rules.stream_grace
        if broken_at is not None and 0 < grace < now - broken_at and broken_at - lenient_since > self.expiry:
            return Reason.STREAM_BROKEN
        return Reason.SILENCE if self.silence(now=now) > self.expiry else None


@dataclass(slots=True)
class Punctuality:
    """Intervals between heartbeats since a time (monotonic seconds)."""

    since: float
    count: int = 0
    shortest: float = 0.0
    longest: float = 0.0
    buckets: dict[int, int] = field(default_factory=dict)
    has_late: bool = False
    clock_ahead_ms: int | None = None
    """How far the agent's wall clock is ahead of this server's; negative: behind. None: unknown."""

    def add(self, interval: float, *, is_late: bool) -> None:
        """Record one interval, seconds. Runs for every heartbeat."""
        self.has_late = self.has_late or is_late
        if not self.count or interval < self.shortest:
            self.shortest = interval
        self.longest = max(self.longest, interval)
        self.count += 1
        bucket = bisect_left(EDGES, interval)
        self.buckets[bucket] = self.buckets.get(bucket, 0) + 1

    def add_clock(self, ahead_ms: int) -> None:
        """Record how far the agent's clock was ahead, as reported by a heartbeat.

        Network delay reduces the value, so the maximum is the most accurate (RFC 5905, 10, takes the sample of least
        delay).
        """
        if self.clock_ahead_ms is None or ahead_ms > self.clock_ahead_ms:
            self.clock_ahead_ms = ahead_ms

    def is_over(self, *, now: float) -> bool:
        """Return whether the row is due."""
        return now - self.since >= (LATE_PERIOD_SECONDS if self.has_late else PERIOD_SECONDS)

    def detail(self, *, now: float) -> dict[str, object]:
        """Return the row's detail: ``seconds`` is its length, the rest are milliseconds; nothing empty or unknown."""
        clock = {} if self.clock_ahead_ms is None else {"clock_ahead_ms": self.clock_ahead_ms}
        return clock | {
            "count": self.count,
            "seconds": round(now - self.since, 3),
            "min_ms": round(self.shortest * 1000),
            "max_ms": round(self.longest * 1000),
            "buckets": {EDGES_MS[i]: self.buckets[i] for i in sorted(self.buckets)},
        }


def sweep_interval(shortest_expiry: float | None) -> float:
    """Seconds between two sweeps: 5, or a fifth of the shortest declared expiry."""
    if shortest_expiry is None:
        return MAX_SWEEP_SECONDS
    return min(MAX_SWEEP_SECONDS, shortest_expiry / SWEEPS_PER_EXPIRY)
