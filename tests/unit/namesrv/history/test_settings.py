"""The settings of the history: every error is reported with its value."""

from __future__ import annotations

from pathlib import Path

import pytest

from pointsman.config import ConfigError
from pointsman_namesrv.config import HistoryConfig, load


@pytest.mark.parametrize(
    ("setting", "named"),
    [
        ("queue_bytes = 5", "queue_bytes: 5"),
        ("retain_days = -1", "retain_days: -1"),
        ("retain_bytes = -1", "retain_bytes: -1"),
        ('ship = ["  ", "x"]', "ship: '  ' names no program"),
        ('ship = ["cp", "a\\nb"]', "ship: 'a\\nb' must not hold control"),
        ('ship = "cp {file} /backup"', "ship: must be a list"),
        ("ship_timeout_seconds = 0.0", "ship_timeout_seconds: 0.0"),
        ("every_heartbeat = 1", "every_heartbeat: must be true or false"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named_with_its_value(setting: str, named: str, tmp_path: Path) -> None:
    file = tmp_path / "f.toml"
    file.write_text(f"[history]\n{setting}\n")
    with pytest.raises(ConfigError) as refused:
        load(file, {})

    assert [named.replace("\\n", repr("\n")[1:-1]) in problem for problem in refused.value.problems] == [True]


def test_by_default_nothing_is_shipped_and_a_year_is_kept_and_a_command_is_a_list(tmp_path: Path) -> None:
    file = tmp_path / "f.toml"
    file.write_text('[history]\nship = ["rclone", "copy", "{file}", "store:a b/"]\nretain_bytes = 0\n')

    assert (HistoryConfig().ship, HistoryConfig().retain_days >= 365) == ((), True)
    assert load(file, {}).history.ship == ("rclone", "copy", "{file}", "store:a b/")
