"""Wrong usage, help, and a missing extra: nothing is asked, and the line says what to do."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from pointsman_client.ctl.command import cli, run


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["rout"], "No such command 'rout'"),
        (["route"], "Missing argument 'TOPIC'"),
        (["route", "a b"], "topic 'a b' may hold only letters, digits and %|_-"),
        (["why", ""], "broker '' must not be empty"),
        (["brokers", "--cluster", "a b"], "cluster 'a b' may hold only"),
        (["--namesrv", "localhost", "topics"], "name server address 'localhost' must be host:port"),
        (["--namesrv", "", "topics"], "no name server given"),
        (["--output", "xml", "topics"], "'xml' is not one of 'table', 'json'"),
        (["--timeout", "0", "topics"], "'--timeout'"),
        (["--timeout", "inf", "topics"], "'--timeout'"),
        (["--timeout", "nan", "topics"], "nan"),
        (["why", "b", "--limit", "0"], "'--limit'"),
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
    assert err.startswith("pointsmanctl: ")


@pytest.mark.parametrize("flags", [["--output", "json"], ["--output=json"], ["-o", "json"], ["-ojson"]])
def test_with_json_a_wrong_usage_is_json_too(capsys: pytest.CaptureFixture[str], flags: list[str]) -> None:
    assert run([*flags, "route", "a b"]) == 2

    error = json.loads(capsys.readouterr().err)["error"]
    assert error["code"] == "USAGE"
    assert error["hint"] == "see `pointsmanctl route --help`"


def test_name_servers_come_from_the_environment_unless_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POINTSMAN_NAMESRV", "nowhere")
    assert run(["topics"]) == 2
    assert "POINTSMAN_NAMESRV" in capsys.readouterr().err


@pytest.mark.parametrize("command", [[], *[[name] for name in cli.commands]], ids=["pointsmanctl", *cli.commands])
def test_help_of_each_command_has_an_example_and_fits_80_columns(
    capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    assert run([*command, "--help"]) == 0
    text = capsys.readouterr().out
    assert "  pointsmanctl " + " ".join(command) in text
    assert "Example" in text
    assert max(len(line) for line in text.splitlines()) <= 80


def test_no_arguments_show_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 0
    assert "Examples:" in capsys.readouterr().out


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out.startswith("pointsmanctl, version ")


@pytest.mark.parametrize("missing", ["click", "rich"])
def test_a_missing_extra_is_one_line_that_says_what_to_install(missing: str) -> None:
    code = (
        f"import sys; sys.modules[{missing!r}] = None; from pointsman_client.ctl.__main__ import main; sys.exit(main())"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)

    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == "pointsmanctl needs click and rich: pip install 'pointsman[cli]'\n"
