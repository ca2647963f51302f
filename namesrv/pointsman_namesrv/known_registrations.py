"""The last registration of each broker, known by its bytes: the same bytes are not read again."""

from __future__ import annotations

import weakref
from collections import OrderedDict, deque
from typing import Generic, TypeVar

from pointsman_namesrv.core.model import Registration
from pointsman_namesrv.core.name_server import NameServer

MAX_BYTES = 16 * 1024 * 1024
"""Beyond it those that are unused for longest are dropped, and read again when they arrive."""

K = TypeVar("K")
C = TypeVar("C")


class KnownRegistrations(Generic[K, C]):
    """What registrations were read from, as long as the core holds them."""

    def __init__(self, core: NameServer, *, worth_bytes: int) -> None:
        """``worth_bytes``: a smaller one is read in no time, and not kept."""
        self.bytes = 0
        self._core = core
        self._worth_bytes = worth_bytes
        self._kept: OrderedDict[K, tuple[C, weakref.ref[Registration], int]] = OrderedDict()
        self._gone: deque[K] = deque()
        """Keys of registrations that ended; appended to by any thread."""

    def get(self, key: K) -> tuple[C, Registration] | None:
        """Return the last one of a key and what it was read from; None: it is not known, or no longer held."""
        kept = self._kept.get(key)
        registration = None if kept is None else kept[1]()
        if kept is None or registration is None:
            return None
        if self._core.registration_of(registration.identity) is not registration:
            return None
        self._kept.move_to_end(key)
        return kept[0], registration

    def put(self, key: K, content: C, registration: Registration | None, *, size: int) -> None:
        """Replace the last one of a key; ``size``: bytes of the content. None: it is only dropped."""
        while self._gone:
            kept = self._kept.get(gone := self._gone.popleft())
            if kept is not None and kept[1]() is None:
                self._drop(gone)
        self._drop(key)
        if registration is None or size < self._worth_bytes:
            return
        self._kept[key] = content, weakref.ref(registration, lambda _: self._gone.append(key)), size
        self.bytes += size
        while self.bytes > MAX_BYTES:
            self._drop(next(iter(self._kept)))

    def _drop(self, key: K) -> None:
        if key in self._kept:
            self.bytes -= self._kept.pop(key)[2]
