"""One member of a group that leases messages: receives them, reports the group's progress, moves dead letters."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pointsman.clock import Clock
from pointsman_client.aio import done_within, end_tasks, start_task
from pointsman_client.consumer.failed_messages import FailedMessages
from pointsman_client.consumer.held_leases import HeldLeases
from pointsman_client.consumer.message_popper import LeasingTransport, MessagePopper
from pointsman_client.consumer.readable_queues import ReadableQueues
from pointsman_client.consumer.start_offset import StartOffsets
from pointsman_client.consumer.stated_modes import StatedModes
from pointsman_client.core.application_view import ApplicationView
from pointsman_client.core.consumer_health import ConsumerHealth
from pointsman_client.core.consumer_reading import ConsumerReading, QueueReading
from pointsman_client.core.lease import GroupBacklog, LeasedMessage
from pointsman_client.core.message import ReceivedMessage
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.read_choice import QueueFailures
from pointsman_client.core.rebalance import ConsumeFrom
from pointsman_client.core.retry_rules import MAX_RECONSUME_TIMES, Destination
from pointsman_client.core.subscription import Subscription
from pointsman_client.errors import OffsetResetError, PointsmanError
from pointsman_client.metrics_hook import MetricsHook
from pointsman_client.ports.coordination import Coordination, Routes

END_SECONDS = 0.5
LEAVE_SECONDS = 2.0
EMPTY_WAKE_SECONDS = 0.1
"""Pause before messages are requested again that brokers reported MAX_EMPTY_WAKES times and did not hand out."""
MAX_EMPTY_WAKES = 3

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasingSetting:
    """Settings of a member that leases messages, derived from the options of its consumer."""

    group: str
    client_id: str
    is_ordered: bool
    consume_from: ConsumeFrom
    consume_timestamp: datetime | None
    request_timeout_seconds: float
    send_back_timeout_seconds: float
    persist_offset_interval_seconds: float
    max_renew_seconds: float | None
    """Time from a delivery after which its lease is renewed no further; None: leases are not renewed."""
    max_reconsume_times: int | None
    """Deliveries after the first one, before a received message becomes a dead letter; None: that is left to the one
    who receives it."""
    on_dead_letter: Callable[[ReceivedMessage, str], object] | None
    raises_refusals: bool
    """Whether a receive raises GroupModeError; otherwise such topics are not read."""
    view: ApplicationView


class LeasingMember:
    """Implements ``RunningConsumer``. It joins its group with the first message or empty response of a broker.

    Until then the brokers may refuse it, because the group stores offsets; it must not disturb that group's members.
    """

    def __init__(
        self,
        setting: LeasingSetting,
        routes: Routes,
        transport: LeasingTransport,
        coordination: Coordination,
        subscriptions: dict[str, Subscription],
        *,
        modes: StatedModes | None,
        oldest_calls: Callable[[], Mapping[MessageQueue, float]],
        clock: Clock,
        hook: MetricsHook,
    ) -> None:
        """``modes``: those that brokers must state before they are read; None: any.

        ``oldest_calls``: returns when the oldest listener call of each queue began, in monotonic seconds.
        """
        self._setting = setting
        self._oldest_calls = oldest_calls
        self._transport = transport
        self._coordination = coordination
        self._subscriptions = subscriptions
        self._clock = clock
        self._hook = hook
        starts = StartOffsets(
            coordination.offsets,
            transport,
            consume_from=setting.consume_from,
            consume_timestamp=setting.consume_timestamp,
            timeout_seconds=setting.request_timeout_seconds,
            clock=clock,
        )
        self.popper = MessagePopper(
            transport,
            starts,
            routes=routes,
            queues=ReadableQueues(routes, group=setting.group, with_retry_topic=False),
            group=setting.group,
            subscriptions=subscriptions,
            is_ordered=setting.is_ordered,
            modes=modes,
            timeout_seconds=setting.request_timeout_seconds,
            clock=clock,
            hook=hook,
        )
        self.leases = HeldLeases(
            transport,
            master_of=self.popper.master_of,
            group=setting.group,
            timeout_seconds=setting.request_timeout_seconds,
            max_renew_seconds=setting.max_renew_seconds or 0.0,
            clock=clock,
            hook=hook,
        )
        times = setting.max_reconsume_times
        self._failed = FailedMessages(
            transport,
            group=setting.group,
            brokers=lambda: routes.brokers_of(subscriptions),
            max_reconsume_times=MAX_RECONSUME_TIMES if times is None else times,
            timeout_seconds=setting.send_back_timeout_seconds,
            clock=clock,
            hook=hook,
            on_dead_letter=setting.view.opening(setting.on_dead_letter),
        )
        self._backlogs: dict[MessageQueue, GroupBacklog] = {}
        self._committed: dict[MessageQueue, int] = {}
        self._epochs: dict[MessageQueue, int] = {}
        self._failing = QueueFailures()
        self.retries = 0
        """Messages whose lease was changed so that they are delivered again, counted by the one who does that."""
        self._has_joined = False
        self._tasks: list[asyncio.Task[None]] = []

    # Life cycle

    def start(self) -> None:
        """Start the background work."""
        if self._setting.max_renew_seconds is not None:
            self._begin(self.leases.run_renewal())
        self._begin(self._report_progress())

    async def close(self, *, timeout_seconds: float) -> None:
        """Report the progress, leave the group and close the coordination, within ``timeout_seconds``."""
        self.popper.stop()
        try:
            await end_tasks(self._tasks, timeout_seconds=END_SECONDS)
            await self._within(self.commit(), timeout_seconds / 2)
            if self._has_joined:
                await self._within(self._coordination.membership.leave(), min(LEAVE_SECONDS, timeout_seconds / 4))
        finally:
            await self._coordination.close()

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(start_task(work, name=f"pointsman-consumer-{self._setting.group}"))

    async def _within(self, work: Coroutine[Any, Any, None], seconds: float) -> None:
        task = start_task(work, name=f"pointsman-consumer-{self._setting.group}-close")
        try:
            await done_within(task, seconds, clock=self._clock)
        finally:
            await end_tasks([task], timeout_seconds=END_SECONDS)

    def subscriptions_changed(self) -> None:
        """Send the subscriptions to the agents."""
        self._coordination.membership.subscriptions_changed()

    # Messages

    async def receive(
        self, most: int, *, invisible_seconds: float, timeout_seconds: float
    ) -> tuple[ReceivedMessage, ...]:
        """Return up to ``most`` messages as soon as there is one; none after the timeout or when stopped.

        Raises GroupModeError if the group may not lease the messages of a topic, and others are not available.
        """
        ends_at = self._clock.monotonic() + timeout_seconds
        empty_wakes = 0
        while not self.popper.is_stopped:
            since = self._clock.monotonic()
            leased = await self.popper.pop(most, invisible_seconds=invisible_seconds)
            await self._join()
            messages = []
            for each in leased:
                self.leases.add(each, invisible_seconds=invisible_seconds, since=since)
                if not await self._is_dead_letter(each):
                    messages.append(each.message)
            if messages:
                return tuple(messages)
            if self._setting.raises_refusals:
                self.popper.raise_refusal()
            left = ends_at - self._clock.monotonic()
            if left <= 0:
                break
            began_at = self._clock.monotonic()
            await self.popper.wait(left)
            # Another member may take each message first, or the broker reports messages that it does not hand out.
            empty_wakes = 0 if self._clock.monotonic() - began_at > EMPTY_WAKE_SECONDS else empty_wakes + 1
            if empty_wakes > MAX_EMPTY_WAKES:
                await self._clock.sleep(EMPTY_WAKE_SECONDS)
        return ()

    async def _join(self) -> None:
        if not self._has_joined and self.popper.begun:
            self._has_joined = True
            await self._coordination.membership.start()

    async def _is_dead_letter(self, leased: LeasedMessage) -> bool:
        """Move a message to the dead letters that was delivered too often; it stays leased if no broker accepts it."""
        message, most = leased.message, self._setting.max_reconsume_times
        if most is None or message.reconsume_times <= most:
            return False
        error = f"not acknowledged after {message.reconsume_times} deliveries"
        if (problem := self._setting.view.opened(message).decode_error) is not None:
            error = f"{error}: {problem}"
        await self.move_to_dead_letters(message, message._replace(reconsume_times=message.reconsume_times - 1), error)
        return True

    async def move_to_dead_letters(self, message: ReceivedMessage, failed: ReceivedMessage, error: str) -> bool:
        """Move a received message to the dead letters as ``failed``, and finish it; False: no broker accepts it."""
        if not await self._failed.send(failed, error, is_rejected=True):
            return False
        try:
            await self.leases.acknowledge([message])
        except PointsmanError as failure:
            logger.warning("message %s is a dead letter and may become one again: %s", message.message_id, failure)
        return True

    @property
    def dead_letters(self) -> int:
        """Number of messages that became dead letters here."""
        return self._failed.sent[Destination.DLQ]

    # Progress

    async def _report_progress(self) -> None:
        while True:
            await self._clock.sleep(self._setting.persist_offset_interval_seconds)
            await self.commit()

    async def commit(self) -> None:
        """Commit for each queue the number of messages that the group has finished, so that the lag is known."""
        if self._transport.keeps_lease_offsets:
            return
        by_master: defaultdict[str, list[MessageQueue]] = defaultdict(list)
        failures: dict[MessageQueue, PointsmanError] = {}
        for queue in self.popper.begun:
            try:
                by_master[self.popper.master_of(queue)].append(queue)
            except PointsmanError as error:
                failures[queue] = error
        for addr, queues in by_master.items():
            try:
                self._backlogs |= await self._transport.backlogs(
                    addr, queues, group=self._setting.group, timeout_seconds=self._setting.request_timeout_seconds
                )
            except PointsmanError as error:
                failures |= dict.fromkeys(queues, error)
        # Also unchanged ones: the store sends them again to an agent that may have lost them.
        wanted = {queue: each.finished_offset for queue, each in self._backlogs.items() if queue not in failures}
        restarted = {queue: wanted.pop(queue) for queue in self.popper.restarted & wanted.keys()}
        # A reset is a separate commit: other offsets must not go backwards.
        failures |= await self._commit(restarted, reset=True)
        self.popper.restarted -= restarted.keys() - failures.keys()
        failures |= await self._commit(wanted)
        self._note(failures)

    async def _commit(
        self, wanted: Mapping[MessageQueue, int], *, reset: bool = False
    ) -> Mapping[MessageQueue, PointsmanError]:
        if not wanted:
            return {}
        epochs = {queue: self._epochs[queue] for queue in wanted if queue in self._epochs}
        # An application's own store may be older than epochs, and then never loads one.
        stated = {"epochs": epochs} if epochs else {}
        failures = dict(await self._coordination.offsets.commit(wanted, reset=reset, **stated))
        for queue, offset in wanted.items():
            error = failures.get(queue)
            if isinstance(error, OffsetResetError):
                # The offset is only a number for the lag here: what is delivered next is in the broker's group.
                logger.warning("%s; it has no effect on group %s, which leases messages", error, self._setting.group)
                self._epochs[queue] = error.epoch
                del failures[queue]
            elif error is None:
                self._committed[queue] = offset
        result = next((error.code for error in failures.values()), "ok")
        self._hook.offsets_committed(group=self._setting.group, queues=len(wanted), result=result)
        return failures

    def _note(self, failures: Mapping[MessageQueue, PointsmanError]) -> None:
        now = self._clock.monotonic()
        for queue, error in failures.items():
            if (subject := self._failing.failed(queue, error, now=now)) is not None:
                logger.warning("the progress of group %s on %s is not known: %s", self._setting.group, subject, error)
        bad = {queue.broker_key for queue in failures}
        for queue in self.popper.begun:
            for again in self._failing.succeeded(queue, now=now) if queue.broker_key not in bad else ():
                logger.warning("the progress of group %s on %s is known again", self._setting.group, again)

    # State

    def reading(self, is_wanted: Callable[[MessageQueue], bool]) -> ConsumerReading:
        """See :meth:`RunningConsumer.reading`. Every member reads all queues."""
        counts, calls, now = self.leases.counts, self._oldest_calls(), self._clock.monotonic()
        return ConsumerReading(
            {
                queue: QueueReading(
                    each.next_offset,
                    self._committed.get(queue),
                    counts.get(queue, 0),
                    now - calls[queue] if queue in calls else None,
                    is_waiting=False,
                )
                for queue, each in self._backlogs.items()
                if is_wanted(queue)
            },
            retries=self.retries,
            dead_letters=self.dead_letters,
        )

    def follow_resets(self, is_wanted: Callable[[MessageQueue], bool]) -> None:
        """See :meth:`RunningConsumer.follow_resets`. The group's next message is known at the broker alone."""

    def reset_offsets(self, offsets: Mapping[tuple[str, str, int], int]) -> None:
        """See :meth:`RunningConsumer.reset_offsets`; likewise."""

    def health(self) -> ConsumerHealth:
        """Return what keeps this member from its work."""
        problems: Sequence[str] = self._coordination.membership.problems() if self._has_joined else ()
        errors = self.popper.errors
        masters = {queue.broker_key for queue in self.popper.begun}
        if errors and len(errors) >= len(masters):
            addr, error = min(errors.items())
            problems = [*problems, f"none of its brokers can be read; {addr}: {error}"]
        problems = [*problems, *self.popper.refusals]
        return ConsumerHealth(tuple(problems), len(self.popper.begun))

    def describe(self) -> dict[str, Any]:
        """Return queues, leases and members as JSON values."""
        counts = Counter(self.leases.counts)
        return {
            "group": self._setting.group,
            "clientId": self._setting.client_id,
            "ordered": self._setting.is_ordered,
            "subscriptions": {topic: each.expression for topic, each in self._subscriptions.items()},
            **(self._coordination.membership.describe() if self._has_joined else {}),
            "queues": [
                {
                    "topic": queue.topic,
                    "cluster": queue.cluster,
                    "brokerName": queue.broker_name,
                    "queueId": queue.queue_id,
                    "leased": counts[queue],
                    "position": self._backlogs[queue].next_offset if queue in self._backlogs else None,
                    "unfinished": self._backlogs[queue].unfinished if queue in self._backlogs else None,
                }
                for queue in sorted(self.popper.begun)
            ],
        }
