"""The slow track: probabilities against an exact calculation, outliers against Benjamini and Hochberg's paper."""

from __future__ import annotations

import math
import random
from datetime import timedelta
from fractions import Fraction
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import col

from pointsman_report.parameters import RankingParameters
from pointsman_report.schemas.table_types import DAY, DOUBLE, LONG, TEXT, struct
from pointsman_report.transforms.flap_ranking import flap_ranking, with_outliers
from pointsman_report.transforms.poisson import upper_tail
from pointsman_report.transforms.utc_days import SECOND
from tests.spark.histories import MIDNIGHT

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

TODAY = MIDNIGHT.date()
BROKER_DAYS = struct(dt=DAY, cluster=TEXT, broker_name=TEXT, broker_id=LONG, watched_us=LONG, outages=LONG)
DAY_US = 86_400 * SECOND


def exact_tail(count: int, mean: float) -> float:
    """Twenty thousand terms, in logarithms, by the library's own gamma function."""
    if count == 0:
        return 1.0
    logs = [n * math.log(mean) - mean - math.lgamma(n + 1) for n in range(count, count + 20_000)]
    peak = max(logs)
    return math.exp(peak) * math.fsum(math.exp(one - peak) for one in logs)


def test_a_chance_is_exact_from_no_outage_to_ten_thousand(spark: SparkSession) -> None:
    rng = random.Random(11)
    counts = [*range(25), 50, 100, 999, 2_500, 10_000]
    cases = [(n, mean) for n in counts for mean in (1e-6, 0.02, 0.9, 1.0, 7.5, 60.0, 1_000.0, 9_900.0)]
    cases += [(n, max(1e-3, n * rng.uniform(0.5, 1.5))) for n in counts for _ in range(3)]
    rows = spark.createDataFrame(cases, struct(n=LONG, mean=DOUBLE))

    for row in rows.withColumn("p", upper_tail(col("n"), col("mean"))).collect():
        assert row.p == pytest.approx(exact_tail(row.n, row.mean), rel=1e-6, abs=1e-290), row


def test_the_exact_calculation_is_right_where_fractions_can_check_it() -> None:
    below = sum(Fraction(3) ** n / math.factorial(n) for n in range(7))
    assert exact_tail(7, 3.0) == pytest.approx(1 - float(below) * math.exp(-3), rel=1e-9)


def test_outliers_are_those_of_the_step_up_procedure(spark: SparkSession) -> None:
    rng = random.Random(3)
    rows, expected = [], set()
    for number in range(40):
        own = [(f"b{n}", rng.choice((rng.random(), rng.random() ** 6, 0.01, 1.0))) for n in range(rng.randint(1, 30))]
        rows += [(TODAY, f"c{number}", name, 0, p) for name, p in own]
        values = sorted(p for _, p in own)
        passing = [p for rank, p in enumerate(values, start=1) if p <= 0.05 * rank / len(values)]
        expected |= {(f"c{number}", name) for name, p in own if passing and p <= passing[-1]}
    given = spark.createDataFrame(rows, struct(dt=DAY, cluster=TEXT, broker_name=TEXT, broker_id=LONG, p_value=DOUBLE))

    found = with_outliers(given, false_discovery_rate=0.05).filter("outlier").collect()
    assert 20 < len(expected) < len(rows) / 2
    assert {(row.cluster, row.broker_name) for row in found} == expected


def ranked(
    spark: SparkSession, counts: list[tuple[int, str, str, int, float]], *, days: int = 1
) -> list[dict[str, Any]]:
    """Rank; each broker's day is (days ago, cluster, broker, outages, share of the day that it was watched)."""
    rows = [
        (TODAY - timedelta(days=ago), cluster, name, 0, round(share * DAY_US), outages)
        for ago, cluster, name, outages, share in counts
    ]
    found = flap_ranking(
        spark.createDataFrame(rows, BROKER_DAYS),
        first_day=TODAY - timedelta(days=days - 1),
        last_day=TODAY,
        parameters=RankingParameters(),
    )
    return [row.asDict() for row in found.orderBy("dt", "cluster", "rank").collect()]


def test_the_slow_track_ranks_several_clusters(spark: SparkSession) -> None:
    calm = [(ago, cluster, f"b{n}", 0, 1.0) for ago in range(7) for cluster in ("daily", "two") for n in range(20)]
    counts = [(ago, c, b, 1 if (c, b) == ("daily", "b7") else o, s) for ago, c, b, o, s in calm]
    counts += [(ago, "two", name, 9, 1.0) for ago in range(7) for name in ("x", "y")]
    counts += [(0, "alone", "b", 50, 1.0)]
    counts += [(0, "brief", f"b{n}", 1, 0.5 if n == 0 else 1.0) for n in range(5)]
    counts += [(0, "unwatched", "b", 0, 0.0)]
    counts += [(7, "daily", "b8", 1_000, 1.0)]
    found: dict[str, list[dict[str, Any]]] = {}
    for row in ranked(spark, counts):
        found.setdefault(row["cluster"], []).append(row)

    worst, second = found["daily"][:2]
    assert (worst["broker_name"], worst["outlier"], worst["rank"]) == ("b7", True, 1), "one fault a day shows here"
    assert (worst["outages"], worst["days"], worst["watched_days"]) == (7, 7, 7.0)
    assert worst["cluster_rate_per_day"] == pytest.approx(1 / (19 * 7)), "the others had none, and one more counts"
    assert worst["ratio"] == pytest.approx(19 * 7)
    assert (second["outlier"], second["outages"]) == (False, 0), "what was more than seven days ago does not count"
    flappers = found["two"][:2]
    assert [(row["broker_name"], row["outlier"]) for row in flappers] == [("x", True), ("y", True)]
    (alone,) = found["alone"]
    assert (alone["p_value"], alone["outlier"], alone["rank"]) == (None, False, 1), "no other broker to compare it with"
    assert found["brief"][0]["broker_name"] == "b0", "as many outages in half the time are more"
    assert "unwatched" not in found


def test_a_day_ranked_alone_is_ranked_as_among_others(spark: SparkSession) -> None:
    rng = random.Random(2)
    counts = [(ago, "c", f"b{n}", rng.choice((0, 0, 1, 9)), rng.random()) for ago in range(5) for n in range(9)]

    among = [row for row in ranked(spark, counts, days=3) if row["dt"] == TODAY]
    assert ranked(spark, counts) == among
