"""Logs as JSON, one object per line, and as text for operators."""

from __future__ import annotations

import json
import logging
import os
import pty
import subprocess
import sys
from collections.abc import Iterator

import pytest

from pointsman.daemon.process import logs


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


def test_lines_below_the_level_are_not_written(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("WARNING")

    logging.getLogger("a").info("quiet")
    logging.getLogger("grpc._cython.cygrpc").info("quiet")

    assert lines(capsys) == []


def test_at_debug_the_daemons_lines_are_not_lost_among_those_of_grpc(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("DEBUG")

    logging.getLogger("grpc._cython.cygrpc").debug("Loaded running loop")
    logging.getLogger("a").debug("beat")

    assert [line["message"] for line in lines(capsys)] == ["beat"]


def text_of(message: str, *arguments: object, level: int = logging.INFO, **facts: object) -> str:
    record = logging.LogRecord("a", level, "a.py", 1, message, arguments, None)
    record.created = 1_700_000_000.25
    record.facts = facts
    return logs.TextFormatter(colors=False).format(record)


def test_text_has_time_level_message_and_facts_as_key_value() -> None:
    line = text_of(
        "registered at %s", "ns1", addr="h:1", count=2, ok=True, none=None, empty="", names=["a", "b"], by={"a": 1}
    )

    assert line == (
        "2023-11-14T22:13:20.250Z INFO    registered at ns1  "
        'addr=h:1 count=2 ok=true empty="" names="a, b" by="{\\"a\\": 1}"'
    )


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("two words", '"two words"'),
        ("a=b", '"a=b"'),
        ('the "x"', '"the \\"x\\""'),
        ("C:\\temp dir", '"C:\\\\temp dir"'),
        ("Zürich", "Zürich"),
        ("a\nINFO forged", '"a\\nINFO forged"'),
        ("\x1b[31mred\x1b]0;title\x07", '"\\x1b[31mred\\x1b]0;title\\x07"'),
        ("\x9b2J", '"\\x9b2J"'),
        ("right\u202eleft", '"right\\u202eleft"'),
        ("\udc80", '"\\udc80"'),
    ],
)
def test_a_value_of_a_text_line_cannot_forge_a_line_or_reach_the_terminal(value: str, shown: str) -> None:
    assert text_of("message", fact=value).endswith(f"message  fact={shown}")
    assert text_of("message %s", value).isprintable()
    assert text_of("message", **{value: 1}).isprintable()


def test_a_traceback_is_indented_below_its_text_line(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("INFO", "text")

    error = ValueError("first\n2026-01-01T00:00:00.000Z INFO    forged \x1b[2J")
    logging.getLogger("a").error("history cannot be written", exc_info=error, extra={"facts": {"file": "x"}})
    logs.flush()

    first, *below = capsys.readouterr().err.splitlines()
    assert first.endswith("ERROR   history cannot be written  file=x")
    assert below[0] == "    ValueError: first"
    assert all(line.startswith("    ") and line.isprintable() for line in below)


@pytest.mark.parametrize("format_name", ["json", "text"])
def test_lines_that_do_not_fit_are_counted_in_either_format(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, format_name: str
) -> None:
    monkeypatch.setattr(logs, "QUEUE_LINES", 4)
    monkeypatch.setattr(logs._LineWriter, "start", lambda _: None)
    logs.configure("INFO", format_name)
    handler = logging.getLogger().handlers[0]
    assert isinstance(handler, logs._LineHandler)

    for number in range(6):
        logging.getLogger("a").info("line %d", number)
    for _ in range(3):
        handler.writer._lines.get_nowait()
    logging.getLogger("a").info("line 6")

    handler.writer._lines.put_nowait(None)
    handler.writer.run()
    _, warning, last = capsys.readouterr().err.splitlines()
    if format_name == "json":
        assert json.loads(warning).keys() == {"at", "level", "logger", "message"}
    assert "WARNING" in warning
    assert "2 log lines dropped" in warning
    assert "line 6" in last


LOG_ONE_LINE = (
    "import logging, sys; from pointsman.daemon.process import logs;"
    "logs.configure('INFO', sys.argv[1]); logging.getLogger('a').warning('disk is full'); logs.flush()"
)


def on_a_terminal(format_name: str, **environment: str) -> str:
    reader, terminal = pty.openpty()
    try:
        subprocess.run(
            [sys.executable, "-c", LOG_ONE_LINE, format_name],
            stderr=terminal,
            env=os.environ | {"TERM": "xterm", "NO_COLOR": ""} | environment,
            check=True,
        )
        return os.read(reader, 10_000).decode()
    finally:
        os.close(reader)
        os.close(terminal)


def test_auto_is_colored_text_on_a_terminal_and_a_format_that_is_set_wins() -> None:
    assert "\x1b[33mWARNING\x1b[0m disk is full" in on_a_terminal("auto")
    assert "WARNING disk is full" in on_a_terminal("auto", NO_COLOR="1")
    assert "WARNING disk is full" in on_a_terminal("auto", TERM="dumb")
    assert json.loads(on_a_terminal("json"))["message"] == "disk is full"


def test_auto_is_json_and_text_is_plain_where_standard_error_is_not_a_terminal() -> None:
    def written(format_name: str) -> str:
        command = [sys.executable, "-c", LOG_ONE_LINE, format_name]
        return subprocess.run(command, capture_output=True, text=True, check=True).stderr

    assert json.loads(written("auto"))["message"] == "disk is full"
    assert written("text").endswith("WARNING disk is full\n")
