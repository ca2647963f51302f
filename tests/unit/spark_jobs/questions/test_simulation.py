"""How many days a simulation reads, and its warnings about days."""

from __future__ import annotations

import json

import pytest

from pointsman_report.parameters import FlapParameters, HealthParameters, Parameters, RankingParameters
from pointsman_report.questions.simulation import is_other
from pointsman_report.transforms.flagged import days_to_decay


@pytest.mark.parametrize(("half_life_minutes", "days"), [(5, 1), (60, 1), (61, 2), (1_440, 24)])
def test_a_longer_half_life_reads_more_days(half_life_minutes: float, days: int) -> None:
    parameters = FlapParameters(half_life_minutes=half_life_minutes)

    assert days_to_decay(parameters) == days
    assert parameters.ceiling * 2 ** (-days * 1_440 / half_life_minutes) < 0.001


@pytest.mark.parametrize(
    ("written", "is_listed"),
    [
        pytest.param(json.dumps(Parameters().as_dict()), False, id="the-same"),
        pytest.param(json.dumps(Parameters(health=HealthParameters(slo=0.9)).as_dict()), False, id="of-no-flag"),
        pytest.param(json.dumps(Parameters(ranking=RankingParameters(days=3)).as_dict()), True, id="another"),
        pytest.param('{"flapping": {}}', True, id="of-an-older-version"),
        pytest.param("?", True, id="unreadable"),
        pytest.param("[]", True, id="no-object"),
        pytest.param(None, True, id="unsaid"),
    ],
)
def test_a_day_computed_with_other_parameters_is_reported(written: str | None, is_listed: bool) -> None:
    assert is_other(written, Parameters()) is is_listed
