"""Content of history files: read by piece and by block, and lines parsed only as far as is needed."""

from __future__ import annotations

import contextlib
import re
import zlib
from collections.abc import Generator, Iterator
from datetime import datetime
from pathlib import Path
from typing import BinaryIO, NamedTuple

from pointsman.history.row_format import Row, good_row, microseconds

NOT_INDEXED = frozenset({"HEARTBEAT", "HEARTBEATS", "NAMESRV_ALIVE", "QUEUE_STATS"})
"""Nine in ten rows: they are only counted."""
STATELESS = NOT_INDEXED | {"BROKER_DATA_CHANGED", "KV_CHANGED", "TOPICS"}
"""Rows that no state of a broker or of the name server follows from."""
PIECE_BYTES = 256 * 1024
_GZIP = 31
"""``wbits`` of zlib for a gzip member."""
_MAX_LINE_BYTES = 16 * 1024 * 1024
"""A longer line is none of a name server: the file is read no further."""
_HEAD = re.compile(
    rb'\{"schema_version": 2, "event_at": "([0-9T:.-]+Z)", "uptime_ms": \d+, "event": "([A-Z_]+)", '
    rb'"reason": (?:null|"[^"\\]*"), "node": "([^"\\]+)", "boot_id": "([^"\\]+)", "seq": ([1-9]\d{0,17}), '
    rb'"cluster": (?:null|"([^"\\]*)"), "broker_name": (?:null|"([^"\\]*)"), '
)
"""As a name server begins a line; other lines are parsed as a whole."""
_FREQUENT = re.compile(
    rb'\{"schema_version": 2, "event_at": "[^"]*", "uptime_ms": \d+, "event": "(?:%s)"'
    % "|".join(sorted(NOT_INDEXED)).encode()
)
_BY = b'"by": '
_BROKER_ID = re.compile(rb'"broker_id": (\d{1,18}|null), ')
"""Follows the head."""


class FileDamaged(Exception):
    """A gzip that cannot be read to its end."""


class Line(NamedTuple):
    """A line that is a row of history, and the fields that decide whether it is needed."""

    at_us: int
    """Microseconds since 1970."""
    event: str
    node: str
    boot_id: str
    seq: int
    cluster: str | None
    broker_name: str | None
    text: bytes

    @property
    def may_have_author(self) -> bool:
        """Return whether an operator may have caused it."""
        return _BY in self.text

    @property
    def broker_id(self) -> int | None:
        """Return the id of the replica that it is about; None: it is about none."""
        head = _HEAD.match(self.text)
        found = None if head is None else _BROKER_ID.match(self.text, head.end())
        if found is not None:
            return None if found[1] == b"null" else int(found[1])
        row = self.row()
        return None if row is None else row["broker_id"]

    def row(self) -> Row | None:
        """Parse the line; None if it is not a history row after all."""
        return good_row(self.text.decode("utf-8", "replace"))


class Block(NamedTuple):
    """Consecutive bytes of a file that hold complete lines: a member of a gzip, or all of a file."""

    offset: int
    length: int


def lines_of(path: Path, block: Block | None = None, *, with_frequent: bool = True) -> Iterator[Line]:
    """Yield the rows of a file, or of a block of it. Those before a damage or a torn end are used. Raises OSError.

    ``with_frequent``: whether those of `NOT_INDEXED` are needed; without them a file is read in half the time.
    """
    for _, text in texts_of(path, block):
        if not with_frequent and _FREQUENT.match(text):
            continue
        line = read_line(text)
        if line is not None:
            yield line


def texts_of(path: Path, block: Block | None = None) -> Iterator[tuple[int, bytes]]:
    """Yield each complete line of a file or block, and the offset of the block that holds it.

    A line that begins in one member of a gzip and ends in the next makes one block of both. Raises OSError.
    """
    begin, rest = (block.offset if block else 0), b""
    with contextlib.suppress(FileDamaged):
        for data, end in pieces_of(path, block):
            *texts, rest = (rest + data).split(b"\n")
            for text in texts:
                yield begin, text
            if end is not None and not rest:
                begin = end
            if len(rest) > _MAX_LINE_BYTES:
                return


def pieces_of(path: Path, block: Block | None = None) -> Generator[tuple[bytes, int | None], None, None]:
    """Yield what a file, or a block of it, holds, each piece with the end of its member of a gzip if it ends there.

    Raises OSError, and FileDamaged after what can be read.
    """
    with path.open("rb") as file:
        file.seek(block.offset if block else 0)
        yield from _packed(file, block) if path.suffix == ".gz" else _plain(file)


def read_line(text: bytes) -> Line | None:
    """Return the fields of a line; None if it is not a history row."""
    head = _HEAD.match(text) if text.endswith(b"}") else None
    if head is None:
        row = good_row(text.decode("utf-8", "replace"))
        if row is None:
            return None
        return Line(
            row["at"],
            row["event"],
            row["node"],
            row["boot_id"],
            row["seq"],
            row["cluster"],
            row["broker_name"],
            text,
        )
    at, event, node, boot_id, seq, cluster, broker_name = head.groups()
    try:
        at_us = microseconds(datetime.fromisoformat(at.decode()))
    except ValueError:
        return None
    return Line(
        at_us, event.decode(), node.decode(), boot_id.decode(), int(seq), _text(cluster), _text(broker_name), text
    )


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("utf-8", "replace")


def _plain(file: BinaryIO) -> Iterator[tuple[bytes, int | None]]:
    while data := file.read(PIECE_BYTES):
        yield data, None


def _packed(file: BinaryIO, block: Block | None) -> Iterator[tuple[bytes, int | None]]:
    position, left = block or (0, None)
    unpack, is_whole = zlib.decompressobj(_GZIP), True
    while data := file.read(PIECE_BYTES if left is None else min(PIECE_BYTES, left)):
        position += len(data)
        left = None if left is None else left - len(data)
        while True:
            try:
                out = unpack.decompress(data, PIECE_BYTES)
            except zlib.error as error:
                raise FileDamaged(str(error)) from error
            is_whole = unpack.eof
            if is_whole:
                data = unpack.unused_data
                yield out, position - len(data)
                unpack = zlib.decompressobj(_GZIP)
                if not data:
                    break
                continue
            data = unpack.unconsumed_tail
            if out:
                yield out, None
            if not data and len(out) < PIECE_BYTES:
                break
    if not is_whole:
        raise FileDamaged("it ends within a member")
