"""The messages that an application has received and not acknowledged, with their leases."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from pointsman.clock import Clock
from pointsman_client.core.lease import Lease, LeasedMessage
from pointsman_client.core.message import ReceivedMessage
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.errors import LeaseExpiredError, PointsmanError
from pointsman_client.metrics_hook import MetricsHook
from pointsman_client.ports.leases import LeasesMessages

RENEW_POLL_SECONDS = 1.0
RENEW_SHARE = 0.5
"""A lease is renewed when this share of its time has passed."""
PRUNED_ABOVE = 1_000
"""Number of messages above which those are removed whose lease is over for PRUNED_AFTER_SECONDS."""
PRUNED_AFTER_SECONDS = 60.0

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class HeldLease:
    """A received message; times are monotonic seconds of the client's clock."""

    message: ReceivedMessage
    lease: Lease
    invisible_seconds: float
    ends_at: float
    """Not after the end by the broker's clock, if both clocks run equally fast."""
    renew_until: float
    """0: it is not renewed."""
    is_changed: bool = False
    """Whether the application changed its end."""
    changing: asyncio.Future[None] | None = None
    """Ends with the request in flight that changes it: a broker may know the lease by what this returns, alone."""
    is_ending: bool = False
    """Whether its acknowledgement is in flight."""


_Key = tuple[MessageQueue, int, int]


