"""The snapshot in ``snapshot.db``: a row for each broker, and what of it changed.

Blocking; used by one thread at a time. A registration is frozen and replaced when it changes, so an object that is the
same as in the last round is not compared again.
"""

from __future__ import annotations

import errno
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from pointsman.storage.tables import DurableTables, OnRefusal, Row, Table, TablesRefused
from pointsman_namesrv.core.model import BrokerIdentity, Health, Position, ProbeVerdict, Registration
from pointsman_namesrv.core.request_rules import IntervalBounds
from pointsman_namesrv.slices import THREAD_PAUSE_SECONDS
from pointsman_namesrv.snapshot import snapshot_codec
from pointsman_namesrv.snapshot.snapshot_codec import (
    NO_MARK,
    ContentRefused,
    HistoryMark,
    Lost,
    decode_mark,
    encode_mark,
)

FILE_NAME = "snapshot.db"
APPLICATION_ID = 0x504D534E  # "PMSN"
TRANSACTION_BYTES = 1024 * 1024
"""Content of one transaction; a stop waits at most for one."""

_BROKERS = Table("brokers", ("cluster", "broker_name", "broker_id"), ("content",))

HeldBroker = tuple[Registration, int, Health]
"""A registration, its generation, and the broker's health now."""

log = logging.getLogger(__name__)


