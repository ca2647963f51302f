"""SIGHUP at the name server: settings applied, settings that are only reported, and invalid files."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pointsman.daemon.process import logs
from pointsman_namesrv.config import NameServerConfig, load
from pointsman_namesrv.reload import Reloader


@pytest.fixture(autouse=True)
def level() -> Iterator[None]:
    root, grpc = logging.getLogger(), logging.getLogger("grpc._cython")
    before = root.level, grpc.level
    yield
    root.setLevel(before[0])
    grpc.setLevel(before[1])


def reloader(file: Path, environment: dict[str, str] | None = None) -> Reloader[NameServerConfig]:
    def read() -> Any:
        return load(file, environment or {})

    return Reloader(read(), read)


def test_the_log_level_applies(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "namesrv.toml"
    file.write_text("")
    running = reloader(file)
    for text, level in (('level = "DEBUG"', logging.DEBUG), ('level = "ERROR"', logging.ERROR), ("", logging.INFO)):
        file.write_text(f"[log]\n{text}\n")
        running.reload()
        assert logging.getLogger().level == level
    assert caplog.messages == ["configuration reloaded"] * 2  # At ERROR it is not written.


def test_the_log_format_applies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "namesrv.toml"
    file.write_text("")
    running = reloader(file)
    handlers = logging.getLogger().handlers
    before = handlers[:]
    logs.configure("INFO", "json")
    try:
        file.write_text('[log]\nformat = "text"\n')
        running.reload()
        logs.flush()
    finally:
        handlers[:] = before
    assert "INFO    configuration reloaded  log_level=INFO" in capsys.readouterr().err


def test_settings_that_need_a_restart_are_named_each_time_and_not_applied(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "namesrv.toml"
    file.write_text("")
    running = reloader(file)
    file.write_text('[log]\nlevel = "DEBUG"\n[server]\nwarm_up_seconds = 7.0\n[guard]\nshare = 0.7\n')
    for _ in range(2):
        running.reload()
    assert [record.getMessage() for record in caplog.records] == [
        "configuration reloaded; other changes need a restart"
    ] * 2
    assert vars(caplog.records[-1])["facts"] == {
        "log_level": "DEBUG", "settings": ["guard.share", "server.warm_up_seconds"],
    }  # fmt: skip


@pytest.mark.parametrize("text", ["[log]\nlevel = 3\n[server]\nloop = 'none'\n", "[log", None])
def test_a_file_with_errors_is_logged_with_all_of_them_and_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str | None
) -> None:
    file = tmp_path / "namesrv.toml"
    file.write_text('[log]\nlevel = "WARNING"\n')
    running = reloader(file)
    logging.getLogger().setLevel(logging.WARNING)
    if text is None:
        file.unlink()
    else:
        file.write_text(text)
    running.reload()
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert len(vars(record)["facts"]["problems"]) == (2 if text is not None and "server" in text else 1)
    assert logging.getLogger().level == logging.WARNING


def test_the_environment_of_the_start_stays_above_the_file(tmp_path: Path) -> None:
    file = tmp_path / "namesrv.toml"
    file.write_text("")
    running = reloader(file, {"NAMESRV_LOG__LEVEL": "WARNING"})
    file.write_text('[log]\nlevel = "DEBUG"\n')
    running.reload()
    assert logging.getLogger().level == logging.WARNING