class HeldLeases:
    """Acknowledges messages, and changes and renews their leases. ``master_of`` returns the address for a queue.

    It raises the error if the queue's broker has no master now.
    """

    def __init__(
        self,
        transport: LeasesMessages,
        *,
        master_of: Callable[[MessageQueue], str],
        group: str,
        timeout_seconds: float,
        max_renew_seconds: float,
        clock: Clock,
        hook: MetricsHook,
    ) -> None:
        self._transport = transport
        self._is_noticed = transport.notices_late_acknowledgements
        self._master_of = master_of
        self._group = group
        self._timeout_seconds = timeout_seconds
        self._max_renew_seconds = max_renew_seconds
        self._clock = clock
        self._hook = hook
        self._held: dict[_Key, HeldLease] = {}
        self._is_failing = False

    def add(self, leased: LeasedMessage, *, invisible_seconds: float, since: float) -> None:
        """Record a delivery; ``since``: when it was requested."""
        if len(self._held) >= PRUNED_ABOVE:
            over = self._clock.monotonic() - PRUNED_AFTER_SECONDS
            self._held = {key: each for key, each in self._held.items() if each.ends_at > over}
        self._held[_key(leased.message)] = HeldLease(
            leased.message,
            leased.lease,
            invisible_seconds,
            since + invisible_seconds,
            since + self._max_renew_seconds,
        )

    def is_valid(self, message: ReceivedMessage) -> bool:
        """Whether the message is not acknowledged, and its lease is not over."""
        held = self._held.get(_key(message))
        return held is not None and held.ends_at > self._clock.monotonic()

    def is_unchanged(self, message: ReceivedMessage) -> bool:
        """Whether the message is still held here, and the application has not changed its lease."""
        held = self._held.get(_key(message))
        return held is not None and not held.is_changed

    @property
    def counts(self) -> Mapping[MessageQueue, int]:
        """Number of messages by queue whose lease is not over."""
        now = self._clock.monotonic()
        return Counter(each.lease.queue for each in self._held.values() if each.ends_at > now)

    async def acknowledge(self, messages: Sequence[ReceivedMessage]) -> None:
        """Finish messages. Raises LeaseExpiredError, and the error of a broker, after all have been tried."""
        await self._unchanging(messages)
        found = [self._held.get(_key(message)) for message in messages]
        over = [message.message_id for message, held in zip(messages, found, strict=True) if held is None]
        by_master, failure = self._by_master(each for each in found if each is not None)
        for addr, held in by_master.items():
            leases, now = [each.lease for each in held], self._clock.monotonic()
            for each in held:
                each.is_ending = True
            try:
                expired = await self._transport.acknowledge(
                    addr, leases, group=self._group, timeout_seconds=self._timeout_seconds
                )
            except PointsmanError as error:
                failure = failure or error
                self._note(held, error.code)
                continue
            finally:
                for each in held:
                    each.is_ending = False
            late = [each for each in held if each.lease in expired or (not self._is_noticed and each.ends_at <= now)]
            self._note([each for each in held if each not in late], "ok")
            self._note(late, LeaseExpiredError.code)
            over += [each.message.message_id for each in late]
            for each in held:
                self._held.pop(_key(each.message), None)
        if failure is not None:
            raise failure
        if over:
            raise LeaseExpiredError(over)

    async def change(self, messages: Sequence[ReceivedMessage], invisible_seconds: float) -> None:
        """Let leases end ``invisible_seconds`` from now, without a renewal. Raises as :meth:`acknowledge`."""
        await self._unchanging(messages)
        found = [self._held.get(_key(message)) for message in messages]
        over = [message.message_id for message, held in zip(messages, found, strict=True) if held is None]
        by_master, failure = self._by_master(each for each in found if each is not None)
        if failure is not None:
            raise failure
        for addr, held in by_master.items():
            over += [each.message.message_id for each in await self._change(addr, held, invisible_seconds)]
            for each in held:
                each.renew_until, each.is_changed = 0.0, True
        if over:
            raise LeaseExpiredError(over)

    def forget(self, messages: Iterable[ReceivedMessage]) -> None:
        """Keep no leases of these messages, which come back when those are over. No broker gets a request."""
        for message in messages:
            self._held.pop(_key(message), None)

    async def run_renewal(self) -> None:
        """Renew leases in time until cancelled."""
        while True:
            await self._clock.sleep(RENEW_POLL_SECONDS)
            await self.renew()

    async def renew(self) -> None:
        """Renew the leases of which half has passed."""
        now = self._clock.monotonic()
        due: defaultdict[float, list[HeldLease]] = defaultdict(list)
        for each in list(self._held.values()):
            if each.ends_at - now > each.invisible_seconds * RENEW_SHARE or each.ends_at <= now:
                continue
            if each.is_ending or each.changing is not None:
                continue
            if each.renew_until > now:
                due[each.invisible_seconds].append(each)
            elif each.renew_until:
                each.renew_until = 0.0
                logger.warning(
                    "the lease of message %s of %s of group %s is not renewed any further after %g s; it is delivered "
                    "again in %.0f s unless it is acknowledged",
                    each.message.message_id,
                    each.lease.queue,
                    self._group,
                    self._max_renew_seconds,
                    each.ends_at - now,
                )
        for seconds, leases in due.items():
            await self._renew(leases, seconds)

    async def _renew(self, due: Sequence[HeldLease], seconds: float) -> None:
        by_master, failure = self._by_master(due)
        try:
            for addr, held in by_master.items():
                # While it waited for another broker, leases may have been acknowledged.
                still = [each for each in held if not each.is_ending and self._held.get(_key(each.message)) is each]
                for each in await self._change(addr, still, seconds) if still else ():
                    logger.warning(
                        "the lease of message %s of %s of group %s was over before it was renewed",
                        each.message.message_id,
                        each.lease.queue,
                        self._group,
                    )
        except PointsmanError as error:
            failure = failure or error
        if failure is not None and not self._is_failing:
            logger.warning("leases of group %s cannot be renewed, it is tried again: %s", self._group, failure)
        self._is_failing = failure is not None

    async def _change(self, addr: str, held: Sequence[HeldLease], seconds: float) -> list[HeldLease]:
        """Change leases of one broker, and return those that are over."""
        since, changing = self._clock.monotonic(), asyncio.get_running_loop().create_future()
        for each in held:
            each.changing = changing
        try:
            changed = await self._transport.change_invisible(
                addr,
                [each.lease for each in held],
                group=self._group,
                invisible_seconds=seconds,
                timeout_seconds=self._timeout_seconds,
            )
        finally:
            for each in held:
                each.changing = None
            changing.set_result(None)
        over = []
        for each, lease in zip(held, changed, strict=True):
            if lease is None:
                self._held.pop(_key(each.message), None)
                over.append(each)
            else:
                each.lease, each.ends_at = lease, since + seconds
        return over

    async def _unchanging(self, messages: Sequence[ReceivedMessage]) -> None:
        """Wait until no request that changes the leases of these messages is in flight."""
        held = [each for message in messages if (each := self._held.get(_key(message))) is not None]
        while changing := {each.changing for each in held if each.changing is not None}:
            await asyncio.wait(changing)

    def _by_master(self, held: Iterable[HeldLease]) -> tuple[Mapping[str, list[HeldLease]], PointsmanError | None]:
        """Return leases by the address of their master, and the error of those whose broker has none now."""
        found: defaultdict[str, list[HeldLease]] = defaultdict(list)
        failure: PointsmanError | None = None
        for each in held:
            try:
                found[self._master_of(each.lease.queue)].append(each)
            except PointsmanError as error:
                failure = error
        return found, failure

    def _note(self, held: Sequence[HeldLease], result: str) -> None:
        for topic, count in Counter(each.message.topic for each in held).items():
            self._hook.acknowledged(group=self._group, topic=topic, messages=count, result=result)


def _key(message: ReceivedMessage) -> _Key:
    return message.queue, message.queue_offset, message.reconsume_times