class StateDirectoryInUse(OSError):
    """Another process uses the snapshot."""

    def __init__(self, directory: Path) -> None:
        super().__init__(f"the state directory {directory} is used by another pointsman-namesrv")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The server's state at one moment."""

    brokers: list[HeldBroker]
    lost: list[Lost] = field(default_factory=list)
    """Brokers that are no longer registered; none in a position that one of ``brokers`` holds."""
    contains: HistoryMark = NO_MARK
    """The last row of the history at that moment."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """The content of the file at the start."""

    brokers: list[tuple[Registration, int]]
    """Each registration, with its last known health, and its generation."""
    lost: list[Lost]
    """Brokers that were lost before."""
    refused: int
    """Brokers whose content was rejected; 1 for a damaged file."""
    marks: Mapping[Position, HistoryMark] = field(default_factory=dict)
    """Of each broker how much of the history its row contains."""


@dataclass(frozen=True, slots=True)
class Round:
    """The result of one round."""

    brokers: int
    bytes: int
    whole: bool
    """Whether the file now has everything that the round was given."""
    error: OSError | None = None
    """The error of the disk."""


@dataclass(slots=True)
class _Written:
    """A broker as the file has it."""

    generation: int
    failing: bool
    registration: Registration
    planned: bool = False
    """Of a lost broker: whether it was lost in a maintenance window that has not ended yet."""


class SnapshotStore:
    """Updates the file in a folder to the server's state."""

    def __init__(self, directory: Path, *, bounds: IntervalBounds, max_topics: int) -> None:
        self._tables = DurableTables(directory / FILE_NAME, [_BROKERS], application_id=APPLICATION_ID)
        self._bounds = bounds
        self._max_topics = max_topics
        self._written: dict[BrokerIdentity, _Written] = {}
        self._unknown: set[Position] = set()
        """Rows of the file for which no broker is known."""

    # --- at the start -----------------------------------------------------------------------------------------

    def load(self) -> Loaded:
        """Create the folder, lock the file and read it.

        A damaged file is logged and moved to ``damaged``: the server starts without a snapshot. A broker that breaks a
        current rule is logged and skipped. A read-only file is read. Raises StateDirectoryInUse, PermissionError for a
        file that this user may not read, and another OSError when the folder cannot be created.
        """
        try:
            opened = self._tables.open(OnRefusal.EMPTY)
        except TablesRefused as error:  # it cannot be moved: each round reports it
            return self._refused(error)
        except OSError as error:
            if error.errno == errno.EBUSY:
                raise StateDirectoryInUse(self._tables.path.parent) from error
            raise
        if opened.refused is not None:
            return self._refused(opened.refused)
        if opened.unwritable is not None:
            if not self._tables.path.parent.is_dir():
                raise opened.unwritable
            log.warning("snapshot cannot be opened for writing", extra={"facts": {"error": str(opened.unwritable)}})
        return self._decode(opened.rows[_BROKERS.name])

    def _refused(self, error: TablesRefused) -> Loaded:
        self._log_refused(error)
        return Loaded([], [], refused=1)

    def _log_refused(self, error: Exception, **facts: object) -> None:
        log.error(
            "snapshot rejected; its brokers start as unknown",
            extra={"facts": {"file": self._tables.path, **facts, "problem": str(error)}},
        )

    def _decode(self, rows: list[Row]) -> Loaded:
        brokers: list[tuple[Registration, int]] = []
        lost: list[Lost] = []
        refused = 0
        for row in rows:
            *place, content = row
            try:
                self._decode_row(content, brokers, lost)
            except ContentRefused as error:
                refused += 1
                self._unknown.add(_position(row))
                self._log_refused(error, broker="/".join(map(str, place)))
        marks = ((_position(row), decode_mark(content)) for row in rows if isinstance(content := row[-1], bytes))
        return Loaded(brokers, lost, refused, {position: mark for position, mark in marks if mark is not None})

    def _decode_row(self, content: object, brokers: list[tuple[Registration, int]], lost: list[Lost]) -> None:
        if not isinstance(content, bytes):
            raise ContentRefused("is not bytes")
        gone = snapshot_codec.decode_lost(content, bounds=self._bounds, max_topics=self._max_topics)
        if gone is None:
            registration, generation = snapshot_codec.decode_broker(
                content, bounds=self._bounds, max_topics=self._max_topics
            )
            brokers.append((registration, generation))
        else:
            registration, generation = gone.registration, 0
            lost.append(gone)
        planned = gone is not None and gone.planned
        failing = _is_failing(registration.health)
        self._written[registration.identity] = _Written(generation, failing, registration, planned)

    # --- each round -------------------------------------------------------------------------------------------

    def write(self, snapshot: Snapshot, *, may_go_on: Callable[[], bool] = lambda: True) -> Round:
        """Write what changed since the last round and remove departed brokers, until ``may_go_on`` returns False.

        What cannot be written is retried in the next round. Raises OSError when the file cannot be opened.
        """
        if not self._tables.is_current():
            # It could not be written before, or was removed by an operator. Everything is written again.
            self._written.clear()
            self._unknown = {_position(row) for row in self._tables.reopen()[_BROKERS.name]}
        # A lost broker has no generation; it keeps its row until it returns.
        lost = {each.registration.identity: each for each in snapshot.lost}
        brokers = snapshot.brokers + [(each.registration, 0, each.registration.health) for each in snapshot.lost]
        changed = self._changed(brokers, {who for who, each in lost.items() if each.planned})
        try:
            # Removals come first: they free space.
            self._remove(brokers)
            for batch in self._batches(changed, lost, encode_mark(snapshot.contains)):
                if not may_go_on():
                    return self._round(whole=False)
                self._put(batch, lost)
        except OSError as error:
            self._release(changed)
            return self._round(whole=False, error=error)
        return self._round(whole=True)

    def _release(self, changed: list[HeldBroker]) -> None:
        """Keep no registration alive that the server has replaced, while the disk fails."""
        for registration, _, _ in changed:
            written = self._written.get(registration.identity)
            if written is not None and written.registration is not registration:
                del self._written[registration.identity]
                self._unknown.add(registration.identity.position)

    def _round(self, *, whole: bool, error: OSError | None = None) -> Round:
        return Round(len(self._written), self._tables.size(), whole, error)

    def _changed(self, brokers: list[HeldBroker], planned: set[BrokerIdentity]) -> list[HeldBroker]:
        """Return the brokers that changed; ``planned``: those lost in a window that is open.

        Runs in every round for every broker, so it is little more than a lookup.
        """
        changed = []
        for held in brokers:
            registration, generation, health = held
            written = self._written.get(registration.identity)
            if (
                written is None
                or written.generation != generation
                or written.failing is not _is_failing(health)
                or written.planned is not (registration.identity in planned)
                or (written.registration is not registration and not _take_equal(written, registration))
            ):
                changed.append(held)
        return changed

    def _remove(self, brokers: list[HeldBroker]) -> None:
        gone = self._written.keys() - (registration.identity for registration, _, _ in brokers)
        if not gone and not self._unknown:
            return
        # In a position with a new address the new broker replaces the row.
        held = {registration.identity.position for registration, _, _ in brokers}
        places = (self._unknown | {identity.position for identity in gone}) - held
        if places:
            self._tables.write((_BROKERS.name, tuple(place), None) for place in places)
        self._unknown -= places
        for identity in gone:
            del self._written[identity]

    def _batches(
        self, changed: list[HeldBroker], lost: dict[BrokerIdentity, Lost], mark: bytes
    ) -> Iterator[list[tuple[HeldBroker, bytes]]]:
        batch: list[tuple[HeldBroker, bytes]] = []
        size = 0
        for held in changed:
            gone = lost.get(held[0].identity)
            if gone is None:
                content = snapshot_codec.encode_broker(*held, pause=partial(time.sleep, THREAD_PAUSE_SECONDS))
            else:
                content = snapshot_codec.encode_lost(gone)
            content += mark
            batch.append((held, content))
            size += len(content)
            if size > TRANSACTION_BYTES:
                yield batch
                batch, size = [], 0
        if batch:
            yield batch

    def _put(self, batch: list[tuple[HeldBroker, bytes]], lost: dict[BrokerIdentity, Lost]) -> None:
        self._tables.write(
            (_BROKERS.name, tuple(registration.identity.position), (content,))
            for (registration, _, _), content in batch
        )
        for (registration, generation, health), _ in batch:
            gone = lost.get(registration.identity)
            planned = gone is not None and gone.planned
            self._written[registration.identity] = _Written(generation, _is_failing(health), registration, planned)
            self._unknown.discard(registration.identity.position)

    def close(self) -> None:
        """Close the file, so that another process can use it."""
        self._tables.close()


def _position(row: Row) -> Position:
    cluster, broker_name, broker_id, _ = row
    return Position(str(cluster), str(broker_name), int(str(broker_id)))


def _is_failing(health: Health) -> bool:
    return health.verdict is ProbeVerdict.FAILING


def _take_equal(written: _Written, registration: Registration) -> bool:
    """Return whether a registration is another object with the same content; the next comparison is then fast again."""
    if _lasting(written.registration) != _lasting(registration):
        return False
    written.registration = registration
    return True


def _lasting(registration: Registration) -> Registration:
    """Return the registration without its initial health, which every heartbeat replaces."""
    return replace(registration, health=Health())
