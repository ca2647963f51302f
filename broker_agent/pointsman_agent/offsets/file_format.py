"""The form of the file of offsets: JSON in RocketMQ's layout, with a last line that tells whether it is whole.

    {"format": "pointsman-offsets", "version": 1, "offset_table": {
    "orders@billing": {"0": 12, "1": 7}
    }, "moments": {
    "orders@billing": {"begin": 1795348800000},
    "@billing": {"seen": 1795694400000}
    },
    "sha256": "..."}

Moments are milliseconds since the epoch. Agents before them read over that table.

The checksum is of all bytes before the last line. RocketMQ's ``consumerOffset.json`` writes queue ids as bare keys,
which no JSON parser reads; here they are strings.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping

from pointsman_agent.core.offsets import OffsetKey
from pointsman_agent.offsets.store import queue_text, stored_offset

FORMAT = "pointsman-offsets"
VERSION = 1

_HEAD = f'{{"format": "{FORMAT}", "version": {VERSION}, "offset_table": {{\n'
_MOMENTS = '}, "moments": {\n'
_LAST_LINE = '"sha256": "'


class Damaged(Exception):
    """A file that is not what was written; the text says why, without the file's name."""


def encode(table: Mapping[OffsetKey, int]) -> Iterator[bytes]:
    """Give the file in pieces, a line for each topic of each group, so that no single step holds up other threads."""
    offsets: dict[str, list[str]] = {}
    moments: dict[str, list[str]] = {}
    for key, offset in table.items():
        lines = offsets if key.queue_id >= 0 else moments
        lines.setdefault(f"{key.topic}@{key.group}", []).append(f'"{queue_text(key)}": {offset}')
    digest = hashlib.sha256()
    for piece in (_HEAD, *_lines(offsets), _MOMENTS, *_lines(moments), "},\n"):
        data = piece.encode()
        digest.update(data)
        yield data
    yield f'{_LAST_LINE}{digest.hexdigest()}"}}\n'.encode()


def _lines(table: Mapping[str, list[str]]) -> Iterator[str]:
    last = len(table) - 1
    for n, (name, values) in enumerate(table.items()):
        yield f'"{name}": {{{", ".join(values)}}}{"," * (n < last)}\n'


def decode(data: bytes) -> dict[OffsetKey, int]:
    """Read a whole file. Raises Damaged."""
    if not data:
        raise Damaged("is empty")
    body, mark, said = data.rpartition(_LAST_LINE.encode())
    if not mark:
        raise Damaged(f"has no checksum at the end of its {len(data)} bytes")
    if said != f'{hashlib.sha256(body).hexdigest()}"}}\n'.encode():
        raise Damaged("is not what was written: its checksum does not fit")
    # Beyond this point it is what some agent wrote, of this version or another one.
    try:
        content = json.loads(data)
        if (content["format"], content["version"]) != (FORMAT, VERSION):
            raise Damaged(f"has format {content['format']!r} {content['version']!r}, this agent reads {VERSION}")
        return {
            key: offset
            for name, queues in (*content["offset_table"].items(), *content.get("moments", {}).items())
            for key, offset in (_read(name, queue_id, said) for queue_id, said in queues.items())
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Damaged(f"has a layout of its own: {type(error).__name__}: {error}") from error


def _read(name: str, queue_id: str, offset: object) -> tuple[OffsetKey, int]:
    topic, _, group = name.partition("@")
    read = stored_offset(group, topic, queue_id, str(offset)) if isinstance(offset, int) else None
    if read is None:
        raise Damaged(f"holds an offset that cannot be: {name!r}, queue {queue_id!r}: {offset!r}")
    return read
