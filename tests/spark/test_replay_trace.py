"""A small seeded trace of machines through raw history and the whole job, as the bench does with a real one."""

from __future__ import annotations

import random
import statistics
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.bench.replay_trace import write_history
from tests.bench.trace_figures import Stretch, compare, counted_apart, measure, share_with_company, verdicts
from tests.spark.histories import MIDNIGHT
from tests.spark.tables import DayRunner

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

DAYS = 5


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
    assert results["flagged by the penalty"].endswith("of 12 brokers")


def test_a_figure_that_differs_is_reported() -> None:
    stretches = trace(1)
    apart = counted_apart(stretches)
    first = next(iter(apart["worst"]))
    one_more = apart | {"worst": apart["worst"] | {first: apart["worst"][first] + 1}}

    differing = [name for name, *_, equal in compare(apart, one_more) if not equal]
    assert differing == [first]


def test_an_outage_has_company_when_two_others_of_its_site_begin_within_a_minute() -> None:
    begin = (("s1", 0), ("s1", 30), ("s1", 60), ("s1", 121), ("s2", 30), ("s2", 31))
    stretches = [Stretch(site, "c1", f"n{at}", "down", at, at + 500) for site, at in begin]

    assert share_with_company(stretches) == 3 / 6
