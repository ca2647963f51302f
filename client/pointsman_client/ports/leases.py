"""Interface of a transport whose brokers lease messages to the members of a group (RocketMQ's POP)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from pointsman_client.core.lease import ConsumeMode, GroupBacklog, Lease, LeasedMessage
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.ports.transport import Reader


@dataclass(frozen=True, slots=True)
class PoppedMessages:
    """Result of a pop."""

    messages: tuple[LeasedMessage, ...] = ()
    """Those of one queue are in offset order; messages that were delivered before come first."""
    trimmed: Mapping[MessageQueue, int] = field(default_factory=dict)
    """Messages that the broker removed before the group finished them."""
    without_group: tuple[MessageQueue, ...] = ()
    """Queues that the group has not begun: see :meth:`LeasesMessages.begin_group`."""


@runtime_checkable
class LeasesMessages(Protocol):
    """A transport whose brokers hand a message to one member of a group for a time, and then to another one.

    ``queues`` of a call are queues of one topic at one broker, ``addr`` is that broker's master. Methods raise as those
    of :class:`~pointsman_client.ports.transport.Transport`. The time of a lease is measured by the broker's clock.
    """

    keeps_lease_offsets: bool
    """Whether brokers report the progress of such groups themselves, so that it is not committed by consumers."""
    notices_late_acknowledgements: bool
    """Whether :meth:`acknowledge` returns the leases that are over; otherwise the consumer judges by its own clock."""

    async def pop(
        self,
        addr: str,
        queues: Sequence[MessageQueue],
        *,
        reader: Reader,
        max_messages: int,
        invisible_seconds: float,
        is_ordered: bool,
        timeout_seconds: float,
    ) -> PoppedMessages:
        """Lease available messages for ``invisible_seconds``, without a wait. Earlier queues are read first.

        ``is_ordered``: a queue with a valid lease has no message for another one. If the call fails or is cancelled,
        messages may be leased nevertheless, and come back after their time.
        """
        ...

    async def wait_for_messages(
        self,
        addr: str,
        queues: Sequence[MessageQueue],
        *,
        reader: Reader,
        is_ordered: bool,
        wait_seconds: float,
        timeout_seconds: float,
    ) -> None:
        """Return when there may be something to pop, at the latest after ``wait_seconds``. May be cancelled.

        ``timeout_seconds`` is in addition to the wait.
        """
        ...

    async def acknowledge(
        self, addr: str, leases: Sequence[Lease], *, group: str, timeout_seconds: float
    ) -> tuple[Lease, ...]:
        """Finish messages of one broker. Returns the leases that are over: their messages were delivered again.

        A message that is finished already, also by another member, is not among them.
        """
        ...

    async def change_invisible(
        self, addr: str, leases: Sequence[Lease], *, group: str, invisible_seconds: float, timeout_seconds: float
    ) -> tuple[Lease | None, ...]:
        """Let leases of messages of one broker end ``invisible_seconds`` from now; return the leases that replace them.

        None: the lease is over, since the message was delivered again or is finished.
        """
        ...

    async def begin_group(
        self, addr: str, queue: MessageQueue, offset: int, *, group: str, timeout_seconds: float
    ) -> None:
        """Begin a queue at an offset, unless the group has begun it already."""
        ...

    async def backlogs(
        self, addr: str, queues: Collection[MessageQueue], *, group: str, timeout_seconds: float
    ) -> Mapping[MessageQueue, GroupBacklog]:
        """Return how far a group is, for queues that it has begun with leases."""
        ...


@runtime_checkable
class StatesConsumeMode(Protocol):
    """A transport whose brokers state how the push consumers of a group are to consume a topic."""

    async def consume_mode(
        self, addr: str, topic: str, *, group: str, client_id: str, timeout_seconds: float
    ) -> ConsumeMode | None:
        """Return the mode at a broker, whatever the members do; None: the broker does not know the topic yet.

        Raises as the methods of :class:`LeasesMessages`; GroupModeError if the broker is too old to lease messages.
        """
        ...
