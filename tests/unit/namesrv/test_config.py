"""The name server's configuration: its own rules, and all errors together."""

from __future__ import annotations

from pathlib import Path

import pytest

from pointsman.config import ConfigError
from pointsman.daemon.rpc.listeners import GRPCIO, LANE
from pointsman_namesrv.__main__ import main
from pointsman_namesrv.config import (
    HistoryConfig,
    NameServerConfig,
    RemotingConfig,
    RoutesConfig,
    ServerConfig,
    load,
)


def test_what_is_printed_loads_to_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "printed.toml"
    assert main(["config", "print"]) == 0
    file.write_text(capsys.readouterr().out)
    assert load(file, {}) == NameServerConfig()


def test_all_errors_are_listed_together_and_the_command_exits_with_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NAMESRV_LOG__LEVEL", "LOUD")
    file = tmp_path / "bad.toml"
    file.write_text(
        """
        [server]
        listen = "nowhere"
        loop = "tokio"
        colour = "red"
        [monitoring]
        listen = 9877
        [liveness]
        stream_grace_seconds = -1.0
        hand_over_seconds = "long"
        max_expiry_seconds = nan
        [history]
        directory = ""
        [extra]
        """
    )
    assert main(["config", "check", "--config", str(file)]) == 2
    output = capsys.readouterr().err
    for field, value in (
        ("server.listen", "'nowhere'"),
        ("server.loop", "'tokio'"),
        ("server.colour", "no such setting"),
        ("monitoring.listen", "9877"),
        ("liveness.stream_grace_seconds", "-1.0"),
        ("liveness.hand_over_seconds", "'long'"),
        ("liveness.max_expiry_seconds", "nan"),
        ("history.directory", "''"),
        ("[extra]", "no such section"),
        ("log.level", "'LOUD'"),
    ):
        assert any(field in line and value in line for line in output.splitlines()), f"{field} in {output}"


@pytest.mark.parametrize(
    ("toml", "words"),
    [
        (
            '[server]\nlisten = "127.0.0.1:1"\n[monitoring]\nlisten = "127.0.0.1:1"',
            "monitoring.listen: '127.0.0.1:1' is server.listen as well",
        ),
        (
            '[monitoring]\nlisten = "127.0.0.1:1"\n[remoting]\nlisten = "127.0.0.1:1"',
            "remoting.listen: '127.0.0.1:1' is monitoring.listen as well",
        ),
        (
            '[server]\nlisten = "127.0.0.1:1"\nlistener = "grpcio"\n[remoting]\nlisten = "127.0.0.1:1"',
            "remoting.listen: '127.0.0.1:1' is server.listen as well: both on one port need server.listener = 'lane'",
        ),
        (
            '[history]\ndirectory = "data"\n[snapshot]\ndirectory = "./data/"',
            "snapshot.directory: './data/' is history.directory as well",
        ),
    ],
)
def test_a_port_or_a_folder_used_twice_is_an_error(tmp_path: Path, toml: str, words: str) -> None:
    file = tmp_path / "twice.toml"
    file.write_text(toml)
    with pytest.raises(ConfigError) as raised:
        load(file, {})
    assert raised.value.problems == (f"{file}: {words}",)


@pytest.mark.parametrize(("port", "shares"), [(1, True), (0, False)])
def test_the_lane_serves_both_wires_on_one_port_but_not_on_any_free_one(
    tmp_path: Path, port: int, shares: bool
) -> None:
    file = tmp_path / "one.toml"
    listen = f'listen = "127.0.0.1:{port}"'
    file.write_text(f'[server]\n{listen}\nlistener = "lane"\n[remoting]\n{listen}')
    assert load(file, {}).shares_port is shares


def test_any_free_port_twice_and_the_folder_of_what_is_off_are_none(tmp_path: Path) -> None:
    file = tmp_path / "fine.toml"
    file.write_text(
        '[server]\nlisten = "127.0.0.1:0"\n[monitoring]\nlisten = "127.0.0.1:0"\n'
        '[history]\nenabled = false\ndirectory = "data"\n[snapshot]\ndirectory = "data"'
    )
    assert load(file, {}).snapshot.directory == "data"


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


@pytest.mark.parametrize(("listener", "watchers", "topics"), [(LANE, 100_000, 1_000_000), (GRPCIO, 8_000, 400_000)])
def test_a_limit_of_watches_that_is_not_given_depends_on_the_listener(
    listener: str, watchers: int, topics: int
) -> None:
    assert RoutesConfig().on(listener) == RoutesConfig(max_watchers=watchers, max_watched_topics=topics)
    assert RoutesConfig(max_watchers=7).on(listener) == RoutesConfig(max_watchers=7, max_watched_topics=topics)
    assert RoutesConfig(max_watched_topics=7).on(listener) == RoutesConfig(max_watchers=watchers, max_watched_topics=7)


def test_the_connections_of_both_wires_count_as_open_files() -> None:
    server, listen = ServerConfig(max_connections=5), "127.0.0.1:9875"
    assert NameServerConfig(server=server, remoting=RemotingConfig(max_connections=3)).most_connections == 5
    both = NameServerConfig(server=server, remoting=RemotingConfig(listen=listen, max_connections=3))
    assert both.most_connections == 8
