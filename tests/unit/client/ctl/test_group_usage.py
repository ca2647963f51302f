"""Wrong usage of the commands for agents: nothing is asked, and the line says what to do."""

from __future__ import annotations

import pytest

from pointsman_ctl.command_line import run

PIN = ["pin", "billing", "--for", "1h"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["group"], "Missing argument 'GROUP'"),
        (["group", "a b"], "group 'a b' may hold only letters, digits and %|_-"),
        (["locks", "--group", "a b"], "group 'a b' may hold only"),
        (["offsets", "a/b"], "group 'a/b' may hold only"),
        (["groups", "--agent", "localhost"], "agent address 'localhost' must be host:port"),
        (["groups", "--agent", "h:1", "--agent", "h:0"], "agent address 'h:0' has a port outside 1 to 65535"),
        (["groups", "--agent", "h:1", "--cluster", "c1"], "--agent asks these agents alone: leave --cluster and --all"),
        (["offsets", "--agent", "h:1", "--all"], "--agent asks these agents alone"),
        (PIN, "Missing option '--to'"),
        (["pin", "billing", "--to", "x@1"], "Missing option '--for'"),
        ([*PIN, "--to", ""], "'' must not be empty"),
        ([*PIN, "--to", "a b"], "'a b' may hold only printable ASCII characters without spaces"),
        ([*PIN, "--to", "ä"], "may hold only printable ASCII"),
        ([*PIN, "--to", "x" * 256], "has 256 characters, at most 255 are allowed"),
        ([*PIN, *(word for number in range(17) for word in ("--to", f"x@{number}"))], "at most 16 are allowed"),
        (["pin", "billing", "--to", "x@1", "--for", "8d"], "'8d' is longer than 7d"),
        (["pin", "billing", "--to", "x@1", "--for", "60"], "'60' has no unit"),
        ([*PIN, "--to", "x@1", "--agent", "h:1", "--cluster", "c1"], "--agent tells these agents alone"),
        ([*PIN, "--to", "x@1", "--by", "n" * 129], "has 129 characters"),
        (["drain-broker"], "say which broker, as CLUSTER/BROKER/ID or by its --agent"),
        (["drain-broker", "c1/a/0", "--agent", "h:1"], "by its --agent, not both"),
        (["drain-broker", "c1/a"], "'c1/a' must be CLUSTER/BROKER/ID"),
        (["drain-broker", "c1/a/0", "--wait", "2h"], "'2h' is longer than 1h"),
        (["drain-broker", "c1/a/0", "--deadline", "2d"], "'2d' is longer than 24h"),
        (["drain-broker", "c1/a/0", "--quiet", "6m"], "'6m' is longer than 5m"),
        (["drain-broker", "c1/a/0"], "There is no terminal to ask on: add --yes"),
    ],
)
def test_wrong_usage_is_one_line_on_stderr_and_exit_code_2(
    capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    assert run(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert words in err
