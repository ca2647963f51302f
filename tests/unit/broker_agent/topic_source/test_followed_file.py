"""A file that others rewrite: parsed once for each content, and never half."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pointsman_agent.topic_source import TopicSourceError, followed_file
from pointsman_agent.topic_source.followed_file import FollowedFile, Signature, UnusableFileError, read_whole


class Parser:
    """Records its input; refuses content that begins with ``!``."""

    def __init__(self) -> None:
        self.contents: list[bytes] = []

    def __call__(self, content: bytes) -> str:
        self.contents.append(content)
        if content.startswith(b"!"):
            raise UnusableFileError("is bad")
        return content.decode()


@pytest.fixture
def parser() -> Parser:
    return Parser()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "file"


@pytest.fixture
def file(path: Path, parser: Parser) -> FollowedFile[str]:
    return FollowedFile(path, max_bytes=10, parse=parser)


def test_a_content_is_parsed_once(file: FollowedFile[str], path: Path, parser: Parser) -> None:
    path.write_bytes(b"one")
    assert [file.read() for _ in range(5)] == ["one"] * 5

    path.write_bytes(b"two")
    assert [file.read() for _ in range(5)] == ["two"] * 5
    assert parser.contents == [b"one", b"two"]


def test_content_written_within_the_same_clock_tick_is_noticed(
    file: FollowedFile[str], path: Path, parser: Parser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Signature, "of", lambda facts: Signature(facts.st_dev, facts.st_ino, facts.st_size, 0, 0))
    for content in (b"one", b"two", b"six"):
        path.write_bytes(content)
        assert file.read() == content.decode()
    assert parser.contents == [b"one", b"two", b"six"]


def test_an_unchanged_file_is_read_twice_and_then_only_checked(
    file: FollowedFile[str], path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = 0

    def count(path: Path, *, max_bytes: int) -> object:
        nonlocal reads
        reads += 1
        return read_whole(path, max_bytes=max_bytes)

    monkeypatch.setattr(followed_file, "read_whole", count)
    path.write_bytes(b"one")
    for _ in range(5):
        file.read()

    assert reads == 2


def test_a_renamed_file_is_another_file(file: FollowedFile[str], path: Path) -> None:
    path.write_bytes(b"one")
    assert [file.read() for _ in range(3)] == ["one"] * 3
    other = path.with_name("other")
    other.write_bytes(b"two")
    os.utime(other, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))

    other.rename(path)

    assert file.read() == "two"


def test_a_content_that_is_refused_is_refused_again_without_being_parsed(
    file: FollowedFile[str], path: Path, parser: Parser
) -> None:
    path.write_bytes(b"!")
    for _ in range(3):
        with pytest.raises(UnusableFileError, match="file: is bad"):
            file.read()
    path.write_bytes(b"good")
    assert file.read() == "good"

    assert parser.contents == [b"!", b"good"]


def test_a_missing_file_is_an_error_and_may_return_with_the_same_content(
    file: FollowedFile[str], path: Path, parser: Parser
) -> None:
    with pytest.raises(UnusableFileError, match="is missing"):
        file.read()
    path.write_bytes(b"one")
    assert file.read() == file.read() == "one"
    path.unlink()
    with pytest.raises(UnusableFileError, match="is missing"):
        file.read()
    path.write_bytes(b"one")

    assert file.read() == "one"
    assert parser.contents == [b"one"]


def test_content_that_was_dropped_is_parsed_again(file: FollowedFile[str], path: Path, parser: Parser) -> None:
    path.write_bytes(b"one")
    assert file.read() == file.read() == "one"

    file.forget()

    assert file.read() == "one"
    assert parser.contents == [b"one", b"one"]


def test_a_file_beyond_the_bound_is_not_read_to_its_end(file: FollowedFile[str], path: Path, parser: Parser) -> None:
    path.write_bytes(b"x" * 10)
    assert file.read() == "x" * 10
    os.truncate(path, 2**40)

    with pytest.raises(TopicSourceError, match="has more than 10 bytes") as raised:
        file.read()
    assert not isinstance(raised.value, UnusableFileError)
    assert len(parser.contents) == 1


def test_a_pipe_or_a_folder_is_rejected_and_does_not_block(file: FollowedFile[str], path: Path) -> None:
    os.mkfifo(path)
    with pytest.raises(TopicSourceError, match="is not a regular file"):
        file.read()
    path.unlink()
    path.mkdir()
    with pytest.raises(TopicSourceError, match="is not a regular file"):
        file.read()


def test_a_file_that_cannot_be_opened_does_not_count_as_missing(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"")
    file = FollowedFile(tmp_path / "a" / "file", max_bytes=10, parse=Parser())

    with pytest.raises(TopicSourceError, match="cannot be read: Not a directory") as raised:
        file.read()
    assert not isinstance(raised.value, UnusableFileError)


def test_a_file_that_changes_between_two_reads_is_being_written(
    file: FollowedFile[str], path: Path, parser: Parser, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.write_bytes(b"old")
    lseek = os.lseek
    rewinds = 0

    def rewrite_before_the_second_read(handle: int, position: int, whence: int) -> int:
        nonlocal rewinds
        rewinds += 1
        if rewinds == 2:
            facts = path.stat()
            path.write_bytes(b"new")
            os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))
        return lseek(handle, position, whence)

    monkeypatch.setattr(os, "lseek", rewrite_before_the_second_read)
    with pytest.raises(UnusableFileError, match="is being written"):
        file.read()
    assert parser.contents == []

    assert file.read() == "new"
