"""``week``: the incidents of seven days, clusters against their objectives, and the worst brokers, compared with the
seven days before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from datetime import date, datetime, timedelta
from heapq import nsmallest
from typing import Any
from zoneinfo import ZoneInfo

from pointsman.history.past_route import format_time, rfc3339
from pointsman.history.row_format import Row
from pointsman.names import printable
from pointsman_report.io.past import Past
from pointsman_report.questions.text_table import text_table
from pointsman_report.report.formatting import counted, duration, number, objective, percent
from pointsman_report.report.meanings import cause_name
from pointsman_report.report.table_rows import Instance, Key, key, ratio
from pointsman_report.schemas import INSTANCE

DAYS = 7
MAX_INCIDENTS = 20
MAX_BROKERS = 10
_HEALTH = ("dt", "cluster", "brokers", "up_seconds", "down_seconds", "outages", "slo")
_INCIDENT = (
    *("dt", "incident_id", "cluster", "scope", "scope_name", "brokers", "known_brokers", "cause", "evidence"),
    *("last_heard_at", "from_at", "back_at"),
)
_TOPICS = ("incident_id", "topics_hit", "topics_unwritable", "unwritable_seconds")


@dataclass(frozen=True, slots=True)
class ClusterWeek:
    """A cluster's sums; the objective is that of its last day."""

    cluster: str
    brokers: int
    availability: float | None
    objective: float | None
    down_seconds: float
    outages: int
    availability_before: float | None
    down_seconds_before: float | None
    outages_before: int | None

    @property
    def is_below_objective(self) -> bool:
        return None not in (self.availability, self.objective) and (self.availability or 0) < (self.objective or 0)


@dataclass(frozen=True, slots=True)
class WeekIncident:
    """An incident that began in the week, with the topics that it hit."""

    incident_id: str
    cluster: str
    scope: str | None
    scope_name: str | None
    brokers: int
    known_brokers: int | None
    cause: str | None
    evidence: str | None
    last_heard_at: datetime | None
    from_at: datetime
    back_at: datetime | None
    topics_hit: int | None
    topics_unwritable: int | None
    unwritable_seconds: float | None


@dataclass(frozen=True, slots=True)
class BrokerWeek(Instance):
    """A broker's unplanned downtime and its outages."""

    down_seconds: float
    outages: int


@dataclass(frozen=True, slots=True)
class WeekSummary:
    """The week that ends with ``last_day``. ``incidents``: the largest first, ``brokers``: the most downtime first."""

    first_day: date
    last_day: date
    days: int
    """Computed days of the week, of seven."""
    days_before: int
    clusters: list[ClusterWeek]
    incidents: list[WeekIncident]
    incidents_in_all: int
    incidents_before: int
    brokers: list[BrokerWeek]
    brokers_in_all: int

    @property
    def exit_code(self) -> int:
        """1: no computed day, an incident, or a cluster below its objective."""
        return int(not self.days or bool(self.incidents) or any(row.is_below_objective for row in self.clusters))

    def as_dict(self) -> dict[str, Any]:
        incidents = [
            {name: rfc3339(value) if name.endswith("_at") else value for name, value in asdict(row).items()}
            for row in self.incidents
        ]
        return {
            "from": self.first_day.isoformat(),
            "to": self.last_day.isoformat(),
            "days": self.days,
            "days_before": self.days_before,
            "clusters": [asdict(row) | {"is_below_objective": row.is_below_objective} for row in self.clusters],
            "incidents": {"rows": incidents, "in_all": self.incidents_in_all, "before": self.incidents_before},
            "brokers": {"rows": [asdict(row) for row in self.brokers], "in_all": self.brokers_in_all},
        }

    def text(self, zone: ZoneInfo) -> str:
        lines = [
            f"{self.first_day} to {self.last_day} (UTC days), compared with the {DAYS} days before",
            f"computed: {self.days} of {DAYS} days, before {self.days_before} of {DAYS}",
        ]
        if not self.days:
            return "\n".join([*lines, "No nightly run has computed these days."]) + "\n"
        lines += ["", "Clusters", *text_table(_CLUSTER, self.clusters)]
        lines += ["", f"Incidents: {self.incidents_in_all:,}, before {self.incidents_before:,}"]
        lines += [f"  {_incident_text(row, zone)}" for row in self.incidents]
        lines += _rest(self.incidents_in_all, self.incidents)
        lines += ["", f"Brokers with downtime: {self.brokers_in_all:,}"]
        lines += [*text_table(_BROKER, self.brokers), *_rest(self.brokers_in_all, self.brokers)] if self.brokers else []
        return "\n".join(lines) + "\n"


def _rest(in_all: int, rows: list[Any]) -> list[str]:
    return [f"  and {in_all - len(rows):,} more"] if in_all > len(rows) else []


def _change(before: float | None, now: float | None, write: Callable[[float | None], str]) -> str:
    return write(now) if before is None else f"{write(before)} \N{RIGHTWARDS ARROW} {write(now)}"


