"""``simulate``: brokers that other thresholds would have flagged on computed days, and for how long."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pointsman_report.io import Warehouse
from pointsman_report.io.warehouse import days_from
from pointsman_report.parameters import Parameters
from pointsman_report.report.formatting import broker_label, duration, some
from pointsman_report.report.table_rows import key
from pointsman_report.schemas import INSTANCE
from pointsman_report.transforms.flagged import METHODS, days_to_decay, flagged_by_day, flagged_by_penalty

MAX_BROKERS = 1_000
"""Limit of listed brokers; the sums include all."""
MAX_LINES = 20

SIMULATED = {
    "flapping": (
        "half_life_minutes",
        "suppress_above",
        "reuse_below",
        "ceiling",
        "points_outage",
        "points_restarted",
        "points_moved",
        "points_suspected",
        "points_shutdown",
        "points_late",
    ),
    "ranking": ("false_discovery_rate", "percent_high", "count_at_least"),
}
"""Parameters that can be simulated from the tables; the others need a recomputation of the days."""

FLAGGED_BY = ("flapping", "incidents", "ranking")
"""Tables of parameters that affect flags."""

_METHOD_NAMES = {
    "penalty": "penalty above its threshold",
    "percent": "state changes, percent",
    "count": "outages per day",
    "slow": "rate compared with cluster",
}
_MEASURES = ("penalty_times", "penalty_seconds", *(f"{name}_days" for name in METHODS[1:]))


@dataclass(frozen=True, slots=True)
class Change:
    """A parameter that differs between the two sets."""

    name: str
    given: object
    other: object
    is_simulated: bool


@dataclass(frozen=True, slots=True)
class Flagged:
    """Number of brokers flagged by a method with each set."""

    method: str
    given: int
    others: int
    newly: int
    no_longer: int


@dataclass(frozen=True, slots=True)
class Simulation:
    """The comparison of other parameters with the given ones."""

    first_day: date
    last_day: date
    changes: tuple[Change, ...]
    known_brokers: int
    flagged: tuple[Flagged, ...]
    given_seconds: float
    other_seconds: float
    differing: int
    brokers: tuple[dict[str, Any], ...]
    """Brokers that are flagged differently, by the difference of the time above the threshold."""
    not_computed: tuple[date, ...]
    computed_otherwise: tuple[date, ...]
    """Days computed with parameters that differ from the given ones and affect flags."""

    @property
    def exit_code(self) -> int:
        return 0 if self.known_brokers else 1

    def as_dict(self) -> dict[str, Any]:
        return {
            "from": self.first_day.isoformat(),
            "to": self.last_day.isoformat(),
            "parameters": {
                change.name: {"given": change.given, "others": change.other}
                for change in self.changes
                if change.is_simulated
            },
            "not_simulated": [change.name for change in self.changes if not change.is_simulated],
            "known_brokers": self.known_brokers,
            "penalty_seconds": {"given": self.given_seconds, "others": self.other_seconds},
            "flagged": {
                one.method: {
                    "given": one.given,
                    "others": one.others,
                    "newly": one.newly,
                    "no_longer": one.no_longer,
                }
                for one in self.flagged
            },
            "differing": self.differing,
            "brokers": list(self.brokers),
            "not_computed": [day.isoformat() for day in self.not_computed],
            "computed_with_other_parameters": [day.isoformat() for day in self.computed_otherwise],
        }

    def text(self, zone: ZoneInfo) -> str:  # noqa: ARG002  # whole UTC days
        if not self.known_brokers:
            return f"no data: no day from {self.first_day} to {self.last_day} was computed\n"
        lines = [f"{self.first_day} to {self.last_day} (UTC days), {self.known_brokers:,} brokers"]
        lines += [f"  {change.name} = {change.other} instead of {change.given}" for change in self.changes]
        not_simulated = [change.name for change in self.changes if not change.is_simulated]
        if not_simulated:
            lines.append(f"cannot be simulated, recompute the days instead: {', '.join(not_simulated)}")
        if self.not_computed:
            lines.append(f"days not computed, without charges: {_named(self.not_computed)}")
        if self.computed_otherwise:
            lines.append(f"days computed with parameters other than the given ones: {_named(self.computed_otherwise)}")
        lines += ["", f"{'flagged by':<28}{'given':>8}{'others':>8}{'added':>8}{'removed':>8}"]
        lines += [
            f"{_METHOD_NAMES[one.method]:<28}{one.given:>8,}{one.others:>8,}{one.newly:>8,}{one.no_longer:>8,}"
            for one in self.flagged
        ]
        lines.append(
            f"flagged by penalty for a total of {duration(self.other_seconds)} (given: {duration(self.given_seconds)})"
        )
        if self.brokers:
            lines += ["", *(_line(broker) for broker in self.brokers[:MAX_LINES])]
        if self.differing > MAX_LINES:
            lines.append(f"and {self.differing - min(MAX_LINES, len(self.brokers)):,} more brokers")
        return "\n".join(lines) + "\n"


def simulate(
    warehouse: Warehouse, first_day: date, last_day: date, *, given: Parameters, others: Parameters
) -> Simulation:
    """Compare other parameters with the given ones, from the published tables of the days."""
    both = _side(warehouse, first_day, last_day, given, "given").join(
        _side(warehouse, first_day, last_day, others, "others"), on=list(INSTANCE), how="full"
    )
    both = both.fillna(0).persist()
    try:
        (sums,) = both.agg(*_sums()).collect()
        worst = both.filter(_differs()).orderBy(
            F.desc(F.abs(F.col("others_penalty_seconds") - F.col("given_penalty_seconds"))), *INSTANCE
        )
        named = tuple(_broker(row.asDict()) for row in worst.limit(MAX_BROKERS).collect())
    finally:
        both.unpersist()
    flagged = tuple(
        Flagged(name, *(sums[f"{name}_{what}"] for what in ("given", "others", "newly", "no_longer")))
        for name in METHODS
    )
    return Simulation(
        first_day=first_day,
        last_day=last_day,
        changes=_changes(given, others),
        known_brokers=sums["known"],
        flagged=flagged,
        given_seconds=sums["given_seconds"] or 0.0,
        other_seconds=sums["other_seconds"] or 0.0,
        differing=sums["differing"],
        brokers=named,
        not_computed=tuple(sorted(set(days_from(first_day, last_day)) - warehouse.computed_days())),
        computed_otherwise=_computed_otherwise(warehouse, first_day, last_day, given),
    )


def _computed_otherwise(warehouse: Warehouse, first_day: date, last_day: date, given: Parameters) -> tuple[date, ...]:
    rows = warehouse.read("computed_days", first_day=first_day, last_day=last_day).select("dt", "parameters").collect()
    return tuple(sorted(row["dt"] for row in rows if is_other(row["parameters"], given)))


def is_other(written: str | None, given: Parameters) -> bool:
    """Whether the parameters of a computed day may flag differently from the given ones; true if they are
    unreadable."""
    try:
        used = json.loads(written or "")
        return any(used[name] != given.as_dict()[name] for name in FLAGGED_BY)
    except (ValueError, TypeError, KeyError):
        return True


def _side(warehouse: Warehouse, first_day: date, last_day: date, parameters: Parameters, side: str) -> DataFrame:
    span = {"first_day": first_day, "last_day": last_day}
    back = min(days_to_decay(parameters.flapping), (first_day - date.min).days)
    charges = warehouse.read("flap_charges", first_day=first_day - timedelta(days=back), last_day=last_day)
    by_penalty = flagged_by_penalty(charges, **span, parameters=parameters.flapping)
    tables = (warehouse.read(table, **span) for table in ("flapping", "flap_ranking"))
    by_day = flagged_by_day(*tables, parameters=parameters.ranking)
    # A broker charged only before the first day may still be above the threshold.
    joined = by_day.join(by_penalty, on=list(INSTANCE), how="left").fillna(0)
    return joined.select(*INSTANCE, *(F.col(name).alias(f"{side}_{name}") for name in _MEASURES))


def _changes(given: Parameters, others: Parameters) -> tuple[Change, ...]:
    old, new = given.as_dict(), others.as_dict()
    return tuple(
        Change(f"{section}.{name}", value, new[section][name], name in SIMULATED.get(section, ()))
        for section, values in old.items()
        for name, value in values.items()
        if new[section][name] != value
    )


def _is_flagged(side: str, method: str) -> Column:
    return F.col(f"{side}_penalty_seconds" if method == "penalty" else f"{side}_{method}_days") > 0


def _differs() -> Column:
    differs = F.lit(False)
    for name in _MEASURES:
        differs = differs | (F.col(f"given_{name}") != F.col(f"others_{name}"))
    return differs


def _sums() -> list[Column]:
    sums = [
        F.count("*").alias("known"),
        F.count(F.when(_differs(), 1)).alias("differing"),
        F.sum("given_penalty_seconds").alias("given_seconds"),
        F.sum("others_penalty_seconds").alias("other_seconds"),
    ]
    for method in METHODS:
        old, new = _is_flagged("given", method), _is_flagged("others", method)
        each = {"given": old, "others": new, "newly": new & ~old, "no_longer": old & ~new}
        sums += [F.count(F.when(flag, 1)).alias(f"{method}_{what}") for what, flag in each.items()]
    return sums


def _broker(row: dict[str, Any]) -> dict[str, Any]:
    sides = {side: {name: row[f"{side}_{name}"] for name in _MEASURES} for side in ("given", "others")}
    return {name: row[name] for name in INSTANCE} | sides


def _named(days: tuple[date, ...]) -> str:
    return some([day.isoformat() for day in days])


def _line(broker: dict[str, Any]) -> str:
    given, others = broker["given"], broker["others"]
    parts = []
    if given["penalty_seconds"] != others["penalty_seconds"]:
        now, before = others["penalty_seconds"], given["penalty_seconds"]
        parts.append(f"by penalty {duration(now) if now else 'never'} ({duration(before) if before else 'never'})")
    for method in METHODS[1:]:
        name = f"{method}_days"
        if given[name] != others[name]:
            parts.append(f"by {_METHOD_NAMES[method]} on {others[name]} days ({given[name]})")
    return f"  {broker_label(*key(broker))}: {', '.join(parts)}"
