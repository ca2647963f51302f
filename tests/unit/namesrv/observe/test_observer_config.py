"""Settings of the observer: order of sources, limits, and what a command line without a file needs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pointsman.config import ConfigError, to_toml
from pointsman_namesrv.config import HistoryConfig
from pointsman_namesrv.observe.__main__ import main
from pointsman_namesrv.observe.observer_config import ObserverConfig, load
from tests.kit.certificates import Authority


def problems(tmp_path: Path, text: str) -> str:
    file = tmp_path / "observe.toml"
    file.write_text(text)
    with pytest.raises(ConfigError) as raised:
        load(file, {})
    return str(raised.value)


def test_flags_win_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "observe.toml"
    file.write_text('[observed]\nname_servers = ["a:1"]\npoll_seconds = 2.0\ntopics_seconds = 60\n')
    environment = {"OBSERVE_OBSERVED__NAME_SERVERS": "b:1, c:1", "OBSERVE_OBSERVED__POLL_SECONDS": "3"}
    config = load(file, environment, {"observed.poll_seconds": 4.0, "observed.name_servers": None})
    assert config.observed.name_servers == ("b:1", "c:1")
    assert (config.observed.poll_seconds, config.observed.topics_seconds) == (4.0, 60.0)


def test_what_is_printed_loads_to_the_same(tmp_path: Path) -> None:
    file = tmp_path / "observe.toml"
    file.write_text(to_toml(ObserverConfig()))
    assert load(file, {}) == ObserverConfig()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('[observed]\nname_servers = ["a:1", "a:1"]', "observed.name_servers: 'a:1' is given twice"),
        ('[observed]\nname_servers = ["http://a:1"]', "observed.name_servers: 'http://a:1' must be host:port"),
        (f"[observed]\nname_servers = {[f'a:{n}' for n in range(1, 18)]}", "17 are given, at most 16 are allowed"),
        ("[observed]\npoll_seconds = 0.1", "observed.poll_seconds: 0.1 is not from 0.2 to 60.0"),
        ("[observed]\ntopics_seconds = -1", "observed.topics_seconds: -1.0 is not from 0.0 to 86400.0"),
        ("[observed]\ntopic_requests_per_second = 0", "topic_requests_per_second: 0.0 is not from 0.1 to 1000.0"),
        ('[observed]\nca = "nowhere.pem"', "observed.ca: nowhere.pem cannot be read: No such file"),
        ('[observed]\nkey = "k"', "observed.certificate: is missing; key is set"),
        ('[observed]\naccess_key_file = "nowhere"', "observed.access_key_file: nowhere cannot be read"),
        ('[history]\ndirectory = ""', "history.directory: '' must not be empty"),
        ("[history]\nretain_days = -1", "history.retain_days: -1 is not from 0 to 36500"),
        ('[monitoring]\nlisten = "here"', "monitoring.listen: 'here'"),
        ('[process]\nloop = "none"', "process.loop: 'none' is none of uvloop, asyncio"),
        (
            "[guard]",
            "[guard]: no such section; there are observed, history, server, monitoring, tls, access, process, log",
        ),
    ],
)
def test_errors_name_setting_and_value(tmp_path: Path, text: str, problem: str) -> None:
    assert problem in problems(tmp_path, text)


def test_the_secret_of_an_account_is_in_no_error(tmp_path: Path) -> None:
    (tmp_path / "account").write_text("accessKey: ops\nhunter2\n")
    found = problems(tmp_path, f"[observed]\naccess_key_file = '{tmp_path / 'account'}'")
    assert "observed.access_key_file: line 2 of" in found
    assert "hunter2" not in found


def test_a_recorder_gets_folder_and_limits() -> None:
    config = load(None, {"OBSERVE_HISTORY__RETAIN_DAYS": "7", "OBSERVE_HISTORY__DIRECTORY": "d"})
    assert config.history.as_history == HistoryConfig(directory="d", retain_days=7)


def test_config_check_and_print(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "print"]) == 0
    file = tmp_path / "observe.toml"
    file.write_text(capsys.readouterr().out)
    assert main(["config", "check", "--config", str(file)]) == 0
    assert capsys.readouterr().out == f"{file}: ok\n"
    file.write_text("[observed]\npoll_seconds = 0\n")
    assert main(["--config", str(file), "config", "check"]) == 2
    assert f"{file}: observed.poll_seconds: 0.0 is not" in capsys.readouterr().err


def test_a_file_without_a_name_server_does_not_start(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "observe.toml"
    file.write_text("")
    assert main(["--config", str(file)]) == 2
    assert "observed.name_servers: is empty" in capsys.readouterr().err


def test_certs_check_reads_the_files_of_observed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = Authority(tmp_path).issue("own")
    file = tmp_path / "observe.toml"
    file.write_text(f"[observed]\nca = '{files.ca}'\ncertificate = '{files.certificate}'\nkey = '{files.key}'\n")
    assert main(["--config", str(file), "certs", "check", "--output", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)["files"]
    assert {row["setting"] for row in rows} == {"observed.ca", "observed.certificate", "observed.key"}