_CLUSTER: tuple[tuple[str, Callable[[ClusterWeek], str]], ...] = (
    ("cluster", lambda row: printable(row.cluster)),
    ("brokers", lambda row: number(row.brokers)),
    ("availability", lambda row: _change(row.availability_before, row.availability, percent)),
    ("objective", lambda row: objective(row.objective) + (" missed" if row.is_below_objective else "")),
    ("downtime", lambda row: _change(row.down_seconds_before, row.down_seconds, duration)),
    ("outages", lambda row: _change(row.outages_before, row.outages, number)),
)
_BROKER: tuple[tuple[str, Callable[[BrokerWeek], str]], ...] = (
    ("broker", lambda row: row.label),
    ("downtime", lambda row: duration(row.down_seconds)),
    ("outages", lambda row: number(row.outages)),
)


def _incident_text(row: WeekIncident, zone: ZoneInfo) -> str:
    place = f"{row.scope or 'cluster'} {row.scope_name or row.cluster} of {row.cluster}"
    known = f" of {row.known_brokers:,}" if row.known_brokers else ""
    detected = _seconds(row.last_heard_at, row.from_at)
    recovered = _seconds(row.from_at, row.back_at)
    parts = [
        f"{place}: {counted(row.brokers, 'broker')}{known} down",
        cause_name(row.cause or "unknown"),
        "" if detected is None or detected < 0 else f"detected after {duration(detected)}",
        "recovery not observed" if recovered is None else f"recovered after {duration(recovered)}",
        f"{counted(row.topics_hit or 0, 'topic')} hit, {row.topics_unwritable or 0:,} without a writable queue"
        + (f" for {duration(row.unwritable_seconds)}" if row.topics_unwritable else ""),
    ]
    return f"{format_time(row.from_at, zone, day=True)}  {printable(', '.join(filter(None, parts)))}"


def _seconds(start: datetime | None, end: datetime | None) -> float | None:
    return None if start is None or end is None else (end - start).total_seconds()


def week_summary(past: Past, last_day: date) -> WeekSummary:
    """Summarize the seven UTC days up to ``last_day``."""
    first_day, before = last_day - timedelta(days=DAYS - 1), last_day - timedelta(days=2 * DAYS - 1)

    def rows(table: str, columns: tuple[str, ...]) -> tuple[list[Row], list[Row]]:
        """The rows of the week before, and of the week."""
        found = past.rows(table, columns, first_day=before, last_day=last_day)
        return [row for row in found if row["dt"] < first_day], [row for row in found if row["dt"] >= first_day]

    days_before, days = (len({row["dt"] for row in each}) for each in rows("computed_days", ("dt",)))
    earlier, incidents = rows("incidents", _INCIDENT)
    hit = {
        row["incident_id"]: row for row in past.rows("blast_radius", _TOPICS, first_day=first_day, last_day=last_day)
    }
    largest = nsmallest(MAX_INCIDENTS, incidents, key=lambda row: (-row["brokers"], row["from_at"], row["incident_id"]))
    brokers = _brokers(
        past.rows("availability", (*INSTANCE, "down_seconds", "outages"), first_day=first_day, last_day=last_day)
    )
    return WeekSummary(
        first_day,
        last_day,
        days,
        days_before,
        clusters=_clusters(*rows("cluster_health", _HEALTH)),
        incidents=[_incident(row, hit.get(row["incident_id"], {})) for row in largest],
        incidents_in_all=len(incidents),
        incidents_before=len(earlier),
        brokers=brokers[:MAX_BROKERS],
        brokers_in_all=len(brokers),
    )


def _incident(row: Row, hit: Row) -> WeekIncident:
    columns: dict[str, Any] = {name: row[name] for name in _INCIDENT if name != "dt"}
    columns |= {name: hit.get(name) for name in _TOPICS if name != "incident_id"}
    return WeekIncident(**columns)


def _brokers(rows: Iterable[Row]) -> list[BrokerWeek]:
    downs: dict[Key, tuple[float, int]] = {}
    for row in rows:
        if row["down_seconds"] or row["outages"]:
            seconds, outages = downs.get(key(row), (0.0, 0))
            downs[key(row)] = seconds + (row["down_seconds"] or 0.0), outages + (row["outages"] or 0)
    found = [BrokerWeek(*which, seconds, outages) for which, (seconds, outages) in downs.items()]
    return sorted(found, key=lambda row: (-row.down_seconds, -row.outages, row.key))


def _clusters(before: list[Row], week: list[Row]) -> list[ClusterWeek]:
    """The clusters of the week, those with the most downtime first."""
    sums = _sums(before)
    found = [
        ClusterWeek(
            name,
            brokers=max(row["brokers"] or 0 for row in own),
            availability=ratio(up, up + down),
            objective=max(own, key=lambda row: row["dt"])["slo"],
            down_seconds=down,
            outages=outages,
            availability_before=ratio(sums[name][0], sums[name][0] + sums[name][1]) if name in sums else None,
            down_seconds_before=sums[name][1] if name in sums else None,
            outages_before=sums[name][2] if name in sums else None,
        )
        for name, own in _by_cluster(week).items()
        for up, down, outages in [_sums(own)[name]]
    ]
    return sorted(found, key=lambda row: (-row.down_seconds, row.cluster))


def _by_cluster(rows: Iterable[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        found[row["cluster"]].append(row)
    return found


def _sums(rows: Iterable[Row]) -> dict[str, tuple[float, float, int]]:
    """Uptime and downtime in seconds, and outages, of each cluster."""
    return {
        name: (
            sum(row["up_seconds"] or 0.0 for row in own),
            sum(row["down_seconds"] or 0.0 for row in own),
            sum(row["outages"] or 0 for row in own),
        )
        for name, own in _by_cluster(rows).items()
    }
