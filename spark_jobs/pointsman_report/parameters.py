"""Parameters of the jobs: defaults, overridden by the tables of a TOML file (:func:`pointsman.config.load`).

The flap score is BGP's route flap damping (RFC 2439): each event adds points, the sum decays by half every half-life, a
broker is flagged when it rises above one threshold and cleared when it falls below a lower one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

from pointsman import queue_findings
from pointsman_report.webhook import url_problem


@dataclass(frozen=True, slots=True)
class _Section:
    """A table of the file; its numbers are finite and not negative."""

    def problems(self) -> Iterator[str]:
        """Yield each invalid value, as ``name: what is wrong``; rules between values only where each is valid."""
        negative = [
            f"{f.name}: {value!r} is not a number of at least 0"
            for f in fields(self)
            if isinstance(value := getattr(self, f.name), int | float) and not 0 <= value < math.inf
        ]
        yield from negative or self._broken_rules()

    def _broken_rules(self) -> Iterator[str]:
        return iter(())


def _below(section: object, **least: float) -> Iterator[str]:
    for name, bound in least.items():
        if (value := getattr(section, name)) < bound:
            yield f"{name}: {value!r} is below {bound}"


def _outside(section: object, name: str, low: int, high: int) -> Iterator[str]:
    if not low <= (value := getattr(section, name)) <= high:
        yield f"{name}: {value!r} is not {low} to {high}"


@dataclass(frozen=True, slots=True)
class FlapParameters(_Section):
    """Points, thresholds and times of the flap score."""

    half_life_minutes: float = 60.0
    """Time in which the penalty of a broker falls by half; at least 5."""
    suppress_above: float = 3_000.0
    """A broker is flapping when its penalty rises above this: four quick outages, or one every 35 minutes for hours."""
    reuse_below: float = 1_000.0
    """The flag is cleared when the penalty has fallen below this."""
    ceiling: float = 16_000.0
    """Highest penalty. It bounds how long a flag lasts: four half-lives after the last event."""
    points_outage: float = 1_000.0
    """Points for an outage that every name server saw; counted once per outage."""
    points_restarted: float = 1_000.0
    """Points for a new process without an outage."""
    points_moved: float = 500.0
    """Points for a new address or role."""
    points_suspected: float = 300.0
    """Points for a suspicion that a heartbeat ended."""
    points_shutdown: float = 200.0
    """Points for a planned shutdown after which the broker returned within `shutdown_return_seconds`."""
    points_late: float = 100.0
    """Points for a late heartbeat."""
    shutdown_return_seconds: float = 300.0
    """See `points_shutdown`."""
    same_sign_seconds: float = 600.0
    """Length of a time slot: suspicions and late heartbeats that several name servers saw within one slot are counted
    as the name server that saw most of them reported them."""
    degraded_points: float = 300.0
    """A broker with at least this many points on a day that is not flapping is degraded."""
    chronic_days: int = 3
    """A broker that flapped on at least this many of the last seven days is chronic."""
    dead_after_hours: float = 24.0
    """A broker that has been down for longer at the end of the day is dead."""

    def _broken_rules(self) -> Iterator[str]:
        # With a shorter half-life, 2^(half-lives of a day) exceeds the range of a double.
        yield from _below(self, half_life_minutes=5, same_sign_seconds=1)
        if self.reuse_below == 0:
            yield "reuse_below: is not above 0"
        if self.reuse_below >= self.suppress_above:
            yield f"reuse_below: {self.reuse_below!r} is not below suppress_above, {self.suppress_above!r}"
        if self.suppress_above >= self.ceiling:
            yield f"suppress_above: {self.suppress_above!r} is not below ceiling, {self.ceiling!r}"
        yield from _outside(self, "chronic_days", 1, 7)


@dataclass(frozen=True, slots=True)
class IncidentParameters(_Section):
    """When outages of several brokers are one incident, and when they are a rolling restart."""

    brokers: int = 3
    """Fewest brokers of one zone, host or cluster that are down at the same moment in an incident."""
    within_seconds: float = 60.0
    """A broker that has been down for longer is not part of the incident."""
    sigmas: float = 4.0
    """Fewest standard deviations above what chance gives with that day's outages."""
    tolerance_seconds: float = 5.0
    """Name servers may notice outages of one moment this much apart: a shorter outage counts for this time."""
    rolling_gap_seconds: float = 120.0
    """In a rolling restart the next broker goes down within this time after the one before has recovered; 0: no rolling
    restarts."""

    def _broken_rules(self) -> Iterator[str]:
        yield from _below(self, brokers=2, within_seconds=1)
        if self.tolerance_seconds > self.within_seconds:
            yield f"tolerance_seconds: {self.tolerance_seconds!r} is above within_seconds, {self.within_seconds!r}"


