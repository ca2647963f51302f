"""A small seeded trace of machines through raw history and the whole job, as the bench does with a real one."""

from __future__ import annotations

import random
import statistics
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.bench.replay_trace import write_history
from tests.bench.trace_figures import Stretch, compare, counted_apart, measure, share_with_company, verdicts
from tests.bench.trace_ranking import Precision, average_precision, precisions, recurrence_on
from tests.spark.histories import MIDNIGHT
from tests.spark.tables import DayRunner

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

DAYS = 5
SPLIT = (MIDNIGHT + timedelta(days=3)).date()


def trace(seed: int) -> list[Stretch]:
    """Machines of two sites, up and down in turn; half begin down, some stretches have no length."""
    rng = random.Random(seed)
    first, last = (int((MIDNIGHT + timedelta(days=n)).timestamp()) for n in (0, DAYS))
    stretches = []
    for site in ("s1", "s2"):
        for number in range(6):
            at, state = first + rng.randint(0, 40_000), rng.choice(("up", "down"))
            while at < last - 100:
                stop = min(last - 100, at + rng.choice((0, 30, 600, 20_000, 90_000)))
                stretches.append(Stretch(site, "c1", f"c1-node{number}", state, at, stop))
                at, state = stop, "down" if state == "up" else "up"
    return stretches


@pytest.mark.slow
def test_a_trace_is_read_from_the_tables_unchanged(run_days: DayRunner, tmp_path: Path) -> None:
    stretches = trace(20061110)
    lengths = {state: [s.stop - s.start for s in stretches if s.state == state] for state in ("up", "down")}
    rows = write_history(stretches, tmp_path / "history")
    first, last = MIDNIGHT.date(), datetime.fromtimestamp(max(s.stop for s in stretches), tz=UTC).date()
    run_days.compute(tmp_path / "warehouse", [tmp_path / "history"], first, last)

    # Started, ready and stopped of each of the two name servers.
    assert rows == len(stretches) + 6
    expected = {
        "nodes": 12,
        "rows": len(stretches),
        "down_intervals": len(lengths["down"]),
        "up_intervals": len(lengths["up"]),
        "mean_down_hours": round(statistics.fmean(lengths["down"]) / 3600, 4),
        "median_up_hours": round(statistics.median(lengths["up"]) / 3600, 4),
        "availability": round(sum(lengths["up"]) / sum(map(sum, lengths.values())), 6),
    }
    apart = counted_apart(stretches)
    lines = compare(expected | apart, measure(tmp_path / "warehouse"))
    assert [line for line in lines if not line[-1]] == []
    assert len(apart["worst"]) == 12
    results = dict(verdicts(tmp_path / "warehouse", apart["worst"]))
    ranked = precisions(
        stretches, recurrence_on(tmp_path / "warehouse", first + timedelta(days=2)), split=SPLIT, after=2
    )
    assert [precision.count for precision in ranked.values()] == [1, 1, 1, 2]
    assert results["flagged by the penalty"].endswith("of 12 brokers")


def test_a_figure_that_differs_is_reported() -> None:
    stretches = trace(1)
    apart = counted_apart(stretches)
    first = next(iter(apart["worst"]))
    one_more = apart | {"worst": apart["worst"] | {first: apart["worst"][first] + 1}}

    differing = [name for name, *_, equal in compare(apart, one_more) if not equal]
    assert differing == [first]


def test_average_precision_is_the_mean_precision_at_the_ranks_of_those_wanted() -> None:
    score = {"a": 9.0, "b": 5.0, "c": 5.0, "d": 1.0}

    assert average_precision(score, {"a", "b"}) == 1
    assert average_precision(score, {"b", "d"}) == (1 / 2 + 2 / 4) / 2


def test_rankings_use_the_days_before_the_split_for_the_days_after_it() -> None:
    midnight = int(MIDNIGHT.timestamp())
    down = {"old": (-9, -9, -9, 1), "lately": (-1, 0), "next": (-20, 0, 1, 1), "new": (0, 0, 0, 0, 0)}
    stretches = [
        Stretch("s", "c", name, "down", midnight + day * 86_400, midnight + day * 86_400 + 9)
        for name, days in down.items()
        for day in days
    ]
    memory = {"s/old": 1.0, "s/lately": 2.0, "s/next": 3.0}
    found = precisions(stretches, memory, split=MIDNIGHT.date())[0.1]

    assert found == Precision(1, chance=1 / 3, week=1 / 2, plain_count=1 / 3, memory=1.0)
    assert found.is_met
    assert str(replace(found, memory=0.5)).endswith(": MISSED")


def test_an_outage_has_company_when_two_others_of_its_site_begin_within_a_minute() -> None:
    begin = (("s1", 0), ("s1", 30), ("s1", 60), ("s1", 121), ("s2", 30), ("s2", 31))
    stretches = [Stretch(site, "c1", f"n{at}", "down", at, at + 500) for site, at in begin]

    assert share_with_company(stretches) == 3 / 6
