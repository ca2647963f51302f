"""An index beside each closed history file: what is in which block of it, and a copy of its rows about states.

Questions about the past use it to leave out what they do not need. It may be deleted at any time: a file without an
index, or with one of another size or version, is read as a whole, and indexed again when the worker has time. The copy
is for questions about all brokers: nearly every block has a state of one of them, between hundreds of other rows.
"""

from __future__ import annotations

import contextlib
import gzip
import itertools
import json
import os
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

from pointsman.history.row_format import Row, detail_of, moment_of
from pointsman.history.topic_selection import ObserverRows, joined
from pointsman_namesrv.history.past_lines import NOT_INDEXED, STATELESS, Block, Line, read_line, texts_of

VERSION = 2
WHOLE_FILE = -1
MAX_TOPICS = 50_000
"""Topics of one file that are indexed, about 10 MB; of more, all TOPICS rows are read for a question about one."""


@dataclass(slots=True)
class RunRows:
    """The rows of one run in a file, or in one block of it."""

    boot_id: str
    block: int
    """Its number; `WHOLE_FILE` of all together."""
    rows: int
    first_us: int
    last_us: int
    """Least and greatest time, microseconds since 1970."""
    first_seq: int
    last_seq: int
    first_seq_us: int
    """Time of the row with the least number."""

    def observer(self, node: str, days: frozenset[date], at_us: int) -> ObserverRows | None:
        """Return the counts for a moment; None if it lies between these rows."""
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
    """What one file has of one node: the numbers of the blocks with rows of each broker name, topic and kind of event.

    ``groups`` has rows of no cluster under ``""``, those about a complete cluster under the broker name ``""``.
    ``changes``: blocks with changes by operators.
    """

    size: int
    blocks: list[Block] = field(default_factory=list)
    runs: list[RunRows] = field(default_factory=list)
    """Of the file, and ..."""
    parts: list[list[Any]] = field(default_factory=list)
    """... of each block, as the fields of `RunRows`."""
    has_repeats: bool = False
    """Whether a number may be in two blocks: after an error of the disk."""
    days: frozenset[date] = frozenset()
    groups: dict[str, dict[str, list[int]]] = field(default_factory=dict)
    topics: dict[str, list[int]] | None = field(default_factory=dict)
    """None: there are more than `MAX_TOPICS`."""
    kinds: dict[str, list[int]] = field(default_factory=dict)
    changes: list[int] = field(default_factory=list)
    states_bytes: int = 0
    """Size of the copy of the rows about states; 0: it has none."""

    def observers(self, node: str, at_us: int) -> tuple[list[ObserverRows], list[RunRows]]:
        """Count the rows of each run for a moment; return also the blocks of runs that must be read for it."""
        found: list[ObserverRows] = []
        unknown: list[RunRows] = []
        for run in self.runs:
            whole = run.observer(node, self.days, at_us)
            parts = [RunRows(*part) for part in self.parts if part[0] == run.boot_id] if whole is None else []
            counts = [part.observer(node, self.days, at_us) for part in parts]
            found += joined(each for each in (whole, *counts) if each is not None)
            unknown += [part for part, count in zip(parts, counts, strict=True) if count is None]
        return found, unknown

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

    def of_topic(self, topic: str) -> list[Block]:
        """Return the blocks that may set or remove a topic."""
        return self.chosen(self.kinds.get("TOPICS", ()) if self.topics is None else self.topics.get(topic, ()))

    def of_kinds(self, is_asked_for: Callable[[str], bool], *, cluster: str | None) -> list[Block]:
        """Return the blocks with events of these kinds and, if it is given, of a cluster."""
        found = self._of_kinds(is_asked_for)
        if cluster is not None:
            found &= {number for numbers in self.groups.get(cluster, {}).values() for number in numbers}
        return self.chosen(found)

    def of_run(self, boot_id: str, is_asked_for: Callable[[str], bool], *, until_us: int) -> list[Block]:
        """Return the blocks with events of these kinds that have rows of a run up to a moment."""
        begun = {part.block for part in self._parts() if part.boot_id == boot_id and part.first_us <= until_us}
        return self.chosen(begun & self._of_kinds(is_asked_for))

    def spans(self) -> dict[Block, tuple[int, int]]:
        """Return the least and the greatest time of each block with rows, microseconds since 1970."""
        found: dict[Block, tuple[int, int]] = {}
        for part in self._parts():
            block = self.blocks[part.block]
            first, last = found.get(block, (part.first_us, part.last_us))
            found[block] = min(first, part.first_us), max(last, part.last_us)
        return found

    def _of_kinds(self, is_asked_for: Callable[[str], bool]) -> set[int]:
        return {number for kind, numbers in self.kinds.items() if is_asked_for(kind) for number in numbers}

    def _parts(self) -> Iterator[RunRows]:
        return (RunRows(*part) for part in self.parts)


