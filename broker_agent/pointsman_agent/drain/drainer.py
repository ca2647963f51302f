"""Drain this broker: execute the plan of ``core/drain.py`` step by step, report progress, and undo it when aborted.

At most one drain runs, in its own task, so that a caller who is disconnected during the last step leaves no half-done
drain. Before that step an abort, or a stop of the agent, undoes what was done.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pointsman.clock import Clock
from pointsman.deadline import within
from pointsman_agent.core.drain import (
    Answer,
    DrainOptions,
    DrainStep,
    Progress,
    QuietWatch,
    StepState,
    lag_outcome,
    lag_progress,
    may_be_aborted,
    plan,
    undo_of,
    unregister_outcome,
    wipe_outcome,
)
from pointsman_agent.core.drain_lag import LagReport
from pointsman_agent.drain.write_perm import PermChange

POLL_INTERVAL_SECONDS = 1.0
"""Poll interval of the put rate."""
LOG_EVERY_POLLS = 10
"""Report the put rate every Nth poll."""
PUT_RATE_SECONDS = 3.0
"""Deadline of one poll."""
LAG_SECONDS = 30.0
"""Deadline of one lag measurement."""
LAG_REPORT_SECONDS = 5.0
"""Time between two lag reports, unless a group lost its last member."""
LAG_PAUSE_RATIO = 4.0
"""Pause after a measurement, as a multiple of its duration, so that many queues do not keep a broker busy."""
MAX_REPORTS = 1_000
"""Maximum number of reports stored for readers; the oldest are dropped."""
STOP_GROUPS_SECONDS = 10.0
UNREGISTER_SECONDS = 10.0
UNDO_SECONDS = 10.0

log = logging.getLogger(__name__)


class Permissions(Protocol):
    """Write permission of this broker's topics (:class:`pointsman_agent.drain.write_perm.WritePermissions`)."""

    async def set(self, name_server: str, *, writable: bool) -> PermChange:
        """Wipe or restore it on one name server."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainedAgent:
    """What a drain needs from the agent."""

    is_master: Callable[[], bool]
    """Whether the broker accepts writes."""
    name_servers: Callable[[], Sequence[str]]
    """The name servers with which the broker is registered now."""
    put_rate: Callable[[], Coroutine[Any, Any, float | None]] | None
    """Messages written per second, None while unknown. None instead of a function: always unknown."""
    group_lags: Callable[[], Coroutine[Any, Any, LagReport | None]] | None
    """Lag of consumer groups, None while unknown. None instead of a function: always unknown."""
    stop_groups: Callable[[], Coroutine[Any, Any, None]] | None
    """End the streams of consumers, and refuse new ones. None: no groups are served."""
    serve_groups: Callable[[], Coroutine[Any, Any, None]] | None
    """Undoes ``stop_groups``."""
    unregister: Callable[[], Coroutine[Any, Any, Mapping[str, Answer]]]
    """Unregister at every name server with the reason DRAIN; return the responses."""


class DrainRunning(Exception):
    """Another drain is running."""

    def __init__(self, by: str) -> None:
        super().__init__(f"a drain started by {by or 'another operator'} is already running")
        self.by = by


class DrainRun:
    """One drain: its progress and its end. Any number of readers may call :meth:`progress`."""

    def __init__(
        self, agent: DrainedAgent, permissions: Permissions, options: DrainOptions, *, by: str, clock: Clock
    ) -> None:
        self.by = by
        self.is_done = False
        """Whether the broker is drained."""
        self._agent = agent
        self._permissions = permissions
        self._options = options
        self._clock = clock
        self._began_at = clock.monotonic()
        self._reports: deque[tuple[Progress, float]] = deque(maxlen=MAX_REPORTS)
        self._report_count = 0
        self._has_reports = asyncio.Event()
        self._begun: list[DrainStep] = []
        self._wiped: set[str] = set()
        self._is_undoing = False
        self._task: asyncio.Task[None] | None = None

    @property
    def is_running(self) -> bool:
        """Whether it has started and not ended."""
        return self._task is not None and not self._task.done()

    def start(self) -> None:
        """Start it."""
        self._task = asyncio.create_task(self._run())
        self._task.add_done_callback(lambda _: self._has_reports.set())

    def abort(self) -> None:
        """Undo it, unless it has reached its last step."""
        last = self._begun[-1] if self._begun else None
        if self._task is not None and self.is_running and not self._is_undoing and may_be_aborted(last):
            self._task.cancel()

    async def ended(self) -> None:
        """Wait for its end, undoing included."""
        if self._task is not None:
            await asyncio.wait({self._task})

    async def progress(self) -> AsyncGenerator[tuple[Progress, float], None]:
        """Yield each report from the first on, with the seconds since the drain began, until the drain ends.

        Raises the exception that the drain failed with, once it is undone.
        """
        sent = 0
        while True:
            self._has_reports.clear()
            while sent < self._report_count:
                sent = max(sent, self._report_count - len(self._reports)) + 1
                yield self._reports[sent - 1 - self._report_count]
            if self._task is None or self._task.done():
                break
            await self._has_reports.wait()
        if self._task is not None:
            self._task.result()

    async def _run(self) -> None:
        undone_because = "failed"
        try:
            undone_because = "" if await self._advance() else "given up"
        except asyncio.CancelledError:
            undone_because = "aborted"
        finally:
            if undone_because:
                self._is_undoing = True
                await self._undo(undone_because)

    async def _advance(self) -> bool:
        """Execute the steps; return False if one of them stopped the drain."""
        agent = self._agent
        steps = {
            DrainStep.WIPE_WRITE_PERM: self._wipe,
            DrainStep.WAIT_FOR_PRODUCERS: self._wait_for_producers,
            DrainStep.WAIT_FOR_CONSUMERS: self._wait_for_consumers,
            DrainStep.STOP_GROUPS: self._stop_groups,
            DrainStep.UNREGISTER: self._unregister,
        }
        planned = plan(
            is_master=agent.is_master(),
            knows_put_rate=agent.put_rate is not None,
            knows_lag=agent.group_lags is not None,
            serves_groups=agent.stop_groups is not None,
        )
        for each in planned:
            if each.skipped_because:
                self._report(Progress(each.step, StepState.SKIPPED, each.skipped_because))
                continue
            self._begun.append(each.step)
            self._report(Progress(each.step, StepState.RUNNING))
            if not await steps[each.step]():
                return False
        self.is_done = True
        return True

    async def _wipe(self) -> bool:
        outcome = wipe_outcome(await self._set_write_perm(self._agent.name_servers(), writable=False))
        self._report(outcome)
        return not outcome.name_servers or any(answer.done for answer in outcome.name_servers.values())

    async def _wait_for_producers(self) -> bool:
        watch = QuietWatch(quiet_seconds=self._options.quiet_seconds)
        ends_at = self._clock.monotonic() + self._options.producers_seconds
        polls = 0
        while True:
            rate = await self._put_rate()
            now = self._clock.monotonic()
            if watch.take(rate, now=now):
                self._report(Progress(DrainStep.WAIT_FOR_PRODUCERS, StepState.DONE))
                return True
            rate_text = "put rate unknown" if rate is None else f"{rate:g} messages/s are written"
            if now >= ends_at:
                self._report(Progress(DrainStep.WAIT_FOR_PRODUCERS, StepState.TIMED_OUT, f"{rate_text}; continuing"))
                return True
            if polls % LOG_EVERY_POLLS == 0:
                self._report(Progress(DrainStep.WAIT_FOR_PRODUCERS, StepState.RUNNING, rate_text))
            polls += 1
            await self._clock.sleep(min(POLL_INTERVAL_SECONDS, ends_at - now))

    async def _put_rate(self) -> float | None:
        if self._agent.put_rate is None:
            return None
        try:
            return await within(self._clock, PUT_RATE_SECONDS, self._agent.put_rate())
        except TimeoutError:
            return None

    async def _wait_for_consumers(self) -> bool:
        # At least two measurements: within one, the ends are older than the commits.
        watch = QuietWatch(quiet_seconds=max(self._options.quiet_seconds, POLL_INTERVAL_SECONDS))
        ends_at = self._clock.monotonic() + self._options.consumers_seconds
        last, report_at, alone = None, -math.inf, frozenset[str]()
        while True:
            began = self._clock.monotonic()
            report = await self._group_lags()
            now = self._clock.monotonic()
            is_over = now >= ends_at
            if watch.take(None if report is None else float(report.awaited_lag), now=now) or is_over:
                self._report(lag_outcome(report, is_over=is_over))
                return True
            groups = report.groups if report is not None else ()
            before, alone = alone, frozenset(each.group for each in groups if not each.is_waited_for)
            if alone - before or (now >= report_at and report != last):
                self._report(lag_progress(report, seconds_left=ends_at - now))
                last, report_at = report, now + LAG_REPORT_SECONDS
            await self._clock.sleep(min(max(POLL_INTERVAL_SECONDS, LAG_PAUSE_RATIO * (now - began)), ends_at - now))

    async def _group_lags(self) -> LagReport | None:
        if self._agent.group_lags is None:
            return None
        try:
            return await within(self._clock, LAG_SECONDS, self._agent.group_lags())
        except TimeoutError:
            return None

    async def _stop_groups(self) -> bool:
        try:
            if self._agent.stop_groups is not None:
                await within(self._clock, STOP_GROUPS_SECONDS, self._agent.stop_groups())
        except TimeoutError:
            detail = f"not done within {STOP_GROUPS_SECONDS:g} s; continuing"
            self._report(Progress(DrainStep.STOP_GROUPS, StepState.TIMED_OUT, detail))
        else:
            self._report(Progress(DrainStep.STOP_GROUPS, StepState.DONE))
        return True

    async def _unregister(self) -> bool:
        try:
            answers = await within(self._clock, UNREGISTER_SECONDS, self._agent.unregister())
        except TimeoutError:
            detail = f"not every name server responded within {UNREGISTER_SECONDS:g} s"
            self._report(Progress(DrainStep.UNREGISTER, StepState.TIMED_OUT, detail))
        else:
            self._report(unregister_outcome(answers))
        return True

    async def _undo(self, why: str) -> None:
        undo = undo_of(self._begun, self._wiped)
        state, detail = StepState.DONE, why
        try:
            if undo.serve_groups and self._agent.serve_groups is not None:
                await within(self._clock, UNDO_SECONDS, self._agent.serve_groups())
        except TimeoutError:
            state, detail = StepState.FAILED, f"{why}; consumer groups are not served again yet"
        answers = await self._set_write_perm(undo.give_back_at, writable=True)
        left = sorted(addr for addr, answer in answers.items() if not answer.done)
        if left:
            state = StepState.FAILED
            detail += f"; the write permission may still be wiped on {', '.join(left)}"
        self._report(Progress(DrainStep.UNDO, state, detail, answers))

    async def _set_write_perm(self, name_servers: Sequence[str], *, writable: bool) -> dict[str, Answer]:
        if not writable:
            # Before the first response: an abort in between must know where to restore the permission.
            self._wiped.update(name_servers)
        changes = await asyncio.gather(*(self._permissions.set(addr, writable=writable) for addr in name_servers))
        by_addr = dict(sorted(zip(name_servers, changes, strict=True)))
        if not writable:
            self._wiped = {addr for addr, change in by_addr.items() if change.may_have_changed}
        return {addr: change.answer for addr, change in by_addr.items()}

    def _report(self, progress: Progress) -> None:
        self._reports.append((progress, self._clock.monotonic() - self._began_at))
        self._report_count += 1
        self._has_reports.set()
        facts: dict[str, object] = {
            "step": progress.step.value,
            "state": progress.state.value,
            "detail": progress.detail,
            "by": self.by,
            "name_servers": {addr: answer.text for addr, answer in progress.name_servers.items()},
            "unread": {each.group: each.lag for each in progress.groups},
        }
        level = logging.WARNING if progress.state in {StepState.FAILED, StepState.TIMED_OUT} else logging.INFO
        log.log(level, "drain progress", extra={"facts": {name: value for name, value in facts.items() if value}})


class Drainer:
    """The drains of one agent. At most one runs, and a finished one is not repeated."""

    def __init__(self, agent: DrainedAgent, permissions: Permissions, *, clock: Clock) -> None:
        self._agent = agent
        self._permissions = permissions
        self._clock = clock
        self._last: DrainRun | None = None

    @property
    def state(self) -> str:
        """``draining``, ``drained`` or empty."""
        if self._last is None:
            return ""
        if self._last.is_running:
            return "draining"
        return "drained" if self._last.is_done else ""

    def drain(self, options: DrainOptions, *, by: str) -> DrainRun:
        """Start a drain, or return the finished one. Raises DrainRunning."""
        if self._last is not None and self._last.is_running:
            raise DrainRunning(self._last.by)
        if self._last is None or not self._last.is_done:
            self._last = DrainRun(self._agent, self._permissions, options, by=by, clock=self._clock)
            self._last.start()
        return self._last

    async def close(self, *, seconds: float) -> None:
        """Abort a running drain and wait at most ``seconds`` for its end; called before the agent unregisters."""
        if self._last is None or not self._last.is_running:
            return
        self._last.abort()
        try:
            await within(self._clock, seconds, self._last.ended())
        except TimeoutError:
            log.warning(
                "drain was not reverted in time; the agent stops, and the broker may be left without write permission",
                extra={"facts": {"seconds": seconds}},
            )
