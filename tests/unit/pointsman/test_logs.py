"""One JSON object a line."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest

from pointsman.service import logs


@pytest.fixture(autouse=True)
def restored_root_logger() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    grpc_level = logging.getLogger("grpc._cython").level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.getLogger("grpc._cython").setLevel(grpc_level)


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    logs.flush()
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def test_a_line_is_one_object_with_time_level_message_and_facts(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("INFO")

    logging.getLogger("a.b").info("two\nlines of %s", "Zürich", extra={"facts": {"addr": "h:1", "count": 2}})

    (line,) = lines(capsys)
    assert str(line.pop("at")).endswith("Z")
    assert line == {"level": "INFO", "logger": "a.b", "message": "two\nlines of Zürich", "addr": "h:1", "count": 2}


def test_a_failure_carries_its_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("INFO")

    try:
        int("no number")
    except ValueError:
        logging.getLogger("a").exception("failed")

    (line,) = lines(capsys)
    assert "ValueError: invalid literal" in str(line["error"])


def test_what_is_below_the_level_is_not_written(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("WARNING")

    logging.getLogger("a").info("quiet")
    logging.getLogger("grpc._cython.cygrpc").info("quiet")

    assert lines(capsys) == []


def test_at_debug_the_calls_of_grpc_do_not_bury_our_own_lines(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("DEBUG")

    logging.getLogger("grpc._cython.cygrpc").debug("Loaded running loop")
    logging.getLogger("a").debug("beat")

    assert [line["message"] for line in lines(capsys)] == ["beat"]
