"""An index beside each closed history file: what is in which block of it.

Questions about the past use it to leave out what they do not need. It may be deleted at any time: a file without an
index, or with one of another size or version, is read as a whole, and indexed again when the worker has time.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

from pointsman.history.row_format import Row, detail_of, moment_of
from pointsman.history.topic_selection import ObserverRows
from pointsman_namesrv.history.past_lines import Block, Line, read_line, texts_of

VERSION = 1
NOT_INDEXED = frozenset({"HEARTBEAT", "HEARTBEATS", "NAMESRV_ALIVE", "QUEUE_STATS"})
"""Nine in ten rows: they are only counted."""


@dataclass(slots=True)
class RunRows:
    """The rows of one run in one file."""

    boot_id: str
    rows: int
    first_us: int
    last_us: int
    """Least and greatest time, microseconds since 1970."""
    first_seq: int
    last_seq: int
    first_seq_us: int
    """Time of the row with the least number."""

    def observer(self, node: str, days: frozenset[date], at_us: int) -> ObserverRows | None:
        """Return the counts for a moment; None if it lies between the rows of this file, which must be read then."""
        if self.first_us <= at_us < self.last_us:
            return None
        is_before = self.last_us <= at_us
        return ObserverRows(
            node,
            self.boot_id,
            days,
            first_us=self.first_us,
            end_us=self.last_us,
            rows=self.rows if is_before else 0,
            last_us=self.last_us if is_before else None,
            first_seq=self.first_seq if is_before else None,
            last_seq=self.last_seq if is_before else None,
            next_us=None if is_before else self.first_seq_us,
            next_seq=None if is_before else self.first_seq,
        )


@dataclass(slots=True)
class FileIndex:
    """What one file has of one node; ``groups`` and ``topics``: numbers of blocks, those of no cluster under ``""``.

    A row about a complete cluster has the broker name ``""``. ``changes``: blocks with changes by operators.
    """

    size: int
    blocks: list[Block] = field(default_factory=list)
    runs: list[RunRows] = field(default_factory=list)
    days: frozenset[date] = frozenset()
    groups: dict[str, dict[str, list[int]]] = field(default_factory=dict)
    topics: dict[str, list[int]] = field(default_factory=dict)
    changes: list[int] = field(default_factory=list)

    def chosen(self, numbers: Iterable[int]) -> list[Block]:
        """Return blocks by their numbers, in the order of the file."""
        return [self.blocks[number] for number in sorted(set(numbers))]

    def of_groups(self, groups: Collection[tuple[str, str]]) -> list[Block]:
        """Return the blocks with rows of these broker names, of their clusters as a whole, and of the node itself."""
        found = [*self.groups.get("", {}).get("", ())]
        for cluster, name in groups:
            of_cluster = self.groups.get(cluster, {})
            found += [*of_cluster.get(name, ()), *of_cluster.get("", ())]
        return self.chosen(found)

    def of_clusters(self, cluster: str | None) -> list[Block]:
        """Return the blocks with rows of a cluster, or with any that are indexed."""
        chosen = self.groups.values() if cluster is None else [self.groups.get(cluster, {})]
        return self.chosen(number for names in chosen for numbers in names.values() for number in numbers)


def build(path: Path, node: str) -> FileIndex:
    """Read a file and return its index. Raises OSError."""
    size = path.stat().st_size
    begins: list[int] = []
    runs: dict[str, RunRows] = {}
    counted: set[tuple[str, int]] = set()
    days: set[date] = set()
    groups: dict[tuple[str, str], dict[int, None]] = defaultdict(dict)
    topics: dict[str, dict[int, None]] = defaultdict(dict)
    changes: dict[int, None] = {}
    for begin, text in texts_of(path):
        if not begins or begins[-1] != begin:
            begins.append(begin)
        line = read_line(text)
        if line is None or line.node != node:
            continue
        if (line.boot_id, line.seq) not in counted:
            counted.add((line.boot_id, line.seq))
            _count(runs, line)
        days.add(moment_of(line.at_us).date())
        if line.event in NOT_INDEXED:
            continue
        number = len(begins) - 1
        groups[line.cluster or "", line.broker_name or ""][number] = None
        if line.may_have_author:
            changes[number] = None
        if line.event == "TOPICS":
            for topic in topics_in(line.row()):
                topics[topic][number] = None
    ends = [*begins[1:], size]
    found = FileIndex(size, [Block(begin, end - begin) for begin, end in zip(begins, ends, strict=True)])
    found.runs, found.days, found.changes = list(runs.values()), frozenset(days), list(changes)
    for (cluster, name), numbers in groups.items():
        found.groups.setdefault(cluster, {})[name] = list(numbers)
    found.topics = {topic: list(numbers) for topic, numbers in topics.items()}
    return found


def topics_in(row: Row | None) -> set[str]:
    """Return the topics that a TOPICS row sets or removes."""
    detail = {} if row is None else detail_of(row)
    named, removed = detail.get("topics"), detail.get("removed")
    found = {topic for topic, queues in named.items() if isinstance(queues, list)} if isinstance(named, dict) else set()
    return found | {topic for topic in removed if isinstance(topic, str)} if isinstance(removed, list) else found


def _count(runs: dict[str, RunRows], line: Line) -> None:
    run = runs.get(line.boot_id)
    if run is None:
        runs[line.boot_id] = RunRows(
            line.boot_id, 1, line.at_us, line.at_us, line.seq, line.seq, first_seq_us=line.at_us
        )
        return
    run.rows += 1
    run.first_us, run.last_us = min(run.first_us, line.at_us), max(run.last_us, line.at_us)
    run.last_seq = max(run.last_seq, line.seq)
    if line.seq < run.first_seq:
        run.first_seq, run.first_seq_us = line.seq, line.at_us


# --- on the disk ----------------------------------------------------------------------------------------------


def save(index: FileIndex, to: Path) -> None:
    """Write an index atomically. Raises OSError."""
    document = {
        "version": VERSION,
        "size": index.size,
        "blocks": [block.offset for block in index.blocks],
        "runs": [[getattr(run, name) for name in RunRows.__slots__] for run in index.runs],
        "days": sorted(day.isoformat() for day in index.days),
        "groups": index.groups,
        "topics": index.topics,
        "changes": index.changes,
    }
    to.parent.mkdir(parents=True, exist_ok=True)
    partial = to.with_name(f".{to.name}.{os.getpid()}")
    try:
        partial.write_text(json.dumps(document, separators=(",", ":"), ensure_ascii=False), encoding="utf-8")
        partial.replace(to)
    except OSError:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise


def load(path: Path, *, size: int) -> FileIndex | None:
    """Read an index of a file of this size; None if there is none that can be used."""
    try:
        document: Any = json.loads(path.read_text(encoding="utf-8"))
        if document["version"] != VERSION or document["size"] != size:
            return None
        begins = document["blocks"]
        ends = [*begins[1:], size]
        return FileIndex(
            size,
            [Block(begin, end - begin) for begin, end in zip(begins, ends, strict=True)],
            [RunRows(*run) for run in document["runs"]],
            frozenset(map(date.fromisoformat, document["days"])),
            document["groups"],
            document["topics"],
            document["changes"],
        )
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None