@dataclass(frozen=True, slots=True)
class RankingParameters(_Section):
    """The slow track: a broker's outages of some days against its cluster's rate."""

    days: int = 7
    """Number of days whose outages are compared with the cluster's rate."""
    false_discovery_rate: float = 0.05
    """Accepted share of false outliers (Benjamini and Hochberg)."""
    grid_seconds: float = 300.0
    """Sampling interval of Nagios' percentage of state changes."""
    percent_high: float = 20.0
    """Percentage at which Nagios calls a broker flapping."""
    percent_low: float = 5.0
    """Percentage at which Nagios clears it."""
    count_at_least: int = 4
    """The simplest rule, for comparison: fewest outages on a day."""

    def _broken_rules(self) -> Iterator[str]:
        yield from _outside(self, "days", 1, 30)
        if not 0 < self.false_discovery_rate < 1:
            yield f"false_discovery_rate: {self.false_discovery_rate!r} is not between 0 and 1"
        yield from _below(self, grid_seconds=10, count_at_least=1)
        if self.percent_low >= self.percent_high:
            yield f"percent_low: {self.percent_low!r} is not below percent_high, {self.percent_high!r}"


@dataclass(frozen=True, slots=True)
class MemoryParameters(_Section):
    """The long memory of outages, the forecast made of it, and weekly patterns."""

    half_life_days: float = 180.0
    """Time in which the weight of an outage and of a monitored day falls by half; at least 7."""
    rank_half_life_days: float = 270.0
    """The same for the recurrence, by which brokers are ranked."""
    prior_days: float = 30.0
    """Weight of the cluster's rate in a broker's, as a number of monitored days; above 0."""
    absent_days: int = 90
    """A broker that was not monitored for longer is no longer remembered; at least 1."""
    false_discovery_rate: float = 0.05
    """Accepted share of false weekly patterns (Benjamini and Hochberg)."""

    def _broken_rules(self) -> Iterator[str]:
        # With 7 days a sum with growing weights reaches the range of a double in 19 years.
        yield from _below(self, half_life_days=7, rank_half_life_days=7, absent_days=1)
        if self.prior_days == 0:
            yield "prior_days: is not above 0"
        if not 0 < self.false_discovery_rate < 1:
            yield f"false_discovery_rate: {self.false_discovery_rate!r} is not between 0 and 1"


@dataclass(frozen=True, slots=True)
class HealthParameters(_Section):
    """Objectives, and limits from which queues, groups and clocks are reported."""

    slo: float = 0.999
    """Availability objective (SLO) of a cluster, between 0 and 1."""
    slo_days: int = 30
    """Number of days over which the objective and its error budget apply."""
    slo_by_cluster: dict[str, float] = field(default_factory=dict)
    """Clusters with another objective, such as `{ payments = 0.9999 }`."""
    skew_above: float = queue_findings.SKEW_ABOVE
    """A queue that is filled more than this many times as fast as the mean of its topic is hot."""
    put_rate_above: float = queue_findings.PUT_RATE_ABOVE
    """Topics with fewer messages per second are not checked for skew."""
    lag_above: float = 1_000.0
    """Least lag, in messages, at which a consumer group is listed."""
    clock_offset_above_seconds: float = 5.0
    """Largest clock offset of name servers and agents that is not reported."""

    def _broken_rules(self) -> Iterator[str]:
        objectives = {"slo": self.slo, **{f"slo_by_cluster.{name}": slo for name, slo in self.slo_by_cluster.items()}}
        for name, slo in objectives.items():
            if not 0 < slo < 1:
                yield f"{name}: {slo!r} is not between 0 and 1"
        yield from _outside(self, "slo_days", 1, 90)


@dataclass(frozen=True, slots=True)
class ReportParameters(_Section):
    """The page."""

    fleet: str = ""
    """Name of the fleet in the page's title; empty: the names of its clusters."""
    timezone: str = "UTC"
    """IANA time zone of the report's day, such as Europe/Berlin; tables keep UTC days."""
    notify_url: str = field(default="", repr=False)
    """Webhook (http or https) to which `nightly` and `backfill` post the summary as JSON; empty: none. A secret: no
    output contains it."""

    def _broken_rules(self) -> Iterator[str]:
        if self.timezone not in available_timezones():
            yield f"timezone: {self.timezone!r} is not an IANA time zone such as Europe/Berlin"
        if self.notify_url and (problem := url_problem(self.notify_url)):
            yield f"notify_url: {problem}"

    @property
    def zone(self) -> ZoneInfo:
        return ZoneInfo(self.timezone)


@dataclass(frozen=True, slots=True)
class Parameters:
    """All parameters; each field is a table of the file."""

    flapping: FlapParameters = field(default_factory=FlapParameters)
    incidents: IncidentParameters = field(default_factory=IncidentParameters)
    ranking: RankingParameters = field(default_factory=RankingParameters)
    memory: MemoryParameters = field(default_factory=MemoryParameters)
    health: HealthParameters = field(default_factory=HealthParameters)
    report: ReportParameters = field(default_factory=ReportParameters)

    def as_dict(self) -> dict[str, dict[str, Any]]:
        """Return what may be stored and shown: without the secret."""
        sections = asdict(self)
        del sections["report"]["notify_url"]
        return sections
