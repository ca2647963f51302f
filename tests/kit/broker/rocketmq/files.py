"""Files as a RocketMQ broker lays them out, replaced in the orders of 4.9, 5.x and develop.

As a program it replaces ``topics.json`` again and again: ``python -m tests.kit.broker.rocketmq.files ORDER FOLDER``.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

ORDERS = ("4.9", "5.x", "develop")
CHUNK = 97
"""Bytes of one write into a file that a reader can already see; real ones are larger, and so are real files."""

FIRST_COUNTER = 10_000
"""Of the writer's versions: all of one width, so that halves of two of them fit together."""

RACE_TOPICS = 40


def topic(name: str, *, attributes: Mapping[str, str] | None = None, **numbers: int) -> dict[str, object]:
    """One entry of 5.x; ``numbers`` are fields as the file names them."""
    defaults: dict[str, object] = {
        "attributes": dict(attributes or {}),
        "order": False,
        "perm": 6,
        "readQueueNums": 8,
        "topicFilterType": "SINGLE_TAG",
        "topicName": name,
        "topicSysFlag": 0,
        "writeQueueNums": 8,
    }
    return defaults | numbers


def topics_json(
    topics: Mapping[str, object], *, counter: int = 3, state_version: int | None = 0, timestamp: int = 1_700_000_000_000
) -> bytes:
    """The file; without a ``state_version`` as 4.9 writes it."""
    version = {"counter": counter, "timestamp": timestamp}
    if state_version is not None:
        version["stateVersion"] = state_version
    whole = {"dataVersion": version, "topicConfigTable": topics}
    return json.dumps(whole, indent="\t", sort_keys=True, separators=(",", ":")).encode()


def topics_path(store: Path) -> Path:
    """Where the file is below storePathRootDir; makes its folder."""
    folder = store / "config"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / "topics.json"


def replacing(order: str, main: Path, content: bytes) -> Iterator[str]:
    """Replace the file as the broker does, one operation per step; each step is named after what was just done."""
    backup = main.with_name("topics.json.bak")
    old = main.read_bytes() if main.exists() else None
    if order == "4.9":
        temporary = main.with_name("topics.json.tmp")
        yield from _in_place(temporary, content, "tmp")
        if old is not None:
            yield from _in_place(backup, old, "bak")
            main.unlink()
            yield "deleted"
        temporary.rename(main)
        yield "renamed"
    elif order == "5.x":
        if old is not None:
            yield from _in_place(backup, old, "bak")
        yield from _in_place(main, content, "main")
    elif order == "develop":
        if old is not None:
            main.rename(backup)
            yield "renamed to bak"
        yield from _in_place(main, content, "main")
    else:
        raise ValueError(order)


def replace_file(order: str, main: Path, content: bytes) -> None:
    """Do all steps of one replacement."""
    for _ in replacing(order, main, content):
        pass


def race_content(counter: int) -> bytes:
    """A version whose number is in every topic."""
    names = [f"topic-{number:03d}" for number in range(RACE_TOPICS)]
    return topics_json({name: topic(name, readQueueNums=counter) for name in names}, counter=counter)


def _in_place(path: Path, content: bytes, name: str) -> Iterator[str]:
    with path.open("wb", buffering=0) as file:
        yield f"{name} truncated"
        for start in range(0, len(content), CHUNK):
            file.write(content[start : start + CHUNK])
            yield f"{name} has {start + CHUNK} bytes"


def _race(order: str, main: Path) -> None:
    """Write new versions until the parent closes stdin; mostly without a pause, sometimes with one."""
    os.set_blocking(sys.stdin.fileno(), False)
    counter = FIRST_COUNTER
    while sys.stdin.buffer.read(1) is None:
        replace_file(order, main, race_content(counter))
        counter += 1
        time.sleep(0.0 if counter % 5 else 0.002)


if __name__ == "__main__":
    _race(sys.argv[1], topics_path(Path(sys.argv[2])))
