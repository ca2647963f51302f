"""The listed brokers, the worst first, with their figures."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pointsman_report.io import Warehouse
from pointsman_report.report.broker_plots import StateBar, Stretch, stretches
from pointsman_report.report.formatting import rfc3339
from pointsman_report.report.section import TOP, Section, section
from pointsman_report.report.sections.broker_scores import worst_first
from pointsman_report.report.sections.outage_lengths import Downs, Outage, listed_downs
from pointsman_report.report.span import Span, Window
from pointsman_report.report.table_rows import Instance, Key, Row, collect, key, only, ratio
from pointsman_report.schemas import INSTANCE

MAX_LISTED_DOWNS = 10
MAX_BROKERS = 1_000
"""In a larger fleet healthy brokers are counted but not listed; the tables have all."""

_SCORE = (
    *("down_count", "incident_downs", "sign_count", "penalty_start", "penalty_max", "penalty_end", "flagged"),
    *("flapped_days", "percent_state_change", "longest_stable_seconds", "cause", "cause_says"),
    "longest_outage_seconds",
)
_FACTS = ("owner", "zone", "host", "broker_version")


@dataclass(frozen=True, slots=True)
class Ranking:
    """A broker's outages of the last days compared with its cluster's (table ``flap_ranking``)."""

    outages: int
    days: int
    rate_per_day: float | None
    cluster_rate_per_day: float | None
    ratio: float | None
    p_value: float | None
    outlier: bool
    rank: int | None


@dataclass(frozen=True, slots=True)
class Broker(Instance):
    """A broker over the span; ``censored``: outages whose start or end was not observed."""

    class_: str
    down_count: int
    incident_downs: int
    sign_count: int
    penalty_start: float
    penalty_max: float
    penalty_end: float
    flagged: bool
    flapped_days: int
    percent_state_change: float | None
    longest_stable_seconds: float | None
    cause: str | None
    cause_says: str | None
    ranking: Ranking | None
    availability: float | None
    up_seconds: float
    down_seconds: float
    planned_seconds: float
    longest_outage_seconds: float | None
    repaired: int
    mttr_seconds: float | None
    mtbf_seconds: float | None
    censored: int
    reasons: dict[str, int] = field(default_factory=dict)
    outages: list[Outage] = field(default_factory=list)
    outages_left_out: int = 0
    leaves: list[Outage] = field(default_factory=list)
    leaves_left_out: int = 0
    first_seen_on: str | None = None
    owner: str | None = None
    zone: str | None = None
    host: str | None = None
    broker_version: str | None = None

    def without_rates(self) -> Broker:
        return replace(self, ranking=None, percent_state_change=None, mtbf_seconds=None)


def listed_brokers(warehouse: Warehouse, span: Span, rows: DataFrame, *, in_all: int) -> list[Broker]:
    """Return the brokers, the worst first: all of a small fleet, up to a thousand unhealthy ones of a larger one."""
    worth = rows if in_all <= MAX_BROKERS else rows.filter(F.col("class") != "healthy")
    few = {key(row): row for row in collect(worth.orderBy(*worst_first()).limit(MAX_BROKERS))}
    downs = listed_downs(warehouse, span, list(few))
    known = _known(warehouse, span, list(few))
    return [_broker(row, downs.get(which, Downs()), known[which]) for which, row in few.items()]


def _known(warehouse: Warehouse, span: Span, brokers: list[Key]) -> dict[Key, Row]:
    """The day each broker was first seen, and its last registered facts: owner, zone, host, version."""
    found: dict[Key, Row] = {broker: {} for broker in brokers}
    if not brokers:
        return found
    since = [F.min("first_seen_on").cast("string").alias("first_seen_on")]
    last = [F.max_by(name, "dt").alias(name) for name in _FACTS]
    for table, columns in (("broker_state", since), ("broker_facts", last)):
        for row in collect(only(span.touched(warehouse, table), brokers).groupBy(*INSTANCE).agg(*columns)):
            found[key(row)] |= {name: value for name, value in row.items() if name not in INSTANCE}
    return found


def _broker(row: Row, downs: Downs, known: Row) -> Broker:
    up, down = row["up_seconds"] or 0.0, row["down_seconds"] or 0.0
    return Broker(
        class_=row["class"],
        **{name: row[name] for name in (*INSTANCE, *_SCORE)},
        ranking=Ranking(**row["ranking"]) if row["ranking"] else None,
        availability=ratio(up, up + down),
        up_seconds=up,
        down_seconds=down,
        planned_seconds=row["planned_seconds"] or 0.0,
        repaired=row["repaired"] or 0,
        mttr_seconds=ratio(row["repair_seconds"], row["repaired"]),
        mtbf_seconds=ratio(up, row["down_count"]) if row["down_count"] else None,
        censored=sum(outage.start_censored or outage.end_censored for outage in downs.outages),
        reasons=dict(sorted(downs.reasons.items())),
        outages=downs.outages,
        outages_left_out=downs.outage_count - len(downs.outages),
        leaves=downs.leaves,
        leaves_left_out=downs.leave_count - len(downs.leaves),
        **known,
    )


@dataclass(frozen=True, slots=True)
class OwnTimeline:
    """What a broker's row opens: its line of states, its outages and planned downtime by time, and a command."""

    from_at: str
    to_at: str
    stretches: list[Stretch]
    downs: list[tuple[Outage, bool]]
    """The longest ones, with whether they were planned."""
    left_out: int
    command: str


