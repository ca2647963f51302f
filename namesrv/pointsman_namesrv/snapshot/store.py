"""The snapshot as a whole: what the folder holds of the brokers, and what of it changed.

Blocking; used by one thread at a time. A registration is frozen and replaced when it changes, so one that is the same
object as at the last round needs no second look.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from pointsman_namesrv.core.model import BrokerIdentity, Health, ProbeVerdict, Registration
from pointsman_namesrv.core.validation import IntervalBounds
from pointsman_namesrv.snapshot import codec
from pointsman_namesrv.snapshot.codec import Lost
from pointsman_namesrv.snapshot.files import SegmentFiles, StateDirectoryInUse
from pointsman_namesrv.snapshot.segment import HEADER_SIZE, SegmentRefused, broker_name_of

HeldBroker = tuple[Registration, int, Health]
"""A registration, its generation, and the broker's health now."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What the server holds at one moment."""

    brokers: list[HeldBroker]
    lost: list[Lost] = field(default_factory=list)
    """Brokers that are no longer registered; none of them in a place that one of ``brokers`` has."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """What the folder gave at the start."""

    brokers: list[tuple[Registration, int]]
    """Each registration, with its last known health, and its generation."""
    lost: list[Lost]
    """Brokers that were lost before."""
    refused: int
    """Segments that were damaged or foreign; what they held is lost."""


@dataclass(frozen=True, slots=True)
class Round:
    """What became of one round."""

    segments: int
    bytes: int
    whole: bool
    """Whether the folder now holds all that the round was given."""
    error: OSError | None = None
    """What the disk refused first."""


@dataclass(slots=True)
class _Written:
    """A broker's segment as it stands in the folder."""

    name: str
    size: int
    generation: int
    failing: bool
    registration: Registration | None
    """None: it stands there no longer as it should."""


