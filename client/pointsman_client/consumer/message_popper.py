"""Pops messages from all brokers of the subscribed topics, in turn, and begins queues that are new to the group."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from pointsman.clock import Clock
from pointsman_client.aio import end_tasks
from pointsman_client.consumer.queue_reader import SLACK_SECONDS
from pointsman_client.consumer.readable_queues import ReadableQueues
from pointsman_client.consumer.start_offset import StartOffsets
from pointsman_client.consumer.stated_modes import StatedModes
from pointsman_client.core.lease import LeasedMessage
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.read_choice import SKIP_SECONDS, QueueFailures
from pointsman_client.core.subscription import Subscription
from pointsman_client.errors import BrokerTimeoutError, BrokerUnreachableError, GroupModeError, PointsmanError
from pointsman_client.metrics_hook import MetricsHook
from pointsman_client.ports.coordination import Routes
from pointsman_client.ports.leases import LeasesMessages, PoppedMessages
from pointsman_client.ports.transport import Reader, Transport, response_of

MAX_WAIT_SECONDS = 15.0
"""Longest wait at brokers; then the routes are read again."""
NO_BROKER_SECONDS = 1.0
"""Pause while no broker can be read, and before a broker is read again that is up and refused a request."""
REFUSED_SECONDS = 5.0
"""Pause before a topic is read again from a broker where the group may not lease messages."""
END_SECONDS = 0.5

ResultT = TypeVar("ResultT")

logger = logging.getLogger(__name__)


class LeasingTransport(LeasesMessages, Transport, Protocol):
    """A transport that also leases messages."""


@dataclass(frozen=True, slots=True)
class _Source:
    """The queues of one topic at one broker."""

    subscription: Subscription
    addr: str
    queues: tuple[MessageQueue, ...]


class MessagePopper:
    """Reads for one consumer. A broker that failed is skipped for a while."""

    def __init__(
        self,
        transport: LeasingTransport,
        starts: StartOffsets,
        *,
        routes: Routes,
        queues: ReadableQueues,
        group: str,
        subscriptions: Mapping[str, Subscription],
        is_ordered: bool,
        modes: StatedModes | None,
        timeout_seconds: float,
        clock: Clock,
        hook: MetricsHook,
    ) -> None:
        self._modes = modes
        self._transport = transport
        self._ends_in_time: bool = getattr(transport, "ends_in_time", False)
        self._starts = starts
        self._routes = routes
        self._queues = queues
        self._group = group
        self._subscriptions = subscriptions
        self._is_ordered = is_ordered
        self._timeout_seconds = timeout_seconds
        self._clock = clock
        self._hook = hook
        self._turn = 0
        self._failures = QueueFailures()
        self._skipped_until: dict[str, float] = {}
        self._refused: dict[tuple[str, str], tuple[GroupModeError, float]] = {}
        """By topic and address: why the group may not lease messages there, and until when it is not read."""
        self._begun: dict[MessageQueue, None] = {}
        self._stopping: asyncio.Event = asyncio.Event()
        self.restarted: set[MessageQueue] = set()
        """Queues whose broker lost the group's leases: their committed offsets are too high."""
        self.errors: dict[str, PointsmanError] = {}
        """Brokers that fail now, by address."""

    @property
    def begun(self) -> Sequence[MessageQueue]:
        """The queues from which this consumer has read."""
        return tuple(self._begun)

    @property
    def refusals(self) -> Sequence[str]:
        """Why the group may not lease messages of subscribed topics, each in a sentence."""
        return sorted({str(error) for error in self._refusals()})

    def raise_refusal(self) -> None:
        """Raise GroupModeError if the group may not lease the messages of a subscribed topic."""
        for error in self._refusals():
            raise error.with_traceback(None)

    def _refusals(self) -> Sequence[GroupModeError]:
        return [error for (topic, _), (error, _) in self._refused.items() if topic in self._subscriptions]

    def stop(self) -> None:
        """End all waits."""
        self._stopping.set()

    @property
    def is_stopped(self) -> bool:
        """Whether :meth:`stop` was called."""
        return self._stopping.is_set()

    def master_of(self, queue: MessageQueue) -> str:
        """Return the address of the master of a queue. Raises BrokerUnreachableError if no route has it."""
        broker = self._routes.broker(queue.cluster, queue.broker_name)
        if broker is None or broker.master is None:
            raise BrokerUnreachableError(f"{queue.cluster}/{queue.broker_name}", "no route has its master")
        return broker.master.addr

    async def pop(self, most: int, *, invisible_seconds: float) -> list[LeasedMessage]:
        """Pop up to ``most`` messages that are available now."""
        messages: list[LeasedMessage] = []
        sources = await self._sources()
        self._turn += 1
        for source in sources:
            while len(messages) < most and not self.is_stopped:
                wanted = most - len(messages)
                popped = await self._pop_from(source, wanted, invisible_seconds=invisible_seconds)
                messages += await self._selected(source, popped.messages)
                if len(popped.messages) < wanted:
                    break
        return messages

    async def wait(self, seconds: float) -> None:
        """Return when there may be something to pop at any broker, at the latest after ``seconds``."""
        seconds = min(seconds, MAX_WAIT_SECONDS)
        sources = await self._sources()
        waits = [
            asyncio.create_task(
                self._wait_at(source, seconds), name=f"pointsman-consumer-{self._group}-wait-{source.addr}"
            )
            for source in sources
        ]
        if not waits:
            pause = self._clock.sleep(min(seconds, NO_BROKER_SECONDS))
            waits.append(asyncio.create_task(pause, name=f"pointsman-consumer-{self._group}-pause"))
        waits.append(asyncio.create_task(_until(self._stopping), name=f"pointsman-consumer-{self._group}-stopping"))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await end_tasks(waits, timeout_seconds=END_SECONDS)

    async def _sources(self) -> list[_Source]:
        """Return what can be read now, beginning with another broker and another queue each time."""
        found = await self._queues.of(self._subscriptions)
        by_broker: dict[tuple[str, str], list[MessageQueue]] = {}
        now = self._clock.monotonic()
        for topic, each in found.items():
            for queue in each.queues if each is not None else ():
                try:
                    addr = self.master_of(queue)
                except BrokerUnreachableError as error:
                    self._note_failure(queue, error)
                    continue
                _, refused_until = self._refused.get((topic, addr), (None, now))
                skipped_until = max(refused_until, self._skipped_until.get(addr, now))
                if skipped_until <= now and topic in self._subscriptions:
                    by_broker.setdefault((topic, addr), []).append(queue)
        sources = deque(
            _Source(self._subscriptions[topic], addr, _rotated(queues, self._turn))
            for (topic, addr), queues in by_broker.items()
        )
        sources.rotate(-self._turn)
        return list(sources)

    async def _pop_from(self, source: _Source, most: int, *, invisible_seconds: float) -> PoppedMessages:
        began_at = self._clock.monotonic()
        topic = source.subscription.topic
        try:
            if self._modes is not None:
                await self._modes.check(source.addr, topic)
            popped = await self._pop_once(source, most, invisible_seconds)
            for queue in popped.without_group:
                await self._begin(source.addr, queue)
            if popped.without_group and not popped.messages:
                popped = await self._pop_once(source, most, invisible_seconds)
        except GroupModeError as error:
            self._note_refusal(source, error)
            return PoppedMessages()
        except PointsmanError as error:
            self._hook.pull_failed(group=self._group, queue=source.queues[0], code=error.code)
            self._note_failure(source.queues[0], error, addr=source.addr)
            return PoppedMessages()
        self._note_success(source)
        self._begun.update(dict.fromkeys(queue for queue in source.queues if queue not in popped.without_group))
        seconds = self._clock.monotonic() - began_at
        self._hook.pulled(group=self._group, queue=source.queues[0], messages=len(popped.messages), seconds=seconds)
        for queue, trimmed in popped.trimmed.items():
            self._hook.trimmed(group=self._group, queue=queue, messages=trimmed)
            logger.warning("%d messages of %s were removed before group %s finished them", trimmed, queue, self._group)
        return popped

    async def _pop_once(self, source: _Source, most: int, invisible_seconds: float) -> PoppedMessages:
        return await self._call(
            source.addr,
            self._transport.pop(
                source.addr,
                source.queues,
                reader=Reader(self._group, source.subscription.expression),
                max_messages=most,
                invisible_seconds=invisible_seconds,
                is_ordered=self._is_ordered,
                timeout_seconds=self._timeout_seconds,
            ),
        )

    async def _begin(self, addr: str, queue: MessageQueue) -> None:
        """Begin a queue where the group has no leases yet. Raises GroupModeError if it stores offsets there."""
        stored = (await self._starts.stored(queue)).offset
        if stored is None:
            since = await self._starts.wanted_since(queue)
            offset = await self._starts.initial(addr, queue, since)
        else:
            offset = await self._starts.first(addr, queue)
            end = await self._transport.max_offset(addr, queue, timeout_seconds=self._timeout_seconds)
            # Its broker may have lost the leases with its messages; then the offset is beyond the end.
            if stored <= end and queue not in self._begun:
                problem = (
                    f"it has committed offset {stored} of {queue}, so it does not lease messages; use another group, "
                    "or stop its consumers and delete its offsets (pointsmanctl group delete)"
                )
                raise GroupModeError(self._group, queue.topic, problem)
            self.restarted.add(queue)
            logger.warning("%s has lost the leases of group %s, which begins at offset %d", queue, self._group, offset)
        begin = self._transport.begin_group(
            addr, queue, offset, group=self._group, timeout_seconds=self._timeout_seconds
        )
        await self._call(addr, begin)

    async def _selected(self, source: _Source, leased: Sequence[LeasedMessage]) -> Sequence[LeasedMessage]:
        """Return the messages whose tags are wanted; finish the others."""
        subscription = source.subscription
        if not subscription.tags:
            return leased
        skipped = [each for each in leased if not subscription.matches(each.message.tags)]
        if skipped:
            for queue in {each.lease.queue for each in skipped}:
                count = sum(each.lease.queue == queue for each in skipped)
                self._hook.filtered(group=self._group, queue=queue, messages=count)
            finish = self._transport.acknowledge(
                source.addr,
                [each.lease for each in skipped],
                group=self._group,
                timeout_seconds=self._timeout_seconds,
            )
            try:
                await self._call(source.addr, finish)
            except PointsmanError as error:  # They come back, and are skipped again.
                self._note_failure(source.queues[0], error, addr=source.addr)
        return [each for each in leased if subscription.matches(each.message.tags)]

    async def _wait_at(self, source: _Source, seconds: float) -> None:
        try:
            await self._call(
                source.addr,
                self._transport.wait_for_messages(
                    source.addr,
                    source.queues,
                    reader=Reader(self._group, source.subscription.expression),
                    is_ordered=self._is_ordered,
                    wait_seconds=seconds,
                    timeout_seconds=self._timeout_seconds,
                ),
                wait_seconds=seconds,
            )
        except PointsmanError as error:
            self._note_failure(source.queues[0], error, addr=source.addr)

    async def _call(self, addr: str, call: Awaitable[ResultT], *, wait_seconds: float = 0.0) -> ResultT:
        allowed = wait_seconds + self._timeout_seconds + SLACK_SECONDS
        return await response_of(addr, call, timeout_seconds=allowed, ends_in_time=self._ends_in_time)

    def _note_failure(self, queue: MessageQueue, error: PointsmanError, *, addr: str = "") -> None:
        now = self._clock.monotonic()
        if addr:
            is_down = isinstance(error, BrokerUnreachableError | BrokerTimeoutError) and error.addr == addr
            self._skipped_until[addr] = now + (SKIP_SECONDS if is_down else NO_BROKER_SECONDS)
        self.errors[addr or f"{queue.cluster}/{queue.broker_name}"] = error
        subject = self._failures.failed(queue, error, now=now)
        if subject is not None:
            logger.warning("group %s cannot receive from %s: %s", self._group, subject, error)

    def _note_refusal(self, source: _Source, error: GroupModeError) -> None:
        key = source.subscription.topic, source.addr
        if key not in self._refused:
            logger.warning("%s", error)
        self._refused[key] = error, self._clock.monotonic() + REFUSED_SECONDS

    def _note_success(self, source: _Source) -> None:
        queue = source.queues[0]
        if self._refused.pop((source.subscription.topic, source.addr), None) is not None:
            logger.warning("group %s may lease messages of topic %s now", self._group, source.subscription.topic)
        self._skipped_until.pop(source.addr, None)
        self.errors.pop(source.addr, None)
        self.errors.pop(f"{queue.cluster}/{queue.broker_name}", None)
        for subject in self._failures.succeeded(queue, now=self._clock.monotonic()):
            logger.warning("group %s receives from %s again", self._group, subject)


async def _until(event: asyncio.Event) -> None:
    await event.wait()


def _rotated(queues: Sequence[MessageQueue], turn: int) -> tuple[MessageQueue, ...]:
    begin = turn % len(queues)
    return (*queues[begin:], *queues[:begin])
