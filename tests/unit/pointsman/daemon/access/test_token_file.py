"""The file of hashed tokens: valid lines, and the errors for invalid ones."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from pointsman.daemon.access.token_file import (
    add_line,
    is_token,
    new_token,
    read_token_file,
    token_digest,
    token_file_warning,
)
from pointsman.daemon.entry_file import MAX_FILE_BYTES, MAX_SHOWN_PROBLEMS, EntryFileError
from pointsman.daemon.process.daemon_command import Daemon
from pointsman_agent.__main__ import DAEMON as AGENT
from pointsman_namesrv.__main__ import DAEMON as NAME_SERVER

HASH = f"sha256:{'0a' * 32}"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tokens"


def problems_of(path: Path, content: bytes | str) -> list[str]:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(EntryFileError) as caught:
        read_token_file(path)
    return [problem.removeprefix(f"{path}: ") for problem in caught.value.problems]


def test_a_new_token_has_256_random_bits_and_is_in_the_line_as_its_hash_alone(path: Path) -> None:
    made, other = new_token("ops"), new_token("ops")
    path.write_text(f"# people\n\n{made.line}\n\t{other.line}  \r\n", encoding="utf-8")
    assert re.fullmatch(r"[A-Za-z0-9_-]{43}", made.token)
    assert made.token != other.token
    assert made.token not in made.line
    assert is_token(made.token)
    assert read_token_file(path) == {token_digest(made.token): "ops", token_digest(other.token): "ops"}


def test_a_file_of_comments_has_no_tokens_and_is_valid(path: Path) -> None:
    path.write_text("# none\n", encoding="utf-8")
    assert read_token_file(path) == {}


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("ops", "has 1 words, must have two"),
        (f"ops {HASH} admin", "has 3 words, must have two"),
        (f"-ops {HASH}", "the name '-ops' must have 1 to 128 letters"),
        (f"öps {HASH}", "the name '\\xf6ps' must have"),
        (f"{'x' * 129} {HASH}", "must have 1 to 128"),
        (f"ops {HASH[:-1]}", "of 'ops' must have sha256: and 64 digits"),
        (f"ops {HASH}0", "of 'ops' must have sha256: and 64 digits"),
        (f"ops {HASH.replace('a', 'A')}", "of 'ops' must have sha256: and 64 digits"),
        (f"ops SHA256{HASH[6:]}", "of 'ops' must have sha256: and 64 digits"),
        (f"ops sha256: {HASH[7:]}", "has 3 words"),
    ],
)
def test_an_invalid_line_is_reported_with_the_problem(path: Path, line: str, problem: str) -> None:
    [found] = problems_of(path, f"# one\n{line}\n")
    assert found.startswith("line 2: ")
    assert problem in found


def test_a_token_that_was_pasted_in_place_of_its_hash_is_not_shown(path: Path) -> None:
    token = new_token("ops").token
    [found] = problems_of(path, f"ops {token}\n")
    assert token not in found


def test_one_token_for_two_names_is_an_error(path: Path) -> None:
    assert problems_of(path, f"a {HASH}\nb {HASH}\n") == [
        "line 2: token 'b' is equal to 'a'; each name needs its own token"
    ]


def test_of_many_errors_the_first_are_named(path: Path) -> None:
    found = problems_of(path, "x\n" * 1_000)
    assert len(found) == MAX_SHOWN_PROBLEMS + 1
    assert found[-1] == "and 980 more problems"


def test_bytes_that_are_not_text_of_a_sensible_size_are_refused(path: Path) -> None:
    assert problems_of(path, b"\xff\n") == ["is not UTF-8 text (byte 0)"]
    assert problems_of(path, b"#" * (MAX_FILE_BYTES + 1)) == [f"has more than {MAX_FILE_BYTES} bytes"]
    assert problems_of(path, b"") == ["is empty; a file without tokens needs a comment line (#)"]


def test_a_missing_file_and_one_that_would_block_are_refused(path: Path) -> None:
    with pytest.raises(EntryFileError, match="cannot be read: No such file"):
        read_token_file(path)
    os.mkfifo(path)
    with pytest.raises(EntryFileError, match="is not a regular file"):
        read_token_file(path)


@pytest.mark.parametrize(("mode", "message"), [(0o640, ""), (0o644, "can read it"), (0o646, "can write it")])
def test_a_file_that_others_can_read_is_worth_a_warning(path: Path, mode: int, message: str) -> None:
    path.touch()
    path.chmod(mode)
    warning = token_file_warning(path)
    assert message in warning if warning is not None else not message


def test_a_line_is_appended_and_the_mode_stays(path: Path) -> None:
    add_line(path, f"a {HASH}")
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_text("# by hand, without an end of line", encoding="utf-8")
    path.chmod(0o640)
    made = new_token("b")
    add_line(path, made.line)
    assert path.read_text(encoding="utf-8") == f"# by hand, without an end of line\n{made.line}\n"
    assert path.stat().st_mode & 0o777 == 0o640
    assert sorted(path.parent.iterdir()) == [path]


def test_nothing_is_added_to_an_invalid_file(path: Path) -> None:
    path.write_text("ops\n", encoding="utf-8")
    with pytest.raises(EntryFileError, match="line 1"):
        add_line(path, f"a {HASH}")
    assert path.read_text(encoding="utf-8") == "ops\n"


@pytest.mark.parametrize(
    "text",
    ["", "short", "x" * 513, "x" * 20 + " ", " " + "x" * 20, "x" * 10 + "\n" + "x" * 10, "ö" * 20, "x" * 20 + "\x00"],
)
def test_characters_that_a_header_cannot_have_are_not_in_a_token(text: str) -> None:
    assert not is_token(text)


@pytest.mark.parametrize("daemon", [NAME_SERVER, AGENT], ids=["namesrv", "agent"])
def test_the_command_prints_the_token_once_and_its_line(daemon: Daemon[Any], path: Path) -> None:
    result = CliRunner().invoke(daemon.command(), ["token", "ops"])
    token, line = re.findall(r": +(\S.*)", result.output)
    path.write_text(line, encoding="utf-8")
    assert read_token_file(path) == {token_digest(token): "ops"}


def test_the_command_adds_the_line_and_prints_the_token_alone(path: Path) -> None:
    result = CliRunner().invoke(NAME_SERVER.command(), ["token", "ops", "--add-to", str(path)])
    assert read_token_file(path) == {token_digest(result.output.strip()): "ops"}


def test_the_command_names_a_bad_name() -> None:
    assert "must have 1 to 128 letters" in CliRunner().invoke(NAME_SERVER.command(), ["token", "o ps"]).output
