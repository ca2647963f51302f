"""The file of a broadcasting consumer's offsets: its name, its form, and how it is read and replaced. Blocks.

RocketMQ's ``LocalFileOffsetStore`` keeps one for each client id and group, too.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import quote

from pointsman.wire.names import MAX_QUEUES, name_problem
from pointsman.wire.offsets import MAX_OFFSET
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.folder_sync import sync_folder

FORMAT = "pointsman-client-offsets"
VERSION = 1
MAX_FILE_BYTES = 64 * 1024 * 1024
"""More is no file of offsets, and is not read into memory to find that out."""
MAX_NAME_BYTES = 200

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class DamagedOffsetsError(Exception):
    """A file that is not what was written; the text says why, without the file's name."""


def offset_file_path(folder: Path, *, group: str, client_id: str) -> Path:
    """Return where the offsets of one group and client are kept below ``folder``."""
    return folder / _safe(client_id) / f"{_safe(group)}.json"


@dataclass(frozen=True, slots=True)
class FileContent:
    """What a file holds."""

    offsets: Mapping[MessageQueue, int]
    begins: Mapping[str, datetime]
    """When each topic was first consumed, to the millisecond."""


def encode(content: FileContent) -> bytes:
    """Write offsets and begins as JSON, sorted, a line each."""
    rows = ",\n".join(
        json.dumps([queue.topic, queue.cluster, queue.broker_name, queue.queue_id, offset])
        for queue, offset in sorted(content.offsets.items())
    )
    begins = ",\n".join(json.dumps([topic, _to_millis(moment)]) for topic, moment in sorted(content.begins.items()))
    head = f'{{"format": "{FORMAT}", "version": {VERSION}, "offsets": [\n{rows}\n], "begins": [\n{begins}\n]}}\n'
    return head.encode()


def decode(data: bytes) -> FileContent:
    """Read a whole file. Raises DamagedOffsetsError."""
    try:
        content = json.loads(data)
        if (content["format"], content["version"]) != (FORMAT, VERSION):
            raise DamagedOffsetsError(f"has format {content['format']!r} {content['version']!r}, not {VERSION}")
        # A file may be of a build without them.
        begins = dict(map(_read_begin, content.get("begins", [])))
        return FileContent(dict(map(_read_row, content["offsets"])), begins)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise DamagedOffsetsError(f"is no file of offsets: {type(error).__name__}: {error}") from error


def read_file(path: Path) -> FileContent:
    """Read the file; none is one without content. Raises DamagedOffsetsError and OSError."""
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        return FileContent({}, {})
    if len(data) > MAX_FILE_BYTES:
        raise DamagedOffsetsError(f"has more than {MAX_FILE_BYTES} bytes")
    return decode(data)


def write_file(path: Path, content: FileContent) -> None:
    """Replace the file whole: after a crash there is the old one or the new one. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.name}.tmp")
    try:
        with unfinished.open("wb") as stream:
            stream.write(encode(content))
            stream.flush()
            os.fsync(stream.fileno())
        unfinished.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            unfinished.unlink()
        raise
    sync_folder(path.parent)


def set_aside(path: Path) -> Path:
    """Keep a damaged file for whoever wants to look, in place of an earlier one. Raises OSError."""
    aside = path.with_name(f"{path.name}.damaged")
    path.replace(aside)
    return aside


def _read_row(row: object) -> tuple[MessageQueue, int]:
    match row:
        case [str(topic), str(cluster), str(broker_name), int(queue_id), int(offset)] if (
            not any(map(name_problem, (topic, cluster, broker_name)))
            and 0 <= queue_id < MAX_QUEUES
            and 0 <= offset <= MAX_OFFSET
        ):
            return MessageQueue(topic, cluster, broker_name, queue_id), offset
    raise ValueError(f"this cannot be an offset: {row!r:.200}")


def _read_begin(row: object) -> tuple[str, datetime]:
    match row:
        case [str(topic), int(millis)] if name_problem(topic) is None and millis >= 0:
            return topic, EPOCH + timedelta(milliseconds=millis)
    raise ValueError(f"this cannot be the begin of a topic: {row!r:.200}")


def _to_millis(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(milliseconds=1)


def _safe(name: str) -> str:
    """One name in a folder, another one for every other ``name``."""
    # A client id is never . or .., it holds an @.
    quoted = quote(name, safe="@#|")
    if len(quoted) <= MAX_NAME_BYTES:
        return quoted
    return f"{quoted[:MAX_NAME_BYTES]}-{hashlib.sha256(name.encode()).hexdigest()[:16]}"