@dataclass(frozen=True, slots=True)
class ShownBroker:
    """A row of the table."""

    row: Broker
    known: str
    reasons: str
    timeline: OwnTimeline


def brokers_section(
    brokers: list[Broker], intervals: list[StateBar], window: Window, command: Callable[[Key], str], *, in_all: int
) -> Section | None:
    """Return the section; None without brokers.

    ``intervals``: those drawn, of the worst brokers. ``command``: shows what happened to a broker.
    """
    if not brokers:
        return None
    # In a long list healthy brokers are not shown.
    unhealthy = [broker for broker in brokers if broker.class_ != "healthy"]
    worst = (unhealthy if unhealthy and len(brokers) > TOP else brokers)[:TOP]
    bars: dict[Key, list[StateBar]] = defaultdict(list)
    for bar in intervals:
        bars[bar.key].append(bar)
    rest = f"{len(worst)} of {in_all:,} brokers are shown; report.json lists {len(brokers):,}, the tables have all. "
    return section(
        "brokers",
        "Brokers by reliability",
        worst=[
            ShownBroker(
                broker,
                _known_of(broker),
                _reasons(broker),
                _timeline(broker, bars[broker.key], window, command(broker.key)),
            )
            for broker in worst
        ],
        rest=rest if in_all > len(worst) else "",
        is_cut=any(broker.censored for broker in worst),
    )


def _timeline(broker: Broker, bars: list[StateBar], window: Window, command: str) -> OwnTimeline:
    downs = [(outage, False) for outage in broker.outages] + [(leave, True) for leave in broker.leaves]
    longest = sorted(downs, key=lambda down: (-down[0].seconds, down[0].start_at))[:MAX_LISTED_DOWNS]
    in_all = len(downs) + broker.outages_left_out + broker.leaves_left_out
    return OwnTimeline(
        rfc3339(window[0]),
        rfc3339(window[1]),
        stretches(bars, window),
        sorted(longest, key=lambda down: down[0].start_at),
        left_out=in_all - len(longest),
        command=command,
    )


def _known_of(broker: Broker) -> str:
    owner = f"owner {broker.owner}" if broker.owner else ""
    since = f"since {broker.first_seen_on}" if broker.first_seen_on else ""
    return ", ".join(part for part in (owner, since) if part)


def _reasons(broker: Broker) -> str:
    return ", ".join(f"{reason} ({n})" for reason, n in broker.reasons.items())
