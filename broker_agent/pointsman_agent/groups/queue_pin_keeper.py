"""Pins of queues on a disk, or in Redis, next to the offsets: they last across a restart of the agent.

A pin is stored before it applies, so that one that was answered is not lost. Its end is stored in UTC. The complete
table is written with each change: pins are few, and operators set them by hand.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from pointsman.client_id import pin_target_problem
from pointsman.clock import Clock
from pointsman.names import MAX_QUEUES, name_problem
from pointsman.wire.refusals import NotReady
from pointsman_agent.core.group_rules import GroupLimitReached
from pointsman_agent.core.queue_pins import PinnedQueue, QueuePin, QueuePins
from pointsman_agent.replaced_file import ReplacedFile
from pointsman_agent.rpc.agent_refusals import Unavailable

RETRY_SECONDS = 1.0
MAX_BYTES = 16 * 1024 * 1024
FORMAT, VERSION = "pointsman-queue-pins", 1

log = logging.getLogger(__name__)


class QueuePinsFailed(Exception):
    """The pins could not be read or written; the text has the reason. Retriable."""


class QueuePinStore(Protocol):
    """One text, replaced as a whole. Each call has a deadline. At most one call at a time."""

    async def load(self) -> str | None:
        """Read the text; None if there is none. Raises QueuePinsFailed."""
        ...

    async def write(self, text: str) -> None:
        """Replace the text; durable when it returns. Raises QueuePinsFailed."""
        ...

    def is_ours(self) -> bool:
        """Whether this agent may write the store now."""
        ...

    async def close(self) -> None:
        """Release it. The last call."""
        ...


class QueuePinKeeper:
    """Reads the pins at the start, and stores each change. Hold ``changing`` from before a change until it applies."""

    def __init__(self, store: QueuePinStore, *, clock: Clock) -> None:
        self.changing = asyncio.Lock()
        self._store = store
        self._clock = clock
        self._is_loaded = False

    async def load(self, *, failed: Callable[[], object] = lambda: None) -> QueuePins:
        """Return the stored pins that have not ended; waits for the store. Text that is damaged counts as none.

        ``failed`` is called for each attempt that fails.
        """
        is_failing = False
        while True:
            try:
                text = await self._store.load()
                break
            except QueuePinsFailed as error:
                if not is_failing:
                    log.warning("pins of queues cannot be read; retrying", extra={"facts": {"error": str(error)}})
                is_failing = True
                failed()
                await self._clock.sleep(RETRY_SECONDS)
        self._is_loaded = True
        try:
            return self._decoded(text) if text is not None else QueuePins()
        except (ValueError, KeyError, TypeError, AttributeError, GroupLimitReached) as error:
            log.warning("stored pins of queues are damaged and were ignored", extra={"facts": {"problem": str(error)}})
            return QueuePins()

    async def store(self, pins: QueuePins) -> None:
        """Store pins. Raises NotReady before :meth:`load` has returned, and Unavailable; then they must not apply."""
        if not self._is_loaded:
            raise NotReady(
                "the pins of queues from before this agent's start are not read yet; retry", state="starting"
            )
        if not self._store.is_ours():
            return  # A replica has what its master stores.
        try:
            await self._store.write(self._encoded(pins))
        except QueuePinsFailed as error:
            raise Unavailable(f"the pin cannot be stored: {error}") from error

    async def close(self) -> None:
        """Close the store. The last call."""
        await self._store.close()

    def _encoded(self, pins: QueuePins) -> str:
        offset = self._clock.utc_now().timestamp() - self._clock.monotonic()
        rows = [
            {"group": group, **each.queue._asdict(), "to": each.target, "until_ms": round((each.until + offset) * 1000)}
            for group, of_group in sorted(pins.by_group.items())
            for each in of_group
        ]
        return json.dumps({"format": FORMAT, "version": VERSION, "pins": rows})

    def _decoded(self, text: str) -> QueuePins:
        content = json.loads(text)
        if (content["format"], content["version"]) != (FORMAT, VERSION):
            raise ValueError(f"has format {content['format']!r} {content['version']!r}")
        pins, now = QueuePins(), self._clock.monotonic()
        offset = self._clock.utc_now().timestamp() - now
        for row in content["pins"]:
            queue = PinnedQueue(row["topic"], row["cluster"], row["broker_name"], row["queue_id"])
            names = (row["group"], queue.topic, queue.cluster, queue.broker_name)
            problem = next(filter(None, map(name_problem, names)), None) or pin_target_problem(row["to"])
            if problem is not None or not 0 <= queue.queue_id < MAX_QUEUES:
                raise ValueError(f"pin {row} {problem or 'has an impossible queue'}")
            pins = pins.with_pin(row["group"], QueuePin(queue, row["to"], row["until_ms"] / 1000 - offset))
        return pins.lasting(now)


class MemoryQueuePins:
    """Pins that end with the agent's process."""

    async def load(self) -> str | None:
        """See :meth:`QueuePinStore.load`."""
        return None

    async def write(self, text: str) -> None:
        """See :meth:`QueuePinStore.write`."""

    def is_ours(self) -> bool:
        """See :meth:`QueuePinStore.is_ours`."""
        return False

    async def close(self) -> None:
        """See :meth:`QueuePinStore.close`."""


class QueuePinFile:
    """The pins in one file."""

    def __init__(self, path: Path, *, clock: Clock) -> None:
        self._file = ReplacedFile(path, name="queue-pins", max_bytes=MAX_BYTES, failure=QueuePinsFailed, clock=clock)

    async def load(self) -> str | None:
        """See :meth:`QueuePinStore.load`."""
        return await self._file.load(lambda data: data.decode("ascii", "replace"))

    async def write(self, text: str) -> None:
        """See :meth:`QueuePinStore.write`."""
        await self._file.write(lambda: text)

    def is_ours(self) -> bool:
        """See :meth:`QueuePinStore.is_ours`."""
        return True

    async def close(self) -> None:
        """See :meth:`QueuePinStore.close`."""
