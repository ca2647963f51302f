"""The parameters of the flap score and their file."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_jobs.parameters import FlapParameters, ParametersError, load


def test_a_file_overrides_only_what_it_names(tmp_path: Path) -> None:
    file = tmp_path / "p.toml"
    file.write_text("[flapping]\nhalf_life_minutes = 30\n", encoding="utf-8")

    assert load(file) == FlapParameters(half_life_minutes=30)
    assert load(None) == FlapParameters()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("[flapping]\nhalf_live = 3\n", "flapping.half_live", id="unknown-name"),
        pytest.param("[flaping]\n", "unknown: flaping", id="unknown-table"),
        pytest.param("flapping = 3\n", "not a table", id="no-table"),
        pytest.param("[flapping]\nceiling = -1\n", "ceiling = -1", id="negative"),
        pytest.param("[flapping]\nceiling = true\n", "ceiling = True", id="boolean"),
        pytest.param("[flapping]\nceiling = inf\n", "ceiling = inf", id="infinite"),
        pytest.param("[flapping]\nhalf_life_minutes = 1\n", "below 5", id="half-life-too-short"),
        pytest.param("[flapping]\nreuse_below = 5000\n", "reuse_below is not below suppress_above", id="thresholds"),
        pytest.param("[flapping\n", "p.toml", id="no-toml"),
    ],
)
def test_a_fault_is_named_with_its_file(text: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "p.toml"
    file.write_text(text, encoding="utf-8")

    with pytest.raises(ParametersError) as caught:
        load(file)
    assert said in str(caught.value)
    assert str(file) in str(caught.value)


def test_every_fault_is_named_at_once() -> None:
    with pytest.raises(ParametersError, match=r"half_life_minutes.*ceiling"):
        FlapParameters(half_life_minutes=-1, ceiling=-2)
