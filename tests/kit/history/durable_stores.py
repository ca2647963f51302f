"""The five stores on :class:`DurableTables`, each as numbers with a value, and a process that writes one until a kill.

``python -m tests.kit.history.durable_stores NAME FILE FIRST_VALUE`` puts one rising value under two numbers, and prints
each value once it is written.
"""

from __future__ import annotations

import asyncio
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar

from pointsman.manual_clock import ManualClock
from pointsman.storage.tables import OnRefusal
from pointsman_agent.core.offsets import OffsetChange, OffsetKey
from pointsman_agent.offsets.file_store import FileStore
from pointsman_agent.offsets.stored_offsets import StoreFailed
from pointsman_client.consumer.file_offset_store import FileOffsetStore
from pointsman_client.core.message import Message, OutgoingMessage
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.errors import OffsetFileError, OutboxFailedError
from pointsman_client.producer.outbox import Outbox, Parked
from pointsman_namesrv.core.saved_settings import Setting, SettingKey, SettingKind
from pointsman_namesrv.settings.settings_store import SettingsStore, table_file
from tests.kit.name_server.held_brokers import held, snapshot, store

MOST_NUMBERS = 5_000
MOST_VALUES = 100_000
BORN_AT = datetime(2026, 1, 1, tzinfo=UTC)


class DurableStore(ABC):
    """One store in a folder."""

    file_name: ClassVar[str]
    policy: ClassVar[OnRefusal] = OnRefusal.EMPTY
    reopens: ClassVar[bool] = True
    """Whether a write opens a file again that was removed or could not be written."""
    reads_in_use: ClassVar[bool] = False
    errors: ClassVar[type[Exception]] = OSError

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / self.file_name

    @abstractmethod
    async def open(self) -> dict[int, int]:
        """Open the store and return its content. Raises one of ``errors``."""

    @abstractmethod
    async def put(self, values: Mapping[int, int]) -> None:
        """Set values, each higher than before. Raises one of ``errors``."""

    @abstractmethod
    async def close(self) -> None:
        """Close the store, which may then be opened as by another process."""


class SnapshotOfBrokers(DurableStore):
    file_name = "snapshot.db"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._store = store(folder)
        self._content: dict[int, int] = {}

    async def open(self) -> dict[int, int]:
        brokers = [registration for registration, _ in self._store.load().brokers]
        self._content = {int(each.identity.broker_name[1:]): each.data_version.counter for each in brokers}
        return dict(self._content)

    async def put(self, values: Mapping[int, int]) -> None:
        content = {**self._content, **values}
        done = self._store.write(snapshot(*(held(number, value) for number, value in content.items())))
        if done.error is not None:
            raise done.error
        self._content = content

    async def close(self) -> None:
        self._store.close()


class SettingsOfOperators(DurableStore):
    file_name = "settings.db"
    reads_in_use = True

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._store = SettingsStore(table_file(folder), clock=ManualClock())

    async def open(self) -> dict[int, int]:
        return {int(key.name[1]): int(setting.value[0]) for key, setting in self._store.load()[0].items()}

    async def put(self, values: Mapping[int, int]) -> None:
        kv = SettingKind.KV
        self._store.write({SettingKey(kv, ("ns", str(n))): Setting((str(value),)) for n, value in values.items()})

    async def close(self) -> None:
        self._store.close()


class OffsetsOfAnAgent(DurableStore):
    file_name = "offsets.db"
    policy = OnRefusal.BACKUP
    reopens = False
    reads_in_use = True
    errors = StoreFailed

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._store = FileStore(self.file, clock=ManualClock())

    async def open(self) -> dict[int, int]:
        return {key.queue_id: offset for key, offset in (await self._store.load()).items()}

    async def put(self, values: Mapping[int, int]) -> None:
        await self._store.write([OffsetChange(OffsetKey("g", "orders", n), value) for n, value in values.items()])

    async def close(self) -> None:
        await self._store.close()
        self._store = FileStore(self.file, clock=ManualClock())


class OffsetsOfAClient(DurableStore):
    file_name = "g.db"
    errors = OffsetFileError

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._store = FileOffsetStore(self.file, clock=ManualClock())

    async def open(self) -> dict[int, int]:
        loaded = await self._store.load([_queue(n) for n in range(MOST_NUMBERS)])
        for error in loaded.unknown.values():
            raise error
        return {queue.queue_id: offset for queue, offset in loaded.offsets.items()}

    async def put(self, values: Mapping[int, int]) -> None:
        failed = await self._store.commit({_queue(n): value for n, value in values.items()})
        assert failed.keys() in ({_queue(n) for n in values}, set())
        for error in failed.values():
            raise error

    async def close(self) -> None:
        await self._store.close()
        self._store = FileOffsetStore(self.file, clock=ManualClock())


class MessagesOfAProducer(DurableStore):
    """A message for each number, which replaces the one with the value before."""

    file_name = "outbox"
    policy = OnRefusal.SALVAGE
    reopens = False
    errors = OutboxFailedError

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._outbox = Outbox(self.file, max_bytes=10**8)
        self._parked: dict[int, Parked] = {}

    async def open(self) -> dict[int, int]:
        self._outbox.close()
        self.folder.mkdir(exist_ok=True)  # which an outbox does not
        self._parked = {int(each.outgoing.message_id): each for each in self._outbox.open()}
        return {n: int(each.outgoing.message.body) for n, each in self._parked.items()}

    async def put(self, values: Mapping[int, int]) -> None:
        added = {
            n: self._outbox.add(
                _queue(0), OutgoingMessage(Message("orders", b"%d" % value, "x" * 200), str(n), BORN_AT)
            )
            for n, value in values.items()
        }
        self._outbox.write(list(added.values()), [self._parked[n] for n in values if n in self._parked])
        self._parked |= added

    async def close(self) -> None:
        self._outbox.close()


STORES: Mapping[str, type[DurableStore]] = {
    "snapshot": SnapshotOfBrokers,
    "settings": SettingsOfOperators,
    "agent offsets": OffsetsOfAnAgent,
    "client offsets": OffsetsOfAClient,
    "outbox": MessagesOfAProducer,
}


def _queue(number: int) -> MessageQueue:
    return MessageQueue("orders", "c1", "a", number)


async def _write_until_killed(name: str, folder: Path, first_value: int) -> None:
    writing = STORES[name](folder)
    await writing.open()
    for value in range(first_value, first_value + MOST_VALUES):
        await writing.put({0: value, 1: value})
        print(value, flush=True)


if __name__ == "__main__":
    asyncio.run(_write_until_killed(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])))
