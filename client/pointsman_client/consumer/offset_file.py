"""The file of a broadcasting consumer's offsets: its name, its form, and how it is read and replaced. Blocks.

RocketMQ's ``LocalFileOffsetStore`` keeps one for each client id and group, too.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

from pointsman.wire.names import MAX_QUEUES, name_problem
from pointsman.wire.offsets import MAX_OFFSET
from pointsman_client.folder_sync import sync_folder
from pointsman_client.message_queue import MessageQueue

FORMAT = "pointsman-client-offsets"
VERSION = 1
MAX_FILE_BYTES = 64 * 1024 * 1024
"""More is no file of offsets, and is not read into memory to find that out."""
MAX_NAME_BYTES = 200


class DamagedOffsetsError(Exception):
    """A file that is not what was written; the text says why, without the file's name."""


def offset_file_path(folder: Path, *, group: str, client_id: str) -> Path:
    """Return where the offsets of one group and client are kept below ``folder``."""
    return folder / _safe(client_id) / f"{_safe(group)}.json"


def encode(offsets: Mapping[MessageQueue, int]) -> bytes:
    """Write offsets as JSON, sorted, a line each."""
    rows = ",\n".join(
        json.dumps([queue.topic, queue.cluster, queue.broker_name, queue.queue_id, offset])
        for queue, offset in sorted(offsets.items())
    )
    return f'{{"format": "{FORMAT}", "version": {VERSION}, "offsets": [\n{rows}\n]}}\n'.encode()


def decode(data: bytes) -> dict[MessageQueue, int]:
    """Read a whole file. Raises DamagedOffsetsError."""
    try:
        content = json.loads(data)
        if (content["format"], content["version"]) != (FORMAT, VERSION):
            raise DamagedOffsetsError(f"has format {content['format']!r} {content['version']!r}, not {VERSION}")
        return dict(map(_read_row, content["offsets"]))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DamagedOffsetsError(f"is no file of offsets: {type(error).__name__}: {error}") from error


def read_file(path: Path) -> dict[MessageQueue, int]:
    """Read the file; none is one without offsets. Raises DamagedOffsetsError and OSError."""
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        return {}
    if len(data) > MAX_FILE_BYTES:
        raise DamagedOffsetsError(f"has more than {MAX_FILE_BYTES} bytes")
    return decode(data)


def write_file(path: Path, offsets: Mapping[MessageQueue, int]) -> None:
    """Replace the file whole: after a crash there is the old one or the new one. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.name}.tmp")
    try:
        with unfinished.open("wb") as stream:
            stream.write(encode(offsets))
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


def _safe(name: str) -> str:
    """One name in a folder, another one for every other ``name``."""
    # A client id is never . or .., it holds an @.
    quoted = quote(name, safe="@#|")
    if len(quoted) <= MAX_NAME_BYTES:
        return quoted
    return f"{quoted[:MAX_NAME_BYTES]}-{hashlib.sha256(name.encode()).hexdigest()[:16]}"
