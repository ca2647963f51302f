"""The record of what was replayed or imported: messages in a topic beside the dead letters, at the same broker. Pure.

It is where every operator finds it, as durable as the messages themselves. Its topic is the retry topic of a group
that no consumer has, and whose name RocketMQ reserves for its own (``MixAll.CID_RMQ_SYS_PREFIX``): brokers create it
with its first message, also where they create no other topics and groups. An entry is a JSON object:

=========== =====================================================================================================
``format``  1
``run``     the run of a command that wrote it, 32 hexadecimal digits
``by``      its author
``source``  ``queue N`` of the dead-letter topic at this broker, or ``file SHA-256`` of an imported file
``numbers`` offsets, or line numbers from 1 on, that were sent: a list of [first, last]
=========== =====================================================================================================

A run begins with an entry without numbers: where none can be written, nothing is sent. Each further entry is written
after the messages that it names. So a run that is killed has sent at most one batch that is not in the record, which
the next run sends again.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from pointsman.group_topics import retry_topic
from pointsman.names import MAX_NAME_LENGTH
from pointsman_ctl.servers.number_ranges import NumberRange, NumberRanges

FORMAT = 1
GROUP_PREFIX = "CID_RMQ_SYS_POINTSMAN_DLQ_"
MAX_ENTRY_BYTES = 1024 * 1024
DIGEST_LENGTH = 16
MAX_RUN_LENGTH, MAX_SOURCE_LENGTH = 32, 80


@dataclass(frozen=True, slots=True)
class ReplayEntry:
    """What one batch of a run has sent."""

    run: str
    by: str
    source: str
    numbers: tuple[NumberRange, ...]


def record_topic(group: str) -> str:
    """Return the topic of a group's record; a name that is too long for it is cut, with a digest at its end."""
    topic = retry_topic(GROUP_PREFIX + group)
    if len(topic) <= MAX_NAME_LENGTH:
        return topic
    digest = hashlib.sha256(group.encode()).hexdigest()[:DIGEST_LENGTH]
    return f"{topic[: MAX_NAME_LENGTH - DIGEST_LENGTH - 1]}-{digest}"


def of_queue(queue_id: int) -> str:
    """Return the source of dead letters."""
    return f"queue {queue_id}"


def of_file(digest: str) -> str:
    """Return the source of imported lines, by the SHA-256 of their file in hexadecimal digits."""
    return f"file {digest}"


def to_body(entry: ReplayEntry) -> bytes:
    """Return an entry as the body of a message."""
    document = {
        "format": FORMAT,
        "run": entry.run,
        "by": entry.by,
        "source": entry.source,
        "numbers": [[each.first, each.last] for each in entry.numbers],
    }
    return json.dumps(document, separators=(",", ":")).encode()


def read_body(body: bytes) -> ReplayEntry | None:
    """Read an entry; None: it is another message, or of a later format."""
    if len(body) > MAX_ENTRY_BYTES:
        return None
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        return None
    texts = [document.get(name) for name in ("run", "by", "source")]
    numbers = _ranges(document.get("numbers"))
    if numbers is None or not all(isinstance(text, str) for text in texts):
        return None
    run, by, source = map(str, texts)
    if len(run) > MAX_RUN_LENGTH or len(source) > MAX_SOURCE_LENGTH:
        return None
    return ReplayEntry(run, by, source, numbers.ranges)


def _ranges(held: object) -> NumberRanges | None:
    if not isinstance(held, list):
        return None
    found = NumberRanges()
    for each in held:
        if not (isinstance(each, list) and len(each) == 2 and all(type(number) is int for number in each)):
            return None
        try:
            found.add(*each)
        except ValueError:
            return None
    return found
