"""The parameters of the flap score and their file."""

from __future__ import annotations

from pathlib import Path

import pytest

from pointsman import config
from pointsman.config import ConfigError
from pointsman_report.parameters import FlapParameters, HealthParameters, Parameters


def load(file: Path | None) -> Parameters:
    return config.load(Parameters, file=file)


def test_a_file_overrides_only_what_it_names(tmp_path: Path) -> None:
    file = tmp_path / "p.toml"
    file.write_text("[flapping]\nhalf_life_minutes = 30\n", encoding="utf-8")

    assert load(file) == Parameters(flapping=FlapParameters(half_life_minutes=30))
    assert load(None) == Parameters()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("[flapping]\nhalf_live = 3\n", "flapping.half_live", id="unknown-name"),
        pytest.param("[flaping]\n", "[flaping]: no such section", id="unknown-table"),
        pytest.param("flapping = 3\n", "flapping: must be a table, not 3", id="no-table"),
        pytest.param("[flapping]\nceiling = -1\n", "flapping.ceiling: -1.0 is not a number", id="negative"),
        pytest.param("[flapping]\nceiling = true\n", "ceiling: must be a number, not True", id="boolean"),
        pytest.param("[flapping]\nceiling = inf\n", "ceiling: inf is not a number", id="infinite"),
        pytest.param("[flapping]\nhalf_life_minutes = 1\n", "minutes: 1.0 is below 5", id="half-life-too-short"),
        pytest.param(
            "[flapping]\nreuse_below = 5000\n",
            "5000.0 is not below suppress_above",
            id="thresholds",
        ),
        pytest.param("[flapping\n", "p.toml", id="no-toml"),
        pytest.param("[incidents]\nbrokers = 1\n", "incidents.brokers: 1 is below 2", id="incident-of-one"),
        pytest.param("[ranking]\ndays = 40\n", "ranking.days: 40 is not 1 to 30", id="ranking-too-long"),
        pytest.param("[ranking]\ncount_at_least = 0\n", "count_at_least: 0 is below 1", id="count-of-nothing"),
        pytest.param("[health]\nslo = 1\n", "health.slo: 1.0 is not between", id="slo-of-one"),
        pytest.param("[health.slo_by_cluster]\nc = 2\n", "slo_by_cluster.c: 2.0 is not between", id="slo-of-a-cluster"),
        pytest.param("[health]\nslo_by_cluster = 1\n", "slo_by_cluster", id="slo-by-cluster-no-table"),
        pytest.param(
            "[health]\nslo_by_cluster = 0.99\n", "slo_by_cluster: must be a table, not 0.99", id="slo-of-all-clusters"
        ),
        pytest.param("[health]\nslo_days = 30.0\n", "slo_days: must be a whole number", id="days-with-a-point"),
        pytest.param("[memory]\nhalf_life_days = 3\n", "half_life_days: 3.0 is below 7", id="memory-too-short"),
        pytest.param("[memory]\nabsent_days = 0\n", "absent_days: 0 is below 1", id="memory-of-nothing"),
        pytest.param("[memory]\nprior_days = 0\n", "prior_days: is not above 0", id="prior-of-nothing"),
        pytest.param(
            "[memory]\nfalse_discovery_rate = 1\n", "false_discovery_rate: 1.0 is not between 0 and 1", id="all-false"
        ),
        pytest.param("[ranking]\ndays = 7.0\n", "days: must be a whole number", id="ranking-days-with-a-point"),
        pytest.param("[flapping]\nchronic_days = 2.5\n", "chronic_days: must be a whole number", id="half-a-day"),
        pytest.param("[flapping]\nreuse_below = 0\n", "reuse_below: is not above 0", id="never-cleared"),
        pytest.param('[report]\ntimezone = "Berlin"\n', "timezone: 'Berlin' is not an IANA", id="no-timezone"),
        pytest.param('[report]\nnotify_url = "file:///x"\n', "report.notify_url: is not a URL", id="notify-a-file"),
        pytest.param("[report]\ntimezone = 1\n", "timezone: must be a string, not 1", id="timezone-no-text"),
    ],
)
def test_an_error_is_reported_with_its_file(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "p.toml"
    file.write_text(text, encoding="utf-8")

    with pytest.raises(ConfigError) as caught:
        load(file)
    assert message in str(caught.value)
    assert str(file) in str(caught.value)


def test_a_cluster_can_have_its_own_objective(tmp_path: Path) -> None:
    file = tmp_path / "p.toml"
    file.write_text("[health.slo_by_cluster]\ngold = 0.9999\n", encoding="utf-8")

    assert load(file).health == HealthParameters(slo_by_cluster={"gold": 0.9999})


def test_errors_of_all_tables_are_in_one_message(tmp_path: Path) -> None:
    file = tmp_path / "p.toml"
    file.write_text("[incidents]\nbrokers = 0\n[ranking]\ndays = 0\n", encoding="utf-8")

    with pytest.raises(ConfigError, match=r"(?s)incidents.brokers.*ranking.days"):
        load(file)


def test_all_errors_of_a_table_are_in_one_message() -> None:
    assert list(FlapParameters(half_life_minutes=-1, ceiling=-2).problems()) == [
        "half_life_minutes: -1 is not a number of at least 0",
        "ceiling: -2 is not a number of at least 0",
    ]
