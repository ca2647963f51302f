"""Offsets of a broadcasting consumer, in one file on its own machine: RocketMQ's LocalFileOffsetStore."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from pointsman_client.aio import done_within
from pointsman_client.clock import Clock
from pointsman_client.consumer.coordination import BegunTopics, LoadedOffsets
from pointsman_client.consumer.offset_file import DamagedOffsetsError, FileContent, read_file, set_aside, write_file
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.errors import OffsetFileError, PointsmanError

DISK_SECONDS = 5.0
MAX_OFFSETS = 100_000

logger = logging.getLogger(__name__)

ResultT = TypeVar("ResultT")


class FileOffsetStore:
    """See :class:`~pointsman_client.consumer.coordination.OffsetStore`. One file a group and client.

    A commit is on the disk when it returns, and costs nothing when nothing changed. A damaged file is set aside and
    said in the log; the consumer then begins where one without offsets begins. The disk is used in a thread, and waited
    for ``DISK_SECONDS`` at most. ``max_offsets`` bounds the file; queues beyond it fail.
    """

    def __init__(self, path: Path, *, clock: Clock, max_offsets: int = MAX_OFFSETS) -> None:
        self._path = path
        self._clock = clock
        self._max_offsets = max_offsets
        self._content: FileContent | None = None
        """As the file has it; None: it was not read yet."""
        self._turn = asyncio.Lock()
        self._at_work: asyncio.Task[Any] | None = None
        self._failing = False

    async def load(self, queues: Collection[MessageQueue]) -> LoadedOffsets:
        """See :meth:`OffsetStore.load`."""
        async with self._turn:
            try:
                stored = (await self._read()).offsets
            except OffsetFileError as error:
                return LoadedOffsets({}, dict.fromkeys(queues, error))
            return LoadedOffsets({queue: stored[queue] for queue in queues if queue in stored}, {})

    async def begin(self, moments: Mapping[str, datetime]) -> BegunTopics:
        """See :meth:`OffsetStore.begin`: when this member first consumed the topics."""
        async with self._turn:
            try:
                held = await self._read()
                earliest = {topic: min(moment, held.begins.get(topic, moment)) for topic, moment in moments.items()}
                await self._write(FileContent(held.offsets, {**held.begins, **earliest}))
            except OffsetFileError as error:
                return BegunTopics({}, dict.fromkeys(moments, error))
            return BegunTopics(earliest, {})

    async def commit(
        self, offsets: Mapping[MessageQueue, int], *, reset: bool = False
    ) -> Mapping[MessageQueue, PointsmanError]:
        """See :meth:`OffsetStore.commit`."""
        async with self._turn:
            try:
                held = await self._read()
                changed = dict(held.offsets)
                failed = self._put(changed, offsets, reset=reset)
                # A file of an earlier version has no begins; a topic with an offset has begun by now.
                begins = {**{queue.topic: self._clock.utc() for queue in changed}, **held.begins}
                await self._write(FileContent(changed, begins))
            except OffsetFileError as error:
                return dict.fromkeys(offsets, error)
            return failed

    def _put(
        self, stored: dict[MessageQueue, int], offsets: Mapping[MessageQueue, int], *, reset: bool
    ) -> Mapping[MessageQueue, PointsmanError]:
        failed: dict[MessageQueue, PointsmanError] = {}
        for queue, offset in offsets.items():
            if queue not in stored and len(stored) >= self._max_offsets:
                failed[queue] = OffsetFileError(str(self._path), f"holds {self._max_offsets} offsets, no more fit in")
            elif reset or stored.get(queue, -1) < offset:
                stored[queue] = offset
        return failed

    async def _read(self) -> FileContent:
        if self._content is None:
            self._content = await self._on_disk(self._read_or_set_aside)
        return self._content

    async def _write(self, content: FileContent) -> None:
        if content != self._content:
            await self._on_disk(lambda: write_file(self._path, content))
            self._content = content

    def _read_or_set_aside(self) -> FileContent:
        try:
            return read_file(self._path)
        except DamagedOffsetsError as damage:
            aside = set_aside(self._path)
            logger.error("offsets are lost: %s %s; it is kept as %s", self._path, damage, aside)  # noqa: TRY400  # the stack would say no more
            return FileContent({}, {})

    async def _on_disk(self, work: Callable[[], ResultT]) -> ResultT:
        """Do ``work`` in a thread, after what a slow disk still does for an earlier call. Raises OffsetFileError."""
        try:
            if self._at_work is not None:
                await self._until_done(self._at_work)
            running = asyncio.create_task(asyncio.to_thread(work), name="pointsman-offset-file")
            running.add_done_callback(_see_error)
            self._at_work = running
            await self._until_done(running)
            result = running.result()
        except OSError as error:
            failure = OffsetFileError(str(self._path), error.strerror or str(error))
            self._note(failure)
            raise failure from error
        self._note(None)
        return result

    async def _until_done(self, running: asyncio.Task[Any]) -> None:
        """Wait for the thread. Raises TimeoutError, and leaves it running: nobody can stop it."""
        if not await done_within(running, DISK_SECONDS, clock=self._clock):
            raise TimeoutError(f"the disk did not answer in {DISK_SECONDS:g} s")

    def _note(self, failure: OffsetFileError | None) -> None:
        """Say once that the file fails, and once that it works again."""
        if failure is not None and not self._failing:
            logger.error("offsets are not on the disk: %s", failure)
        elif failure is None and self._failing:
            logger.warning("offsets are in %s again", self._path)
        self._failing = failure is not None


def _see_error(running: asyncio.Task[Any]) -> None:
    if not running.cancelled():
        # Whoever asked may have given up meanwhile.
        running.exception()
