"""One node's history files as questions about the past read them: the open file, closed ones, and their index.

Runs in the worker process. A row is in the folder of its day, since a file closes at midnight and when the clock jumps.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import re
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import date
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import NamedTuple

from pointsman.history.row_format import ROUTINE, Row, detail_of
from pointsman.history.topic_selection import ObserverRows, TopicRows, counted, is_of, joined, lean, mentions
from pointsman_namesrv.history import past_index
from pointsman_namesrv.history.folder import (
    HistoryFile,
    day_folder,
    day_folders,
    file_node,
    files_of,
    index_folder,
    index_path,
    states_path,
)
from pointsman_namesrv.history.past_index import FileIndex, overlap
from pointsman_namesrv.history.past_lines import STATELESS, Block, Line, lines_of

MAX_ROWS = 50_000
"""Rows that one question may hold in memory; each takes about 1.5 kB."""
MAX_TOPIC_BYTES = 16 * 1024 * 1024
"""Rows with topics of one broker name that a question may hold in memory."""
MAX_CACHED, MAX_CACHED_BYTES = 64, 64 * 1024
"""Indexes that stay in memory, and their size on the disk: those of two days, except the first file of each."""
MAX_READS = 3
"""Attempts to read files that are compressed in the meantime."""

Blocks = Callable[[FileIndex], Iterable[Block]]
"""The blocks of an indexed file that a question needs."""
See = Callable[[Line], None]
"""Takes a line; each may come several times."""
Group = tuple[str, str]
"""A cluster and a broker name."""
Place = tuple[int, str, int]
"""Where a row is in the order of a day: the begin of its run on that day, its boot_id, its number."""
Topics = dict[str, tuple[int, ...]]
"""Read queues, write queues and permission of each."""
Replica = tuple[str | None, str | None, int]
"""Cluster, broker name and broker id."""
_OWNER = re.compile(rb'"owner": ("(?:[^"\\]|\\.)*")')
"""In a text of a row the quotation marks would be escaped."""
FIRST_PLACE: Place = (0, "", 0)
EVER_US = 2**62
"""A moment after every row."""


LAST_PLACE: Place = (EVER_US, "", 0)


class Surroundings(NamedTuple):
    """Where a replica is, and whose; empty: unknown."""

    zone: str
    owner: str


class TooManyRows(Exception):
    """A question needs more rows than `MAX_ROWS`."""


class PastFiles:
    """The files of one node, or of several, below ``directory`` (the folder with ``raw``)."""

    def __init__(self, directory: Path, *nodes: str) -> None:
        self._nodes = frozenset(nodes)
        self._raw = directory / "raw"
        self._by_file = {file_node(node): node for node in nodes}
        self._cached: OrderedDict[tuple[Path, int], FileIndex] = OrderedDict()
        self._of_one = {node: PastFiles(directory, node) for node in nodes} if len(nodes) > 1 else {}

    def of(self, node: str) -> PastFiles:
        """Return the files of one of several nodes; an empty name: of all."""
        return self._of_one.get(node, self)

    # --- files ------------------------------------------------------------------------------------------------

    def days(self) -> list[date]:
        """Return the days with a folder, the oldest first."""
        try:
            return [day for day, _ in day_folders(self._raw)]
        except OSError:
            return []

    def _files(self, day: date) -> list[HistoryFile]:
        return [file for file in files_of(day, day_folder(self._raw, day)) if file.node in self._by_file]

    def has_closed(self) -> bool:
        """Return whether there is a file that can be indexed."""
        return any(file.packed for day in reversed(self.days()) for file in self._files(day))

    def _index(self, file: HistoryFile) -> FileIndex | None:
        """Return the index of a closed file, built if it has none; None for a file that is written or not packed."""
        if not file.packed:
            return None
        key = (file.path, file.size)
        if key in self._cached:
            self._cached.move_to_end(key)
            return self._cached[key]
        path = index_path(self._raw, file)
        found = past_index.load(path, size=file.size)
        if found is None:
            try:
                found = self._write_index(file)
            except OSError:  # a question can be answered without it
                found = past_index.build(file.path, self._by_file[file.node])
        with contextlib.suppress(OSError):
            if path.stat().st_size <= MAX_CACHED_BYTES:
                self._cached[key] = found
        if len(self._cached) > MAX_CACHED:
            self._cached.popitem(last=False)
        return found

    def _write_index(self, file: HistoryFile) -> FileIndex:
        paths = {"index": index_path(self._raw, file), "states": states_path(self._raw, file)}
        return past_index.write(file.path, self._by_file[file.node], **paths)

    def index_missing(self) -> Iterator[None]:
        """Build the missing indexes, those of the newest files first, and yield after each; then drop the orphans.

        Raises OSError.
        """
        for day in reversed(self.days()):
            for file in reversed(self._files(day)):
                if file.packed and not index_path(self._raw, file).exists():
                    self._write_index(file)
                    yield
        self.drop_orphans()

    def drop_orphans(self) -> int:
        """Remove the indexes of files that retention removed; return their number."""
        removed = 0
        try:
            folders = day_folders(index_folder(self._raw))
        except OSError:
            return 0
        for day, folder in folders:
            files = files_of(day, day_folder(self._raw, day))
            kept = {path(self._raw, file).name for file in files for path in (index_path, states_path)}
            for path in folder.iterdir():
                if path.name not in kept:
                    path.unlink(missing_ok=True)
                    removed += 1
            with contextlib.suppress(OSError):  # it is not empty
                folder.rmdir()
        return removed

    # --- rows -------------------------------------------------------------------------------------------------

    def visit(
        self, days: Iterable[date], blocks: Blocks, see: See, *, with_frequent: bool = True, only_states: bool = False
    ) -> None:
        """Call ``see`` for these nodes' lines of the days, of indexed files for those in the chosen blocks.

        ``only_states``: only rows about states are needed, so their copy is read where that is smaller. A line may be
        seen several times: when the recorder compresses a file in the meantime, and when it wrote a row again after
        an error of the disk. Raises OSError.
        """
        for day in days:
            for attempt in range(MAX_READS):
                try:
                    self._visit(day, blocks, see, with_frequent=with_frequent, only_states=only_states)
                    break
                except FileNotFoundError:
                    if attempt == MAX_READS - 1:
                        raise

    def _visit(self, day: date, blocks: Blocks, see: See, *, with_frequent: bool, only_states: bool) -> None:
        for file in self._files(day):
            index = self._index(file)
            chosen: list[Block | None] = [None] if index is None else [*blocks(index)]
            path = file.path
            if only_states and index is not None and self._has_states(file, index, chosen):
                path, chosen = states_path(self._raw, file), [None]
            for block in chosen:
                for line in lines_of(path, block, with_frequent=with_frequent):
                    if line.node in self._nodes:
                        see(line)

    def _has_states(self, file: HistoryFile, index: FileIndex, chosen: Iterable[Block | None]) -> bool:
        """Return whether there is a copy of the rows about states that is smaller than the chosen blocks."""
        if not 0 < index.states_bytes < sum(block.length for block in chosen if block is not None):
            return False
        try:
            return states_path(self._raw, file).stat().st_size == index.states_bytes
        except OSError:
            return False

    def visit_newest_first(
        self,
        day: date,
        blocks: Blocks,
        see: Callable[[Place, Line], None],
        needs: Callable[[Place, Place], bool],
    ) -> None:
        """As `visit` for one day, the newest files first, each line with its place in the order of the day's rows.

        ``needs``: whether a file is needed with rows from the first place to the second. Raises OSError.
        """
        for attempt in range(MAX_READS):
            try:
                self._visit_newest_first(day, blocks, see, needs)
                break
            except FileNotFoundError:
                if attempt == MAX_READS - 1:
                    raise

    def _visit_newest_first(
        self,
        day: date,
        blocks: Blocks,
        see: Callable[[Place, Line], None],
        needs: Callable[[Place, Place], bool],
    ) -> None:
        began: dict[str, int] = {}
        files = [(file, self._index(file)) for file in self._files(day)]
        for file, index in files:
            # An open file has the rows of one run, by time.
            opened = itertools.islice((line for line in lines_of(file.path) if line.node in self._nodes), 1)
            runs = opened if index is None else index.runs
            for run in runs:
                first_us = run.at_us if isinstance(run, Line) else run.first_us
                began[run.boot_id] = min(first_us, began.get(run.boot_id, first_us))

        def span(index: FileIndex | None) -> tuple[Place, Place]:
            if index is None or not index.runs:
                return FIRST_PLACE, LAST_PLACE
            places = [
                (began[run.boot_id], run.boot_id, seq) for run in index.runs for seq in (run.first_seq, run.last_seq)
            ]
            return min(places), max(places)

        spans = ((*span(index), number) for number, (_, index) in enumerate(files))
        for first, last, number in sorted(spans, key=itemgetter(1), reverse=True):
            if not needs(first, last):
                continue
            file, index = files[number]
            for block in [None] if index is None else blocks(index):
                for line in lines_of(file.path, block):
                    if line.node in self._nodes:
                        see((began.setdefault(line.boot_id, line.at_us), line.boot_id, line.seq), line)

    def nearest(
        self, day: date, blocks: Blocks, is_asked: Callable[[Line], bool], at_us: int, *, is_before: bool
    ) -> int | None:
        """Return the time of the row of a day that is asked for and nearest to a moment, before or after it.

        None: there is none. Raises OSError.
        """
        for _ in range(MAX_READS - 1):
            with contextlib.suppress(FileNotFoundError):
                return self._nearest(day, blocks, is_asked, at_us, is_before=is_before)
        return self._nearest(day, blocks, is_asked, at_us, is_before=is_before)

    def _nearest(
        self, day: date, blocks: Blocks, is_asked: Callable[[Line], bool], at_us: int, *, is_before: bool
    ) -> int | None:
        places: list[tuple[int, Path, Block | None]] = []
        """Each block with the least time between one of its rows and the moment; 0: it is not known."""
        for file in self._files(day):
            index = self._index(file)
            if index is None:
                places.append((0, file.path, None))
                continue
            spans = index.spans()
            for block in blocks(index):
                first, last = spans[block]
                if first < at_us if is_before else last > at_us:
                    places.append((max(0, at_us - last if is_before else first - at_us), file.path, block))
        found: int | None = None
        for least, path, place in sorted(places, key=itemgetter(0)):
            if found is not None and least >= abs(found - at_us):
                break
            for line in lines_of(path, place, with_frequent=False):
                away = at_us - line.at_us if is_before else line.at_us - at_us
                is_nearer = away > 0 and (found is None or away < abs(found - at_us))
                if is_nearer and line.node in self._nodes and is_asked(line):
                    found = line.at_us
        return found

    def observers(self, days: Collection[date], at_us: int) -> list[ObserverRows]:
        """Count the rows of each run; ``at_us``: the moment, microseconds since 1970. Raises OSError."""
        for _ in range(MAX_READS - 1):
            with contextlib.suppress(FileNotFoundError):
                return self._observers(days, at_us)
        return self._observers(days, at_us)

    def _observers(self, days: Collection[date], at_us: int) -> list[ObserverRows]:
        found: list[ObserverRows] = []
        numbers: dict[str, list[tuple[int, int]]] = defaultdict(list)
        has_repeats = False
        files = [file for day in days for file in self._files(day)]
        for file in files:
            index = self._index(file)
            if index is None:
                rows = self._counts(file)
                found += counted(rows, at_us)
                for each in counted(rows, EVER_US):
                    numbers[each.boot_id].append((each.first_seq or 0, each.last_seq or 0))
                continue
            known, unknown = index.observers(self._by_file[file.node], at_us)
            found += known
            for part in unknown:
                rows = self._counts(file, index.blocks[part.block])
                found += counted((row for row in rows if row["boot_id"] == part.boot_id), at_us)
            for run in index.runs:
                numbers[run.boot_id].append((run.first_seq, run.last_seq))
                has_repeats = has_repeats or index.has_repeats
        if has_repeats or any(overlap(ranges) for ranges in numbers.values()):
            once = {(row["boot_id"], row["seq"]): row for file in files for row in self._counts(file)}
            return counted(once.values(), at_us)
        return joined(found)

    def _counts(self, file: HistoryFile, block: Block | None = None) -> Collection[Row]:
        """Return what is counted of each row of a file, or of a block of it, each once."""
        found: dict[tuple[str, int], Row] = {}
        for line in lines_of(file.path, block):
            if line.node in self._nodes:
                fields = {"node": line.node, "boot_id": line.boot_id, "seq": line.seq}
                found[line.boot_id, line.seq] = {**fields, "at": line.at_us, "dt": file.day}
        return found.values()

    # --- what questions need ----------------------------------------------------------------------------------

    def topic_rows(self, topic: str, days: Collection[date], at_us: int, *, cluster: str | None) -> TopicRows:
        """Return the rows of the brokers that had a topic in these days. Raises TooManyRows, OSError."""
        return self.group_rows(self.groups_with(topic, days, cluster=cluster), days, at_us, topic=topic)

    def groups_with(self, topic: str, days: Iterable[date], *, cluster: str | None) -> set[Group]:
        """Return the broker names that had a topic in these days. Raises OSError."""
        groups: set[Group] = set()
        quoted = json.dumps(topic, ensure_ascii=False).encode()

        def see(line: Line) -> None:
            if line.event != "TOPICS" or line.cluster is None or line.broker_name is None or quoted not in line.text:
                return
            if cluster not in (None, line.cluster) or (line.cluster, line.broker_name) in groups:
                return
            row = line.row()
            if row is not None and mentions(row, topic):
                groups.add((line.cluster, line.broker_name))

        self.visit(days, lambda index: index.of_topic(topic), see, with_frequent=False)
        return groups

    def group_rows(
        self, groups: Collection[Group], days: Collection[date], at_us: int, *, topic: str = ""
    ) -> TopicRows:
        """Return the rows of broker names, of their clusters and of the node. Raises TooManyRows, OSError."""
        clusters = {cluster for cluster, _ in groups}
        found: dict[tuple[str, int], Row] = {}

        def see(line: Line) -> None:
            if line.broker_name is not None:
                is_needed = (line.cluster, line.broker_name) in groups
            else:
                is_needed = line.cluster is None or line.cluster in clusters
            row = line.row() if is_needed and line.event not in ROUTINE else None
            if row is not None and is_of(row, groups):
                found.setdefault((line.boot_id, line.seq), lean(row, topic))
            if len(found) > MAX_ROWS:
                raise TooManyRows(MAX_ROWS)

        self.visit(days, lambda index: index.of_groups(groups), see, with_frequent=False)
        return TopicRows(list(found.values()), self.observers(days, at_us))

    def latest_rows(
        self, days: Collection[date], at_us: int, *, cluster: str | None
    ) -> tuple[TopicRows, Mapping[Replica, Surroundings]]:
        """Return the last row of each replica up to a moment, in the last run before it, and the rows of that run
        about itself; and where each replica was and whose. Raises TooManyRows, OSError.
        """
        observers = self.observers(days, at_us)
        run = max((each for each in observers if each.rows), key=attrgetter("first_us"), default=None)
        if run is None:
            return TopicRows([], []), {}
        boot_id = run.boot_id
        latest: dict[Replica, Line] = {}
        owners: dict[Replica, tuple[int, bytes]] = {}
        """The last owner that a row of each names, as JSON, with the number of the row."""
        own: dict[int, Row] = {}

        def see(line: Line) -> None:
            if line.boot_id != boot_id or line.at_us > at_us:
                return
            if line.event.startswith("NAMESRV_") and has_state(line.event) and (row := line.row()) is not None:
                own[line.seq] = lean(row, "")
            is_state = has_state(line.event) and cluster in (None, line.cluster)
            broker_id = line.broker_id if is_state else None
            if broker_id is None:
                return
            place = (line.cluster, line.broker_name, broker_id)
            if place not in latest or latest[place].seq < line.seq:
                latest[place] = line
            owner = _OWNER.search(line.text) if b'"owner": ' in line.text else None
            if owner is not None and owners.get(place, (0, b""))[0] < line.seq:
                owners[place] = line.seq, owner[1]
            if len(latest) > MAX_ROWS:
                raise TooManyRows(MAX_ROWS)

        def has_state(event: str) -> bool:
            return event not in STATELESS

        def blocks(index: FileIndex) -> list[Block]:
            return index.of_run(boot_id, has_state, until_us=at_us)

        self.visit(days, blocks, see, with_frequent=False, only_states=True)
        rows, surroundings = list(own.values()), dict[Replica, Surroundings]()
        for place, line in latest.items():
            if (row := line.row()) is not None:
                rows.append(lean(row, ""))
                _, owner = owners.get(place, (0, b'""'))
                surroundings[place] = Surroundings(row["zone"] or "", _text_of(owner))
        return TopicRows(rows, [run]), surroundings

    def topics_of(self, group: Group, days: Collection[date], at_us: int, *, boot_id: str) -> dict[int, Topics]:
        """Return the topics of each replica of a broker name at a moment, by the rows of one run.

        Raises TooManyRows, OSError.
        """
        found: dict[int, Line] = {}
        size = 0

        def see(line: Line) -> None:
            nonlocal size
            is_of_it = line.event == "TOPICS" and (line.cluster, line.broker_name) == group
            if not is_of_it or line.boot_id != boot_id or line.at_us > at_us or line.seq in found:
                return
            found[line.seq] = line
            size += len(line.text)
            if size > MAX_TOPIC_BYTES:
                raise TooManyRows(MAX_ROWS)

        self.visit(days, lambda index: index.of_groups([group]), see, with_frequent=False)
        tables: dict[int, Topics] = {}
        for seq in sorted(found):
            row = found[seq].row()
            if row is None or row["broker_id"] is None:
                continue
            detail, table = detail_of(row), tables.setdefault(row["broker_id"], {})
            if detail.get("full") is True and detail.get("part") == 1:
                table.clear()
            named, removed = detail.get("topics"), detail.get("removed")
            for topic, queues in named.items() if isinstance(named, dict) else ():
                if isinstance(queues, list) and len(queues) >= 3 and all(type(each) is int for each in queues):
                    table[topic] = tuple(queues[:3])
            for topic in removed if isinstance(removed, list) else ():
                table.pop(topic, None)
        return tables

    def groups_named(self, broker_name: str, days: Iterable[date], *, cluster: str | None) -> set[Group]:
        """Return the clusters with this broker name in these days. Raises OSError."""
        found: set[Group] = set()

        def blocks(index: FileIndex) -> list[Block]:
            here = (name for name, names in index.groups.items() if broker_name in names)
            found.update((name, broker_name) for name in here if cluster in (None, name))
            return []

        def see(line: Line) -> None:
            if line.broker_name == broker_name and line.cluster is not None and cluster in (None, line.cluster):
                found.add((line.cluster, broker_name))

        self.visit(days, blocks, see)
        return found


def _text_of(quoted: bytes) -> str:
    """Read a string of JSON; empty for one of a damaged row."""
    with contextlib.suppress(ValueError):
        return str(json.loads(quoted))
    return ""
