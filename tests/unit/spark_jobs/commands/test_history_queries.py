"""Errors of query commands before anything is read."""

from __future__ import annotations

import pytest

from pointsman_report.cli import main


@pytest.mark.parametrize("command", ["route-at", "explain"])
def test_a_moment_in_the_future_is_refused(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = [command, "orders", "--at=2999-01-01T12:00Z", "--warehouse=nowhere"]

    assert main(words) == 2
    assert "--at 2999-01-01 12:00:00+00:00 is in the future" in capsys.readouterr().err
