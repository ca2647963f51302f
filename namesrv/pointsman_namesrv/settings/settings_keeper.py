"""Changes of settings, one at a time: first on disk, then in the server. Timed changes are saved at each interval.

A separate thread writes, so that a hanging disk blocks neither serving nor the stop of the process.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable
from functools import partial
from typing import Generic, NamedTuple, TypeVar

from pointsman.clock import Clock
from pointsman.storage.worker_thread import WorkerThread
from pointsman_namesrv.core import saved_settings
from pointsman_namesrv.core.name_server import NameServer
from pointsman_namesrv.core.node_refusals import LimitExceeded, SettingNotSaved
from pointsman_namesrv.core.saved_settings import Rows
from pointsman_namesrv.node_metrics import Metrics
from pointsman_namesrv.settings.settings_store import SettingsStore

SAVE_SECONDS = 5.0
"""Longest wait of a change for the disk."""
MAX_WAITING = 100
"""Changes that may wait for the current one."""

log = logging.getLogger(__name__)

T = TypeVar("T")


class Done(NamedTuple, Generic[T]):
    """A change that was applied."""

    outcome: T
    is_saved: bool
    """Whether it is on disk. False also if the configuration keeps nothing on disk."""
    warning: str = ""
    """The error of the disk."""


class SettingsKeeper:
    """The settings of one process: :meth:`load`, then :meth:`change` and :meth:`run`, finally :meth:`stop`.

    Without a store every change is applied and none is saved.
    """

    def __init__(
        self, core: NameServer, store: SettingsStore | None, *, interval: float, clock: Clock, metrics: Metrics
    ) -> None:
        self._core = core
        self._store = store
        self._interval = interval
        self._clock = clock
        self._metrics = metrics
        self._one_at_a_time = asyncio.Lock()
        self._changes: set[asyncio.Task[object]] = set()
        self._thread = WorkerThread("settings")
        self._hanging: asyncio.Future[None] | None = None
        """The write that has not finished in time."""
        self._found = ""
        self._error = ""

    def load(self) -> None:
        """Read the settings and apply them. Blocks; runs before the snapshot's brokers and before anything is served.

        Raises PermissionError for a database that this user may not read.
        """
        if self._store is None:
            return
        saved, self._found = self._store.load()
        refused = saved_settings.restore(self._core, saved, now=self._clock.monotonic())
        for key, problem in refused.items():
            facts = {"kind": key.kind.value, "name": "/".join(key.name), "problem": problem}
            log.error("operator setting rejected; it does not apply", extra={"facts": facts})
        if refused and not self._found:
            self._found = f"{len(refused)} settings of operators were refused at the start; the log names them"
        self._metrics.settings_refused.inc(len(refused) + bool(self._found and not refused))
        log.info("operator settings loaded", extra={"facts": {"settings": len(saved) - len(refused)}})
        self._thread.start()

    async def change(self, check: Callable[[], Rows], apply: Callable[[], T], *, may_be_lost: bool = False) -> Done[T]:
        """Apply one change: check, save, check again and apply in one step.

        ``check`` returns the settings after the change, or raises; ``apply`` raises the same. If the second check
        raises, the saved rows are removed again. A change that ``may_be_lost`` is applied even if the disk fails, with
        a warning: that is for the guard and maintenance, which operators need most when disks fail. Any other change
        then raises SettingNotSaved. Raises LimitExceeded when too many changes wait. Cancelling the caller does not
        stop a change that has begun.
        """
        if len(self._changes) >= MAX_WAITING:
            raise LimitExceeded("waiting_admin_changes", MAX_WAITING)
        is_abandoned = asyncio.Event()
        task = asyncio.create_task(self._make(check, apply, is_abandoned, may_be_lost=may_be_lost))
        self._changes.add(task)
        task.add_done_callback(self._end)
        try:
            return await asyncio.shield(task)
        finally:
            is_abandoned.set()

    def _end(self, task: asyncio.Task[object]) -> None:
        self._changes.discard(task)
        if not task.cancelled():
            task.exception()  # the caller has it, or was cancelled

    async def _make(
        self, check: Callable[[], Rows], apply: Callable[[], T], is_abandoned: asyncio.Event, *, may_be_lost: bool
    ) -> Done[T]:
        async with self._one_at_a_time:
            if is_abandoned.is_set():
                raise asyncio.CancelledError
            rows = check()
            if self._store is None:
                return Done(apply(), is_saved=False)
            try:
                await self._save(self._store.differing(rows))
            except OSError as error:
                self._note_error(error)
                if not may_be_lost:
                    raise SettingNotSaved(str(error)) from error
                warning = f"a restart of this name server loses the setting, because it could not be saved: {error}"
                return Done(apply(), is_saved=False, warning=warning)
            try:
                return Done(apply(), is_saved=True)
            finally:
                await self._correct(self._store, rows)

    async def _correct(self, store: SettingsStore, rows: Rows) -> None:
        """Remove what was saved and then refused. If the disk fails now, the next interval repeats it."""
        try:
            await self._save(store.differing({key: saved_settings.setting_of(self._core, key) for key in rows}))
        except OSError as error:
            self._note_error(error)

    # --- timed changes ----------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Save at each interval what ended by itself and what the disk refused before, until cancelled."""
        while True:
            await self._clock.sleep(self._interval)
            await self.save()

    async def save(self) -> bool:
        """Save what differs on disk; return whether that succeeded."""
        if self._store is None:
            return True
        async with self._one_at_a_time:
            try:
                await self._save(self._store.difference_from(saved_settings.settings_of(self._core)))
            except OSError as error:
                self._note_error(error)
                return False
        if self._error:
            log.info("operator settings are saved again")
        self._error = ""
        return True

    async def stop(self, *, within: float) -> bool:
        """Save a last time and close the file; return whether that was done ``within`` seconds."""
        if not self._thread.is_alive() or self._store is None:
            return True
        try:
            async with asyncio.timeout(within):
                if self._changes:
                    await asyncio.wait(self._changes)
                saved = await self.save()
                await self._thread.run(self._store.close)
        except TimeoutError:
            return False
        finally:
            self._thread.stop()
        self._thread.join(within)
        return saved

    def problems(self) -> list[str]:
        """Return the problems of the settings on disk."""
        found = [self._found] if self._found else []
        if self._error:
            found.append(f"settings of operators cannot be saved, and a restart loses the last ones: {self._error}")
        return found

    # --- the disk ---------------------------------------------------------------------------------------------

    async def _save(self, rows: Rows) -> None:
        """Save the rows. Raises OSError, also when it takes too long."""
        store = self._store
        if store is None or not rows:
            return
        if self._hanging is not None:
            raise _late(store)
        writing = self._thread.run(partial(store.write, rows))
        await asyncio.wait([writing], timeout=SAVE_SECONDS)
        if not writing.done():
            self._hanging = writing
            writing.add_done_callback(self._end_hanging)
            raise _late(store)
        try:
            writing.result()
        except OSError:
            raise
        except Exception as error:  # an error of this program must not be reported as one of the disk
            log.exception("operator settings cannot be saved: unexpected exception")
            raise OSError(errno.EIO, str(error)) from error

    def _end_hanging(self, writing: asyncio.Future[None]) -> None:
        self._hanging = None
        if not writing.cancelled():
            writing.exception()

    def _note_error(self, error: OSError) -> None:
        self._metrics.settings_errors.inc()
        if not self._error:
            log.error("operator settings cannot be saved; changes are rejected", extra={"facts": {"error": str(error)}})
        self._error = str(error)


def _late(store: SettingsStore) -> OSError:
    return OSError(errno.ETIMEDOUT, f"the disk has not responded for {SAVE_SECONDS:g} s", str(store.path))