def write(file: Path, node: str, *, index: Path, states: Path) -> FileIndex:
    """Read a file, write its index and the copy of its rows about states, and return the index. Raises OSError."""
    states.parent.mkdir(parents=True, exist_ok=True)
    with _written(states) as partial:
        with gzip.open(partial, "wb", compresslevel=6) as copy:
            found = build(file, node, keep=lambda line: copy.write(line.text + b"\n"))
        found.states_bytes = partial.stat().st_size
    save(found, index)
    return found


def build(path: Path, node: str, *, keep: Callable[[Line], object] = lambda _: None) -> FileIndex:
    """Read a file and return its index; ``keep`` takes each row about states. Raises OSError."""
    size = path.stat().st_size
    begins: list[int] = []
    runs: dict[tuple[str, int], RunRows] = {}
    parts: dict[tuple[str, int], RunRows] = {}
    counted: set[tuple[int, str, int]] = set()
    days: set[date] = set()
    groups: dict[tuple[str, str], dict[int, None]] = defaultdict(dict)
    topics: dict[str, list[int]] | None = {}
    kinds: dict[str, dict[int, None]] = defaultdict(dict)
    changes: dict[int, None] = {}
    for begin, text in texts_of(path):
        if not begins or begins[-1] != begin:
            begins.append(begin)
        line = read_line(text)
        if line is None or line.node != node:
            continue
        number = len(begins) - 1
        if (number, line.boot_id, line.seq) not in counted:
            counted.add((number, line.boot_id, line.seq))
            _count(parts, number, line)
            _count(runs, WHOLE_FILE, line)
        days.add(moment_of(line.at_us).date())
        if line.event in NOT_INDEXED:
            continue
        if line.event not in STATELESS:
            keep(line)
        groups[line.cluster or "", line.broker_name or ""][number] = None
        kinds[line.event][number] = None
        if line.may_have_author:
            changes[number] = None
        if line.event == "TOPICS" and topics is not None:
            for topic in topics_in(line.row()):
                numbers = topics.setdefault(topic, [])
                if number not in numbers[-1:]:
                    numbers.append(number)
            topics = topics if len(topics) <= MAX_TOPICS else None
    ends = [*begins[1:], size]
    found = FileIndex(size, [Block(begin, end - begin) for begin, end in zip(begins, ends, strict=True)])
    found.runs, found.days, found.changes = list(runs.values()), frozenset(days), list(changes)
    found.parts = [[getattr(part, name) for name in RunRows.__slots__] for part in parts.values()]
    found.has_repeats = any(
        overlap((part.first_seq, part.last_seq) for part in parts.values() if part.boot_id == run.boot_id)
        for run in found.runs
    )
    for (cluster, name), of_group in groups.items():
        found.groups.setdefault(cluster, {})[name] = list(of_group)
    found.kinds = {kind: list(of_kind) for kind, of_kind in kinds.items()}
    found.topics = topics
    return found


def topics_in(row: Row | None) -> set[str]:
    """Return the topics that a TOPICS row sets or removes."""
    detail = {} if row is None else detail_of(row)
    named, removed = detail.get("topics"), detail.get("removed")
    found = {topic for topic, queues in named.items() if isinstance(queues, list)} if isinstance(named, dict) else set()
    return found | {topic for topic in removed if isinstance(topic, str)} if isinstance(removed, list) else found


def overlap(ranges: Iterable[tuple[int, int]]) -> bool:
    """Return whether a number is in two of the ranges."""
    return any(first <= last for (_, last), (first, _) in itertools.pairwise(sorted(ranges)))


def _count(runs: dict[tuple[str, int], RunRows], block: int, line: Line) -> None:
    run = runs.get((line.boot_id, block))
    if run is None:
        runs[line.boot_id, block] = RunRows(
            line.boot_id, block, 1, line.at_us, line.at_us, line.seq, line.seq, first_seq_us=line.at_us
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
        "parts": index.parts,
        "has_repeats": index.has_repeats,
        "days": sorted(day.isoformat() for day in index.days),
        "groups": index.groups,
        "topics": index.topics,
        "kinds": index.kinds,
        "changes": index.changes,
        "states_bytes": index.states_bytes,
    }
    to.parent.mkdir(parents=True, exist_ok=True)
    with _written(to) as partial:
        partial.write_text(json.dumps(document, separators=(",", ":"), ensure_ascii=False), encoding="utf-8")


@contextlib.contextmanager
def _written(to: Path) -> Iterator[Path]:
    """Yield the path under which a file is written until it is complete."""
    partial = to.with_name(f".{to.name}.{os.getpid()}")
    try:
        yield partial
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
            document["parts"],
            document["has_repeats"],
            frozenset(map(date.fromisoformat, document["days"])),
            document["groups"],
            document["topics"],
            document["kinds"],
            document["changes"],
            document["states_bytes"],
        )
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None