class SnapshotStore:
    """Brings a folder in line with what the server holds."""

    def __init__(self, files: SegmentFiles, *, bounds: IntervalBounds, max_topics: int) -> None:
        self._files = files
        self._bounds = bounds
        self._max_topics = max_topics
        self._forget()

    def _forget(self) -> None:
        """Know nothing of the folder but that every segment in it is to be written again."""
        self._written: dict[BrokerIdentity, _Written] = {}
        self._failed: set[BrokerIdentity] = set()
        self._lost: dict[BrokerIdentity, Lost] = {}
        self._strangers: set[str] = set()
        """Files in the folder that no broker here is known for."""

    # --- at the start -----------------------------------------------------------------------------------------

    def load(self) -> Loaded:
        """Own the folder and read it; what is damaged is said, put aside, and left out.

        Raises StateDirectoryInUse, PermissionError for a segment that this user may not read, and another OSError when
        there is no such folder and none can be made. One that can be read and not written is read.
        """
        try:
            self._files.hold()
        except StateDirectoryInUse:
            raise
        except OSError as error:
            if not self._files.directory.is_dir():
                raise
            log.warning("the state directory cannot be written", extra={"facts": {"error": str(error)}})
        try:
            names = self._files.names()
        except OSError:
            self._files.release()
            raise
        self._strangers.update(names)
        brokers: list[tuple[Registration, int]] = []
        lost: list[Lost] = []
        refused = 0
        for name in names:
            try:
                content = self._files.read(name)
                gone = codec.decode_lost(content, bounds=self._bounds, max_topics=self._max_topics)
                if gone is None:
                    brokers.append(self._load_broker(name, content))
                else:
                    self._note_loaded(name, content, gone.registration, 0)
                    lost.append(gone)
            except SegmentRefused as error:
                refused += 1
                facts = {"file": self._files.directory / name, "problem": str(error)}
                log.error("a segment of the snapshot is refused", extra={"facts": facts})  # noqa: TRY400  # said in full
                self._files.put_aside(name)
            except PermissionError:
                self._files.release()
                raise
        return Loaded(brokers, lost, refused)

    def _load_broker(self, name: str, content: bytes) -> tuple[Registration, int]:
        registration, generation = codec.decode_broker(content, bounds=self._bounds, max_topics=self._max_topics)
        self._note_loaded(name, content, registration, generation)
        return registration, generation

    def _note_loaded(self, name: str, content: bytes, registration: Registration, generation: int) -> None:
        identity = registration.identity
        if name != broker_name_of(identity.position):
            raise SegmentRefused(f"is another broker's: it holds {identity}")
        failing = _is_failing(registration.health)
        self._written[identity] = _Written(name, HEADER_SIZE + len(content), generation, failing, registration)
        self._strangers.discard(name)

    # --- each round -------------------------------------------------------------------------------------------

    def write(self, snapshot: Snapshot, *, may_go_on: Callable[[], bool] = lambda: True) -> Round:
        """Write what changed since the last round and remove what is gone, until ``may_go_on`` says no.

        What the disk refuses is tried again at the next round. Raises OSError when the folder cannot be had at all.
        """
        if not self._files.is_held():
            self._files.release()
            self._forget()
            self._files.hold()
            self._strangers.update(self._files.names())
        # One that was lost has no generation; it keeps the place of its segment until it is back.
        self._lost = {lost.registration.identity: lost for lost in snapshot.lost}
        brokers = snapshot.brokers + [(lost.registration, 0, lost.registration.health) for lost in snapshot.lost]
        changed = self._changed(brokers)
        # Removals come first, for they make room.
        steps = [*self._removals(brokers), *self._writes(changed)]
        errors: list[OSError] = []
        for step in steps:
            if not may_go_on():
                return self._round(whole=False, errors=errors)
            self._try(step, errors)
        if steps:
            self._try(self._files.sync, errors)
        return self._round(whole=not errors, errors=errors)

    @staticmethod
    def _try(step: Callable[[], None], errors: list[OSError]) -> None:
        try:
            step()
        except OSError as error:
            errors.append(error)

    def _round(self, *, whole: bool, errors: list[OSError]) -> Round:
        size = sum(written.size for written in self._written.values())
        return Round(len(self._written), size, whole, errors[0] if errors else None)

    def _changed(self, brokers: list[HeldBroker]) -> list[HeldBroker]:
        """On the way of every round, and for every broker: hardly more than one look-up each."""
        changed = []
        for held in brokers:
            registration, generation, health = held
            written = self._written.get(registration.identity)
            if (
                written is None
                or written.generation != generation
                or written.failing is not _is_failing(health)
                or (written.registration is not registration and not _take_equal(written, registration))
            ):
                changed.append(held)
        return changed

    def _removals(self, brokers: list[HeldBroker]) -> list[Callable[[], None]]:
        gone = self._written.keys() - (registration.identity for registration, _, _ in brokers)
        if not gone and not self._strangers:
            return []
        held = {broker_name_of(registration.identity.position) for registration, _, _ in brokers}
        self._strangers -= held
        steps: list[Callable[[], None]] = [partial(self._remove_stranger, name) for name in self._strangers]
        for identity in gone:
            if self._written[identity].name in held:
                del self._written[identity]  # its place has a new address, whose segment replaces the old one
            else:
                steps.append(partial(self._remove, identity))
        return steps

    def _writes(self, changed: list[HeldBroker]) -> list[Callable[[], None]]:
        # Those that failed come last: a few bad places must not keep the others from the disk when time is short.
        changed.sort(key=lambda held: held[0].identity in self._failed)
        return [partial(self._write_broker, *held) for held in changed]

    def _write_broker(self, registration: Registration, generation: int, health: Health) -> None:
        identity = registration.identity
        written = self._written.get(identity)
        name = broker_name_of(identity.position) if written is None else written.name
        lost = self._lost.get(identity)
        content = codec.encode_broker(registration, generation, health) if lost is None else codec.encode_lost(lost)
        try:
            size = self._files.write(name, content)
        except OSError:
            self._failed.add(identity)
            if written is not None:
                written.registration = None  # and so a topic table that nobody else holds is let go
            raise
        self._failed.discard(identity)
        self._written[identity] = _Written(name, size, generation, _is_failing(health), registration)

    def _remove(self, identity: BrokerIdentity) -> None:
        self._files.remove(self._written[identity].name)
        del self._written[identity]

    def _remove_stranger(self, name: str) -> None:
        self._files.remove(name)
        self._strangers.discard(name)

    def close(self) -> None:
        """Let another process have the folder."""
        self._files.release()


def _is_failing(health: Health) -> bool:
    return health.verdict is ProbeVerdict.FAILING


def _take_equal(written: _Written, registration: Registration) -> bool:
    """Whether a registration is another object that says the same; the next look at it is short again."""
    if written.registration is None or _lasting(written.registration) != _lasting(registration):
        return False
    written.registration = registration
    return True


def _lasting(registration: Registration) -> Registration:
    """Without the health that it came with, which every beat replaces."""
    return replace(registration, health=Health())
