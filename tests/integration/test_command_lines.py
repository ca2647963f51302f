"""What all command lines have in common: help, version, completion, exit codes of errors."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import pointsman_agent.__main__
import pointsman_namesrv.__main__
import pointsman_namesrv.observe.__main__
import pointsman_report.cli
from pointsman import __version__
from pointsman_ctl import command_line as ctl

pytestmark = pytest.mark.e2e

Main = Callable[[list[str]], int]
PROGRAMS: dict[str, Main] = {
    "pointsman-namesrv": pointsman_namesrv.__main__.main,
    "pointsman-observe": pointsman_namesrv.observe.__main__.main,
    "pointsman-agent": pointsman_agent.__main__.main,
    "pointsman-report": pointsman_report.cli.main,
    "pointsmanctl": ctl.run,
}
INSTALLED = Path(sys.executable).parent
program = pytest.mark.parametrize("name", PROGRAMS)


def ended(name: str, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [INSTALLED / name, *words], env=os.environ | environment, capture_output=True, text=True, check=False
    )


@program
def test_help_has_examples_and_exit_codes(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    for asked in ("-h", "--help"):
        assert PROGRAMS[name]([asked]) == 0
        out, err = capsys.readouterr()
        assert err == ""
        assert f"  {name} " in out.partition("Examples:")[2]
        assert "Exit codes:" in out


@program
def test_the_version_names_the_program(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert PROGRAMS[name](["--version"]) == 0
    assert capsys.readouterr() == (f"{name} {__version__}\n", "")


@program
def test_an_error_of_usage_is_one_line_that_names_the_help_and_exit_2(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert PROGRAMS[name](["--colour"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"{name}: No such option")
    assert "--colour" in err
    assert err.lower().rstrip(".\n").endswith(f"see `{name} --help`")
    assert err.count("\n") == 1


@program
def test_a_shell_completes_it(name: str) -> None:
    variable = f"_{name.replace('-', '_').upper()}_COMPLETE"
    assert f"{name}\n" in ended(name, **{variable: "bash_source"}).stdout.replace(";", "\n")
    words = {variable: "bash_complete", "COMP_WORDS": f"{name} --vers", "COMP_CWORD": "1"}
    assert ended(name, **words).stdout == "plain,--version\n"


@pytest.mark.parametrize("module", ["pointsman_namesrv", "pointsman_agent", "pointsman_report"])
@pytest.mark.parametrize("asked", ["--help", "--version"])
def test_help_and_version_import_neither_grpc_nor_spark(module: str, asked: str) -> None:
    script = (
        f"import sys; from {module}.__main__ import main\n"
        f"assert main(['{asked}']) == 0\n"
        "assert not {'grpc', 'google.protobuf', 'prometheus_client', 'pyspark', 'py4j'} & set(sys.modules)"
    )
    here = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (here.returncode, here.stderr) == (0, "")


@pytest.mark.parametrize("words", [["--config", "FILE", "config", "check"], ["config", "check", "--config", "FILE"]])
@pytest.mark.parametrize("name", ["pointsman-namesrv", "pointsman-agent"])
def test_a_file_may_be_given_before_or_after_config_check(
    name: str, words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "daemon.toml"
    file.write_text("[colour]\n")
    assert PROGRAMS[name]([str(file) if word == "FILE" else word for word in words]) == 2
    assert f"{file}: [colour]: no such section" in capsys.readouterr().err


def test_a_flag_overrides_the_environment_and_the_file_and_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "namesrv.toml"
    file.write_text('[server]\nlisten = "127.0.0.1:1"\n[monitoring]\nlisten = "127.0.0.1:2"\n')
    monkeypatch.setenv("NAMESRV_SERVER__LISTEN", "127.0.0.1:3")
    main, given = PROGRAMS["pointsman-namesrv"], ["--config", str(file)]

    assert main([*given, "--listen", "127.0.0.1:4", "config", "print"]) == 0
    listens = [line for line in capsys.readouterr().out.splitlines() if line.startswith("listen = ")]
    assert listens[:2] == ['listen = "127.0.0.1:4"', 'listen = "127.0.0.1:2"']

    assert main([*given, "--listen", "nowhere", "config", "check"]) == 2
    assert capsys.readouterr().err.startswith("command line: server.listen: 'nowhere' ")
    monkeypatch.setenv("NAMESRV_SERVER__LISTEN", "elsewhere")
    assert main([*given, "config", "check"]) == 2
    assert capsys.readouterr().err.startswith("environment: NAMESRV_SERVER__LISTEN: server.listen: 'elsewhere' ")
