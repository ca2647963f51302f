"""Parameters of the jobs: defaults, overridden by the tables of a TOML file.

The flap score is BGP's route flap damping (RFC 2439): each event adds points, the sum decays by half every half-life, a
broker is flagged when it rises above one threshold and cleared when it falls below a lower one.
"""

from __future__ import annotations

import math
import tomllib
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo, available_timezones


class ParametersError(ValueError):
    """An invalid parameters file; the message lists every error."""


@dataclass(frozen=True, slots=True)
class _Section:
    """A table of the file. Raises `ParametersError` with every invalid value."""

    def __post_init__(self) -> None:
        values = [(f.name, getattr(self, f.name)) for f in fields(self)]
        numbers = [(name, value) for name, value in values if name not in self.not_numbers()]
        faults = [f"{name} = {value!r} is not a number of at least 0" for name, value in numbers if not is_count(value)]
        whole = {f.name for f in fields(self) if f.type == "int"}
        points = [(name, value) for name, value in numbers if name in whole and isinstance(value, float)]
        faults += [f"{name} = {value!r} is not a whole number" for name, value in points]
        if not faults:
            faults = [fault for holds, fault in self._rules() if not holds]
        if faults:
            raise ParametersError("; ".join(faults))

    @classmethod
    def not_numbers(cls) -> tuple[str, ...]:
        return ()

    def _rules(self) -> tuple[tuple[bool, str], ...]:
        return ()


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

    def _rules(self) -> tuple[tuple[bool, str], ...]:
        return (
            # With a shorter half-life, 2^(half-lives of a day) exceeds the range of a double.
            (self.half_life_minutes >= 5, f"half_life_minutes = {self.half_life_minutes} is below 5"),
            (self.reuse_below > 0, "reuse_below is not above 0"),
            (self.reuse_below < self.suppress_above, "reuse_below is not below suppress_above"),
            (self.suppress_above < self.ceiling, "suppress_above is not below ceiling"),
            (self.same_sign_seconds >= 1, "same_sign_seconds is below 1"),
            (1 <= self.chronic_days <= 7, f"chronic_days = {self.chronic_days} is not 1 to 7"),
        )


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

    def _rules(self) -> tuple[tuple[bool, str], ...]:
        return (
            (self.brokers >= 2, f"brokers = {self.brokers} is below 2"),
            (self.within_seconds >= 1, "within_seconds is below 1"),
            (self.tolerance_seconds <= self.within_seconds, "tolerance_seconds is above within_seconds"),
        )


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

    def _rules(self) -> tuple[tuple[bool, str], ...]:
        return (
            (1 <= self.days <= 30, f"days = {self.days} is not 1 to 30"),
            (0 < self.false_discovery_rate < 1, "false_discovery_rate is not between 0 and 1"),
            (self.grid_seconds >= 10, "grid_seconds is below 10"),
            (self.percent_low < self.percent_high, "percent_low is not below percent_high"),
            (self.count_at_least >= 1, f"count_at_least = {self.count_at_least} is below 1"),
        )


@dataclass(frozen=True, slots=True)
class HealthParameters(_Section):
    """Objectives, and limits from which queues, groups and clocks are reported."""

    slo: float = 0.999
    """Availability objective (SLO) of a cluster, between 0 and 1."""
    slo_days: int = 30
    """Number of days over which the objective and its error budget apply."""
    slo_by_cluster: dict[str, float] = field(default_factory=dict)
    """Clusters with another objective, such as `{ payments = 0.9999 }`."""
    skew_above: float = 3.0
    """A queue that is filled more than this many times as fast as the mean of its topic is hot."""
    put_rate_above: float = 1.0
    """Topics with fewer messages per second are not checked for skew."""
    lag_above: float = 1_000.0
    """Least lag, in messages, at which a consumer group is listed."""
    clock_offset_above_seconds: float = 5.0
    """Largest clock offset of name servers and agents that is not reported."""

    @classmethod
    def not_numbers(cls) -> tuple[str, ...]:
        return ("slo_by_cluster",)

    def _rules(self) -> tuple[tuple[bool, str], ...]:
        by_cluster: object = self.slo_by_cluster
        own = by_cluster if isinstance(by_cluster, dict) else None
        return (
            (own is not None, f"slo_by_cluster = {by_cluster!r} is not a table of clusters"),
            (0 < self.slo < 1, f"slo = {self.slo} is not between 0 and 1"),
            (1 <= self.slo_days <= 90, f"slo_days = {self.slo_days} is not 1 to 90"),
            *(
                (isinstance(slo, float) and 0 < slo < 1, f"slo_by_cluster.{cluster} = {slo!r} is not between 0 and 1")
                for cluster, slo in (own or {}).items()
            ),
        )


@dataclass(frozen=True, slots=True)
class ReportParameters(_Section):
    """The page."""

    timezone: str = "UTC"
    """IANA time zone of the report's day, such as Europe/Berlin; tables keep UTC days."""

    @classmethod
    def not_numbers(cls) -> tuple[str, ...]:
        return ("timezone",)

    def _rules(self) -> tuple[tuple[bool, str], ...]:
        name: object = self.timezone
        known = isinstance(name, str) and name in available_timezones()
        return ((known, f"timezone = {self.timezone!r} is not an IANA time zone such as Europe/Berlin"),)

    @property
    def zone(self) -> ZoneInfo:
        return ZoneInfo(self.timezone)


@dataclass(frozen=True, slots=True)
class Parameters:
    """All parameters; each field is a table of the file."""

    flapping: FlapParameters = field(default_factory=FlapParameters)
    incidents: IncidentParameters = field(default_factory=IncidentParameters)
    ranking: RankingParameters = field(default_factory=RankingParameters)
    health: HealthParameters = field(default_factory=HealthParameters)
    report: ReportParameters = field(default_factory=ReportParameters)

    def as_dict(self) -> dict[str, dict[str, Any]]:
        return asdict(self)


SECTIONS: dict[str, type[_Section]] = {
    "flapping": FlapParameters,
    "incidents": IncidentParameters,
    "ranking": RankingParameters,
    "health": HealthParameters,
    "report": ReportParameters,
}


def is_count(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf


def load(path: Path | None) -> Parameters:
    """Read the tables of a TOML file over the defaults; None gives the defaults.

    Raises:
        ParametersError: the file is not TOML, or has an unknown name or an invalid value.
        OSError: the file cannot be read.
    """
    if path is None:
        return Parameters()
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ParametersError(f"{path}: {error}") from error
    unknown = sorted(set(content) - set(SECTIONS))
    if unknown:
        raise ParametersError(f"{path}: unknown: {', '.join(unknown)}; known: {', '.join(SECTIONS)}")
    faults: list[str] = []
    given: dict[str, Any] = {}
    for name, table in content.items():
        try:
            given[name] = _section(name, table)
        except ParametersError as error:
            faults.append(str(error))
    if faults:
        raise ParametersError(f"{path}: {'; '.join(faults)}")
    return Parameters(**given)


def _section(name: str, table: object) -> _Section:
    if not isinstance(table, dict):
        raise ParametersError(f"{name} is not a table")
    known = {f.name for f in fields(SECTIONS[name])}
    unknown = [f"{name}.{key}" for key in sorted(set(table) - known)]
    if unknown:
        raise ParametersError(f"unknown: {', '.join(unknown)}; known: {', '.join(sorted(known))}")
    try:
        return SECTIONS[name](**table)
    except ParametersError as error:
        raise ParametersError(f"{name}: {error}") from error
