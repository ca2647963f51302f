"""Periodic tasks: sweeps, own pauses, the end of the warm-up, NAMESRV_ALIVE rows and checkpoints."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable

from pointsman.clock import Clock
from pointsman_namesrv.core.broker_events import absence_event, checkpoint_event, full_checkpoint_events
from pointsman_namesrv.core.events import Event, EventKind, RecordEvents
from pointsman_namesrv.core.lifecycle import NodeLifecycle
from pointsman_namesrv.core.model import NodeState, Reason
from pointsman_namesrv.core.name_server import NameServer
from pointsman_namesrv.history.recorder import Recorder
from pointsman_namesrv.lateness import LoopLateness
from pointsman_namesrv.node_metrics import Metrics
from pointsman_namesrv.own_pauses import OwnPauses

ALIVE_SECONDS = 60.0
"""Interval of NAMESRV_ALIVE rows. NAMESRV_STARTED states it, so that a reader notices a silence."""
STEP_SECONDS = 0.5
REPEAT_SECONDS = 60.0
"""Shortest time between two checkpoints of states after lost rows."""
CHECKPOINTS_PER_STEP = 20
PATIENCE_STEPS = 20


class PeriodicTasks:
    """The periodic tasks of one name server, run by :meth:`run`."""

    def __init__(
        self,
        core: NameServer,
        recorder: Recorder,
        *,
        record: RecordEvents,
        pauses: OwnPauses,
        lifecycle: NodeLifecycle,
        clock: Clock,
        metrics: Metrics,
        settle: Callable[[], Awaitable[bool]],
        until_read: Callable[[], Awaitable[None]],
    ) -> None:
        """``settle()`` lets the index of routes follow by one slice, and returns whether it still lags.

        ``until_read()`` waits until the history of earlier runs was read.
        """
        self._core = core
        self._settle_slice = settle
        self._until_read = until_read
        self._recorder = recorder
        self._record = record
        self._lifecycle = lifecycle
        self._clock = clock
        self._metrics = metrics
        self._pauses = pauses

    def end_warm_up(self, now: float) -> None:
        """Make the node READY if it need not wait for any broker."""
        if self._lifecycle.state is NodeState.WARMING:  # the count below walks over all brokers
            self._record(self._lifecycle.end_warm_up(now=now, still_provisional=self._core.provisional_count()))

    async def run(self) -> None:
        """Run until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._sweep())
            tasks.create_task(self._settle())
            tasks.create_task(self._record_alive())
            tasks.create_task(self._write_checkpoints())

    async def _sweep(self) -> None:
        """Sweep at intervals. The task measures its own lateness, so that a pause is credited before brokers expire."""
        lateness = LoopLateness(self._clock)
        swept_at = lateness.woken_at
        while True:
            due = swept_at + self._core.sweep_interval()
            # In steps: a broker that registers in the meantime may declare a shorter expiry.
            step = min(max(0.0, due - lateness.woken_at), STEP_SECONDS)
            # A heartbeat that was received during the pause after the last sweep may have credited more than that.
            self._pauses.expect(lateness.woken_at + step)
            self._metrics.loop_lag.observe(await lateness.sleep(step))
            now = lateness.woken_at
            self._pauses.catch_up(now)
            self.end_warm_up(now)
            if now >= due:
                swept_at = now
                await self._sweep_once(now)

    async def _sweep_once(self, now: float) -> None:
        core, metrics = self._core, self._metrics
        self._record(core.sweep(now=now))
        metrics.sweep_seconds.observe(self._clock.monotonic() - now)
        await self._clock.sleep(0)  # with 10,000 brokers each half holds the loop for some 20 ms
        metrics.show_brokers(core.members())
        metrics.show_ages(sorted(now - replica.pulse.last_seen for _, replica in core.members()))
        known = core.guard.clusters_in_use()
        active = [cluster for cluster in known if core.guard.status(cluster).active]
        metrics.show_guard(active, core.guard.overdue(), known)
        metrics.topics.set(core.routes.topic_count())
        metrics.address_conflicts.set(len(core.addresses.shared))
        metrics.flapping.set(core.penalties.flapping_count(now=now))

    async def _settle(self) -> None:
        """Let the index follow the removal of a large broker, for which no call waits."""
        while True:
            if not await self._settle_slice():
                await self._clock.sleep(STEP_SECONDS)

    async def _record_alive(self) -> None:
        while True:
            await self._clock.sleep(ALIVE_SECONDS)
            states = Counter(replica.state.phase.value for _, replica in self._core.members())
            detail: dict[str, object] = {
                "state": self._lifecycle.state.value,
                "brokers": dict(states),
                "rows_dropped": self._recorder.dropped,
            }
            self._record((Event(kind=EventKind.NAMESRV_ALIVE, detail=detail),))

    async def _write_checkpoints(self) -> None:
        """Write a full checkpoint on each UTC day, which can then be read alone; repeat states after lost rows."""
        has_restored = bool(self._core.provisional_count() or self._core.departed)
        await self._until_read()  # the snapshot may be older than the last rows of the run before
        if has_restored or self._core.departed:
            # A window that ended before this start: the rows below must not call that absence planned.
            while events := self._core.absences.end_windows(now=self._clock.monotonic()):
                self._record(events)
            await self._write_checkpoint(Reason.START)
        day, dropped, not_before = self._clock.utc_now().date(), self._recorder.dropped, self._clock.monotonic()
        while True:
            await self._clock.sleep(STEP_SECONDS)
            today, now = self._clock.utc_now().date(), self._clock.monotonic()
            if today > day:  # a clock that moves back around midnight does not begin the day again
                day, dropped = today, self._recorder.dropped
                await self._write_checkpoint(Reason.DAY)
            elif self._recorder.dropped == dropped or now < not_before:
                continue
            elif not self._recorder.is_pressed and not self._recorder.is_refused:
                # If rows of the checkpoint itself are dropped it is repeated, after a pause.
                dropped, not_before = self._recorder.dropped, now + REPEAT_SECONDS
                await self._write_checkpoint(Reason.DROPPED)

    async def _write_checkpoint(self, reason: Reason) -> None:
        replicas, departed = self._core.replicas(), self._core.departed.all()
        of = len(replicas) + len(departed)
        for number, (group, replica) in enumerate(replicas, 1):
            if group.replicas.get(replica.identity.broker_id) is replica:
                now = self._clock.monotonic()
                if reason is Reason.DAY:
                    self._record(self._core.close_heartbeats(replica, now=now))
                if reason is Reason.DROPPED:
                    self._record((checkpoint_event(replica, reason, number=number, of=of, now=now),))
                else:
                    writable = group.key not in self._core.overrides.wipes
                    self._record(
                        full_checkpoint_events(group, replica, reason, number=number, of=of, writable=writable, now=now)
                    )
            if number % CHECKPOINTS_PER_STEP == 0:
                await self._throttle_checkpoint()
        for number, broker in enumerate(departed, len(replicas) + 1):
            current = self._core.departed.get(broker.registration.identity.position)
            if current is not None:
                now = self._clock.monotonic()
                self._record((absence_event(current, reason, number=number, of=of, now=now),))
            if number % CHECKPOINTS_PER_STEP == 0:
                await self._throttle_checkpoint()

    async def _throttle_checkpoint(self) -> None:
        """Wait up to 10 s while the history queue is over half full. A failing disk is not waited for."""
        await self._clock.sleep(0)
        for _ in range(PATIENCE_STEPS):
            if not self._recorder.is_pressed:
                break
            await self._clock.sleep(STEP_SECONDS)
