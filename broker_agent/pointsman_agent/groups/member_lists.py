"""The last member lists, stored next to the offsets: after a start the agent knows which members must reconnect."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from pointsman.client_id import client_id_problem
from pointsman.clock import Clock
from pointsman.deadline import within
from pointsman.names import name_problem
from pointsman_agent.groups.group_servicer import ConsumerGroups
from pointsman_agent.replaced_file import ReplacedFile

RECALL_SECONDS = 1.0
"""Time from the start until groups may be RECOVERED if no list was stored: connected clients reconnect in it."""
POLL_SECONDS = 0.2
"""Poll interval until the offsets are loaded."""
WRITE_INTERVAL_SECONDS = 1.0
"""Maximum age of the lists after a crash."""
RETRY_SECONDS = 5.0
NOT_OURS_SECONDS = 30.0
"""Time after which a store that another agent writes is tried again."""
FINAL_WRITE_SECONDS = 1.0
MAX_FILE_BYTES = 64 * 1024 * 1024
FORMAT, VERSION = "pointsman-members", 1

log = logging.getLogger(__name__)

MemberLists = Mapping[str, Sequence[str]]


class MemberListsFailed(Exception):
    """The lists could not be read or written; the text has the reason. Retriable."""


class MemberListStore(Protocol):
    """Each call has a deadline. At most one call at a time."""

    async def load(self) -> MemberLists | None:
        """Read the lists; None if none were ever stored. Raises MemberListsFailed."""
        ...

    async def write(self, lists: MemberLists) -> None:
        """Replace the stored lists. Raises MemberListsFailed."""
        ...

    def is_ours(self) -> bool:
        """Whether this agent may write the store now."""
        ...

    async def close(self) -> None:
        """Release it. The last call."""
        ...


class MemberListKeeper:
    """Reads the lists at the start, then writes each change: :meth:`run`, then :meth:`finish`.

    ``groups_with_offsets`` returns the groups that have committed offsets; None while these are not loaded.
    """

    def __init__(
        self,
        groups: ConsumerGroups,
        store: MemberListStore,
        *,
        groups_with_offsets: Callable[[], Collection[str] | None],
        clock: Clock,
    ) -> None:
        self._groups = groups
        self._store = store
        self._groups_with_offsets = groups_with_offsets
        self._clock = clock
        self._written: MemberLists | None = None
        self._is_recalled = False
        self._is_failing = False

    async def run(self) -> None:
        """Read the lists, then write each change within about a second, until cancelled."""
        await self._recall()
        self._groups.members_changed.set()
        while True:
            await self._groups.members_changed.wait()
            self._groups.members_changed.clear()
            if not self._store.is_ours():
                self._written = None
                await self._again_in(NOT_OURS_SECONDS)
            elif await self._write():
                await self._clock.sleep(WRITE_INTERVAL_SECONDS)
            else:
                await self._again_in(RETRY_SECONDS)

    async def finish(self) -> None:
        """Write a last time, after :meth:`run` was cancelled, and close the store."""
        if self._is_recalled and self._store.is_ours():
            try:
                await within(self._clock, FINAL_WRITE_SECONDS, self._write())
            except TimeoutError:
                log.warning(
                    "member lists were not written in time at the stop; groups wait the full warm-up after the restart"
                )
        await self._store.close()

    async def _recall(self) -> None:
        started = self._clock.monotonic()
        while True:
            try:
                lists = await self._store.load()
                break
            except MemberListsFailed as error:
                self._note(error)
                await self._clock.sleep(WRITE_INTERVAL_SECONDS)
        self._note(None)
        self._groups.recall(lists, with_offsets=await self._await_offsets(started) if lists is None else ())
        self._is_recalled = True

    async def _await_offsets(self, started: float) -> Collection[str]:
        while (with_offsets := self._groups_with_offsets()) is None:
            await self._clock.sleep(POLL_SECONDS)
        await self._clock.sleep(max(0.0, started + RECALL_SECONDS - self._clock.monotonic()))
        # A member that has reconnected and commits shows that its group is not new.
        return self._groups_with_offsets() or with_offsets

    async def _write(self) -> bool:
        lists = self._groups.core.member_lists()
        if lists == self._written:
            return True
        try:
            await self._store.write(lists)
        except MemberListsFailed as error:
            self._written = None
            self._note(error)
            return False
        self._written = lists
        self._note(None)
        return True

    async def _again_in(self, seconds: float) -> None:
        await self._clock.sleep(seconds)
        self._groups.members_changed.set()

    def _note(self, error: MemberListsFailed | None) -> None:
        """Log the first failure of the store, and its recovery."""
        if error is not None and not self._is_failing:
            facts = {"error": str(error)}
            log.warning(
                "member lists cannot be written; after a restart groups wait the full warm-up", extra={"facts": facts}
            )
        elif error is None and self._is_failing:
            log.info("member lists are written again")
        self._is_failing = error is not None


class MemberListFile:
    """The lists in one JSON file."""

    def __init__(self, path: Path, *, clock: Clock) -> None:
        self._file = ReplacedFile(
            path, name="member-lists", max_bytes=MAX_FILE_BYTES, failure=MemberListsFailed, clock=clock
        )

    async def load(self) -> MemberLists | None:
        """See :meth:`MemberListStore.load`. An unreadable file counts as none."""
        return await self._file.load(self._parse)

    async def write(self, lists: MemberLists) -> None:
        """See :meth:`MemberListStore.write`."""
        await self._file.write(lambda: json.dumps({"format": FORMAT, "version": VERSION, "groups": lists}))

    def is_ours(self) -> bool:
        """See :meth:`MemberListStore.is_ours`."""
        return True

    async def close(self) -> None:
        """See :meth:`MemberListStore.close`."""

    def _parse(self, data: bytes) -> MemberLists | None:
        try:
            content = json.loads(data)
            if (content["format"], content["version"]) == (FORMAT, VERSION):
                return {group: sound_list(group, client_ids) for group, client_ids in content["groups"].items()}
            problem = f"has format {content['format']!r} {content['version']!r}"
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            problem = str(error)
        facts = {"file": self._file.path, "bytes": len(data), "problem": problem}
        log.warning("member list file is damaged and was ignored", extra={"facts": facts})
        return None


def sound_list(group: str, client_ids: Sequence[str]) -> list[str]:
    """Return a list as stored. Raises ValueError for one that an agent cannot have written."""
    problem = name_problem(group)
    if problem is not None:
        raise ValueError(f"group {group!r} {problem}")
    for client_id in client_ids:
        problem = client_id_problem(client_id)
        if problem is not None:
            raise ValueError(f"client id {client_id!r} of group {group} {problem}")
    return list(client_ids)
