"""Writes a fleet's days to disk: a history directory per node, as the name server's own history writes it."""

from __future__ import annotations

import multiprocessing
import random
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pointsman_namesrv.core.events import Event
from pointsman_namesrv.history.history_files import HistoryFiles
from pointsman_namesrv.history.row import Record, row_count, to_lines
from tests.bench.histories.faults import Label, label_line
from tests.bench.histories.fleet import Fleet, brokers_of
from tests.bench.histories.observer import Observer
from tests.bench.histories.truth import Truth

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Written:
    """The result."""

    histories: list[Path]
    """A directory for each node, for ``--history``."""
    rows: int
    bytes: int
    """Of the rows, before they were packed."""
    labels: list[Label]
    labels_file: Path
    """The same, one JSON object per line."""


class NodeHistory:
    """The history of one life of one node, without the thread and the bounded queue that serving needs."""

    def __init__(self, directory: Path, *, node: str, boot_id: str, began_at: datetime) -> None:
        self.directory = directory
        self.rows = 0
        self.bytes = 0
        self._node = node
        self._boot_id = boot_id
        self._began_at = began_at
        self._began = began_at.timestamp()
        self._files = HistoryFiles(directory, node=node, boot_id=boot_id)
        self._files.prepare()

    def write(self, at: float, event: Event) -> None:
        """Write an event that happened ``at`` seconds after the start."""
        event_at = datetime.fromtimestamp(self._began + at, self._began_at.tzinfo)
        rows = row_count(event)
        record = Record(event, event_at, int(at * 1000), self.rows + 1, rows)
        self.rows += rows
        for line in to_lines(record, node=self._node, boot_id=self._boot_id):
            self._files.append(line, event_at=event_at)
            self.bytes += len(line)

    def close(self) -> None:
        self._files.close()
        self._files.release()


def write(fleet: Fleet, folder: Path, *, processes: int = 1, say: Progress = lambda _: None) -> Written:
    """Write the histories of all nodes into ``folder``, and ``labels.jsonl`` next to them.

    Nodes are independent: each is written separately, in one of ``processes`` processes.
    """
    folder.mkdir(parents=True, exist_ok=True)
    numbers = range(1, fleet.nodes + 1)
    if processes == 1:
        done = [_write_node(fleet, folder, number, say) for number in numbers]
    else:
        spawned = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(processes, mp_context=spawned) as pool:
            running = [pool.submit(_write_node, fleet, folder, number, None) for number in numbers]
            done = []
            for future in running:
                done.append(future.result())
                say(f"{len(done)} of {fleet.nodes} nodes: {sum(node.rows for node in done)} rows")
    labels = done[0].labels
    labels_file = folder / "labels.jsonl"
    labels_file.write_text("".join(f"{label_line(label)}\n" for label in labels), encoding="utf-8")
    rows, size = sum(node.rows for node in done), sum(node.bytes for node in done)
    return Written([node.directory for node in done], rows, size, labels, labels_file)


@dataclass(frozen=True, slots=True)
class _Node:
    directory: Path
    rows: int
    bytes: int
    labels: list[Label]


def _write_node(fleet: Fleet, folder: Path, number: int, say: Progress | None) -> _Node:
    # The truth is the same for every node, and a small part of the work.
    brokers = brokers_of(fleet)
    truth = Truth(fleet, brokers)
    history = _history(fleet, folder, number)
    observer = Observer(fleet, brokers, number=number, emit=history.write)
    for day, facts in enumerate(truth.days()):
        observer.live(day, facts)
        if say is not None:
            say(f"node {number} of {fleet.nodes}, day {day + 1} of {fleet.days}: {history.rows} rows")
    history.close()
    return _Node(history.directory, history.rows, history.bytes, truth.labels)


def _history(fleet: Fleet, folder: Path, number: int) -> NodeHistory:
    boot = random.Random(f"{fleet.seed}/boot-{number}").getrandbits(64)
    return NodeHistory(
        folder / f"namesrv-{number}", node=f"namesrv-{number}:9876", boot_id=f"{boot:016x}", began_at=fleet.began_at
    )
