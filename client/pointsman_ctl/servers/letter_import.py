"""Stores the lines of a file as dead letters, in small batches, each of which is recorded after it was sent."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from pointsman.group_topics import dlq_topic
from pointsman_client import MessageQueue, PointsmanError, TopicNotFoundError
from pointsman_ctl.servers.dead_letters import DeadLetters
from pointsman_ctl.servers.letter_replay import (
    BATCH_BYTES,
    Addressed,
    NotAllSentError,
    RecordedSender,
    ReplayFailedError,
    Run,
)
from pointsman_ctl.servers.message_lines import MAX_LINE_BYTES, MessageLine, read_line
from pointsman_ctl.servers.number_ranges import NumberRanges
from pointsman_ctl.servers.replay_record import of_file
from pointsman_ctl.servers.stored_messages import HeldQueue, StoredMessages


class NoBrokerForGroupError(PointsmanError):
    """No broker can store the dead letters of a group."""

    code = "NO_BROKER_FOR_GROUP"

    def __init__(self, group: str, topic: str) -> None:
        super().__init__(f"no broker has dead letters of group {group}, or its topic {topic}")


@dataclass(frozen=True, slots=True)
class FileLines:
    """A file, and the SHA-256 of its content in hexadecimal digits."""

    file: Path
    digest: str

    def lines(self, *, now: datetime) -> Iterator[MessageLine]:
        """Yield its lines but empty ones. Raises OSError, and LineError at the first that is not a dead letter."""
        with self.file.open("rb") as source:
            number = 0
            while line := source.readline(MAX_LINE_BYTES + 1):
                number += 1
                if line.strip():
                    yield read_line(line, number, now=now)


def read_file(file: Path) -> FileLines:
    """Return a file with its digest. Raises OSError."""
    with file.open("rb") as source:
        return FileLines(file, hashlib.file_digest(source, "sha256").hexdigest())


@dataclass(frozen=True, slots=True)
class PlannedImport:
    """Where the lines of a group go, and how many of them are there already."""

    group: str
    held: HeldQueue
    already: int

    @property
    def broker(self) -> str:
        """``CLUSTER/BROKER``."""
        return f"{self.held.queue.cluster}/{self.held.queue.broker_name}"

    @property
    def addr(self) -> str:
        """The address of the broker."""
        return self.held.addr


class LetterImport:
    """Stores the lines of one group."""

    def __init__(self, messages: StoredMessages, group: str, content: FileLines, *, cluster: str = "") -> None:
        self._messages = messages
        self._group = group
        self._content = content
        self._cluster = cluster
        self._letters = DeadLetters(messages, group)

    async def planned(self, topic: str) -> PlannedImport:
        """Choose the broker: the first with dead letters of the group, else with ``topic``.

        Raises NoBrokerForGroupError, and what reads raise.
        """
        queues = await self._letters.queues(self._cluster)
        if not queues:
            try:
                queues = await self._messages.queues(topic, self._cluster)
            except TopicNotFoundError:
                queues = ()
        if not queues:
            raise NoBrokerForGroupError(self._group, topic)
        at = queues[0].queue
        first = MessageQueue(dlq_topic(self._group), at.cluster, at.broker_name, 0)
        held = replace(queues[0], queue=first, is_readable=True, is_writable=True)
        return PlannedImport(self._group, held, len((await self._done(held))[0]))

    async def run(self, held: HeldQueue, run: Run, *, now: datetime) -> int:
        """Store the lines that are not there yet; return how many.

        Raises NotAllSentError, when the broker does not accept some and stored the others, and ReplayFailedError.
        """
        source = of_file(self._content.digest)
        done, record_end = await self._done(held)
        record = self._letters.record_at(held)
        sender = RecordedSender(self._messages, self._letters, run, source=source, record=record, end=record_end)
        batch: list[Addressed] = []
        size, is_first = 0, True
        try:
            for line in self._content.lines(now=now):
                if line.group != self._group or line.number in done:
                    continue
                batch.append(Addressed(line.number, held, line.letter))
                size += len(line.letter.message.body)
                # The first one alone: another run of this file is noticed by its record.
                if is_first or len(batch) >= run.pace.batch or size >= BATCH_BYTES:
                    await sender.send(batch)
                    batch, size, is_first = [], 0, False
            await sender.send(batch)
        except NotAllSentError:
            raise
        except PointsmanError as error:
            raise ReplayFailedError(sender.sending.sent, error) from error
        if sender.sending.not_sent:
            raise NotAllSentError(sender.sending.sent, sender.sending.not_sent)
        return sender.sending.sent

    async def _done(self, held: HeldQueue) -> tuple[NumberRanges, int]:
        """Return the lines that were stored, at any broker, and the end of the record at this one."""
        source = of_file(self._content.digest)
        done, end = await self._letters.recorded(self._letters.record_at(held), source)
        for other in await self._letters.queues(self._cluster):
            if other.addr != held.addr:
                done.update((await self._letters.recorded(self._letters.record_at(other), source))[0])
        return done, end
