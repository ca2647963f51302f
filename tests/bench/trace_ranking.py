"""Which machines of a trace will fail most: rankings made of its first year, compared with the half-year after it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from tests.bench.trace_figures import Stretch, worst

YEAR, HALF_YEAR, WEEK = 365, 182, 7
SHARES = (0.05, 0.072, 0.1, 0.2)
"""Shares of the machines that count as those that fail most."""


@dataclass(frozen=True, slots=True)
class Precision:
    """Average precision of each ranking for the ``count`` machines that fail most; ``chance`` that of a random one."""

    count: int
    chance: float
    week: float
    plain_count: float
    memory: float

    @property
    def is_met(self) -> bool:
        """The memory is at least as good as the plain count, and better than the week."""
        return self.memory >= self.plain_count and self.memory > self.week

    def __str__(self) -> str:
        figures = f"memory {self.memory:.3f}, plain count {self.plain_count:.3f}, week {self.week:.3f}"
        return f"{figures}, chance {self.chance:.3f}{'' if self.is_met else ': MISSED'}"


def average_precision(score: Mapping[str, float], wanted: set[str]) -> float:
    """The mean precision at the ranks of the wanted ones; equal scores by name."""
    found = total = 0.0
    for rank, name in enumerate(sorted(score, key=lambda name: (-score[name], name)), 1):
        if name in wanted:
            found += 1
            total += found / rank
    return total / len(wanted)


def precisions(
    trace: Iterable[Stretch], recurrence: Mapping[str, float], *, split: date, after: int = HALF_YEAR
) -> dict[float, Precision]:
    """Compare rankings of the machines known before ``split`` with the days ``after`` it, by `SHARES`.

    ``recurrence``: the memory of each at the end of the day before.
    """
    stretches = list(trace)
    known = {stretch.broker for stretch in stretches if _day(stretch) < split}
    downs = [(stretch.broker, _day(stretch)) for stretch in stretches if stretch.state == "down"]

    def counted(first: date, last: date) -> dict[str, int]:
        counts = Counter(broker for broker, day in downs if first <= day <= last)
        return {broker: counts[broker] for broker in known}

    day_before = split - timedelta(days=1)
    week = counted(split - timedelta(days=WEEK), day_before)
    every = counted(date.min, day_before)
    later = counted(split, split + timedelta(days=after - 1))
    found = {}
    for share in SHARES:
        wanted = set(worst(Counter(later), max(1, round(share * len(known)))))
        of = [average_precision(score, wanted) for score in (week, every, {name: recurrence[name] for name in known})]
        found[share] = Precision(len(wanted), len(wanted) / len(known), *of)
    return found


def _day(stretch: Stretch) -> date:
    return datetime.fromtimestamp(stretch.start, tz=UTC).date()


def recurrence_on(warehouse: Path, day: date) -> dict[str, float]:
    """The memory of each broker at the end of a day, from the table."""
    import duckdb  # noqa: PLC0415 - the rankings need none

    query = "SELECT cluster || '/' || broker_name, recurrence FROM read_parquet($files)"
    return dict(duckdb.execute(query, {"files": f"{warehouse}/broker_memory/dt={day}/*.parquet"}).fetchall())


def forecasts_held(warehouse: Path) -> tuple[int, int]:
    """How many forecasts ended, and how many of them had the number of outages in their interval."""
    import duckdb  # noqa: PLC0415 - as above

    query = "SELECT coalesce(sum(forecasts), 0), coalesce(sum(held), 0) FROM read_parquet($files)"
    ended, held = duckdb.execute(query, {"files": f"{warehouse}/forecast_checks/*/*.parquet"}).fetchall()[0]
    return int(ended), int(held)
