"""The worker process that answers questions about the past: one at a time, from standard input to standard output.

``python -m pointsman_namesrv.history.past_worker DIRECTORY NODE MEMORY_BYTES [NODE...]``. A message is four bytes of
length, big-endian, and a JSON object. A question is one; a reply is its head, and one for each item of its list, so
that the name server's loop reads no long message. While no question waits the worker indexes closed files. It ends
when its input ends, which is when the name server ends, however that ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pointsman.clock import SystemClock
from pointsman_namesrv.history.past_files import PastFiles, TooManyRows
from pointsman_namesrv.history.past_questions import answer

NICENESS = 19
"""Serving comes first."""
WORK_SECONDS, YIELD_SECONDS = 0.001, 0.0002
"""Within an answer it sleeps shortly again and again: the scheduler would let the server wait up to 3 ms for the core,
whatever the niceness."""
INDEX_PAUSE_SECONDS = 0.2
"""Shortest pause between two files; it is at least as long as the last one took."""
IDLE_SECONDS = 60.0
"""Interval of the search for files to index, once all are."""
_LENGTH_BYTES = 4
REPLICAS = "replicas"
"""Of a page, which has no bound as a message: 10,000 brokers are about 2.5 MB."""
LISTS = ("events", REPLICAS, "brokers")
"""The long list of each answer: the first of these that it has."""
MAX_REPLY_BYTES = 2_500_000
"""So that the answer fits into one gRPC message."""


def main(directory: str, node: str, memory_bytes: int, *others: str) -> None:
    """Answer until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the name server, which ends this process
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    with contextlib.suppress(OSError):  # a sandbox may forbid it
        os.nice(NICENESS)
    clock, files = SystemClock(), PastFiles(Path(directory), node, *others)
    indexing, pause = files.index_missing(), INDEX_PAUSE_SECONDS
    while True:
        is_asked, _, _ = select.select([0], [], [], pause)
        if not is_asked:
            began = clock.monotonic()
            if _is_continued(indexing):
                pause = max(INDEX_PAUSE_SECONDS, clock.monotonic() - began)
            else:
                indexing, pause = files.index_missing(), IDLE_SECONDS
            continue
        asked = _read()
        if asked is None:
            return
        with _yielding():
            messages = _answered(files, asked)
        for message in messages:
            _write(message)
        pause = INDEX_PAUSE_SECONDS


@contextlib.contextmanager
def _yielding() -> Iterator[None]:
    def give_way(*_: object) -> None:
        time.sleep(YIELD_SECONDS)
        signal.setitimer(signal.ITIMER_REAL, WORK_SECONDS)

    signal.signal(signal.SIGALRM, give_way)
    signal.setitimer(signal.ITIMER_REAL, WORK_SECONDS)
    try:
        yield
    finally:
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
        signal.setitimer(signal.ITIMER_REAL, 0.0)


def _answered(files: PastFiles, asked: bytes) -> list[bytes]:
    """Return the messages of a reply: its head, and each item of its list."""
    try:
        question = json.loads(asked)
        found = answer(files.of(question.get("node", "")), question)
        name = next(name for name in LISTS if name in found)
        items = [json.dumps(item).encode() for item in found.pop(name)]
        reply: dict[str, Any] = {"answer": found, "list": name, "items": len(items)}
        if name != REPLICAS and sum(map(len, items)) > MAX_REPLY_BYTES:
            reply, items = {"too_large": True}, []
    except (TooManyRows, MemoryError):
        reply, items = {"too_large": True}, []
    except Exception as error:  # noqa: BLE001  # the name server logs it
        reply, items = {"failed": f"{type(error).__name__}: {error}"}, []
    return [json.dumps(reply).encode(), *items]


def _is_continued(indexing: Iterator[None]) -> bool:
    """Index one file; return whether there may be more."""
    with contextlib.suppress(OSError, MemoryError):  # again in a minute
        return next(indexing, indexing) is None
    return False


def _read() -> bytes | None:
    head = _exactly(_LENGTH_BYTES)
    return None if head is None else _exactly(int.from_bytes(head, "big"))


def _exactly(count: int) -> bytes | None:
    """Read this number of bytes without reading ahead, so that select() sees what waits; None at the end."""
    found = b""
    while len(found) < count:
        data = os.read(0, count - len(found))
        if not data:
            return None
        found += data
    return found


def _write(message: bytes) -> None:
    rest = memoryview(len(message).to_bytes(_LENGTH_BYTES, "big") + message)
    while rest:
        rest = rest[os.write(1, rest) :]


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), *sys.argv[4:])
