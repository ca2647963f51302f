"""Pulls as requests to a broker, and what its responses mean. Pure."""

from __future__ import annotations

from pointsman.rocketmq.codes import BrokerResponseCode as Code
from pointsman.rocketmq.frames import Command
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.subscription import expression_type
from pointsman_client.errors import BrokerRefusedError, OffsetBeyondEndError, UnreadableMessageError
from pointsman_client.ports.transport import PulledMessages, Reader
from pointsman_client.rocketmq.broker_refusals import refused
from pointsman_client.rocketmq.message_codec import decode_messages

GRID_SECONDS = 5.0
"""Brokers end waiting pulls on a grid of this width (``PullRequestHoldService``), so up to as much later."""

MAX_DIGITS = 20
SEARCHER = Reader("TOOLS_CONSUMER")
"""For pulls apart from consumption: a group that every broker has (``MixAll.TOOLS_CONSUMER_GROUP``)."""

_FLAG_SUSPEND, _FLAG_SUBSCRIPTION = 2, 4


def pull_fields(
    queue: MessageQueue, offset: int, *, max_messages: int, suspend_seconds: float, reader: Reader
) -> dict[str, str]:
    """Return the fields of a pull that contains its subscription, so that the group needs no heartbeat.

    ``suspend_seconds``: how long the broker may hold it while there is no message; 0: not at all.
    """
    flags = _FLAG_SUBSCRIPTION | (_FLAG_SUSPEND if suspend_seconds else 0)
    return {
        "consumerGroup": reader.group,
        "topic": queue.topic,
        "queueId": str(queue.queue_id),
        "queueOffset": str(offset),
        "maxMsgNums": str(max_messages),
        "sysFlag": str(flags),
        "commitOffset": "0",
        "suspendTimeoutMillis": str(int(suspend_seconds * 1000)),
        "subscription": str(reader.expression),
        "subVersion": "0",
        "expressionType": expression_type(reader.expression),
    }


def read_pulled(
    addr: str,
    queue: MessageQueue,
    offset: int,
    command: Command,
    body: bytes,
    *,
    max_messages: int,
    max_body_bytes: int,
) -> PulledMessages:
    """Read the response to a pull of ``max_messages`` from ``offset``.

    Raises BrokerRefusedError, OffsetBeyondEndError, and UnreadableMessageError if the first message is unreadable.
    """
    if command.code == Code.PULL_NOT_FOUND and "nextBeginOffset" not in command.ext:
        return PulledMessages((), offset)
    if command.code not in {Code.SUCCESS, Code.PULL_NOT_FOUND, Code.PULL_RETRY_IMMEDIATELY, Code.PULL_OFFSET_MOVED}:
        raise refused(addr, command)
    next_offset = number(addr, command, "nextBeginOffset")
    if command.code == Code.PULL_OFFSET_MOVED:
        return _moved(addr, queue, offset, next_offset, command)
    if command.code in {Code.PULL_NOT_FOUND, Code.PULL_RETRY_IMMEDIATELY}:
        # A broker skips a file of the queue that it has lost (OFFSET_FOUND_NULL).
        return PulledMessages((), max(offset, next_offset))
    messages, unread = decode_messages(
        body, queue, first_offset=offset, max_messages=max_messages, max_body_bytes=max_body_bytes
    )
    if unread is None:
        return PulledMessages(tuple(messages), max(messages[-1].queue_offset + 1 if messages else offset, next_offset))
    if messages:
        return PulledMessages(tuple(messages), unread.queue_offset)
    raise UnreadableMessageError(addr, str(queue), offset=unread.queue_offset, problem=unread.problem)


def _moved(addr: str, queue: MessageQueue, offset: int, next_offset: int, command: Command) -> PulledMessages:
    """Read a response to a pull from an offset that the queue does not have, or that an operator reset."""
    first, end = number(addr, command, "minOffset"), number(addr, command, "maxOffset")
    if command.remark != "OFFSET_RESET":
        if offset > end:
            raise OffsetBeyondEndError(addr, str(queue), offset=offset, end=end)
        if offset < first:
            next_offset = max(first, next_offset)
            return PulledMessages((), next_offset, trimmed=next_offset - offset)
    return PulledMessages((), max(next_offset, 0), is_reset=True)


def number(addr: str, command: Command, name: str) -> int:
    """Return a field of a response. Raises BrokerRefusedError unless it is a number of 64 bits."""
    value = command.ext.get(name, "")
    is_number = len(value) <= MAX_DIGITS and value.isascii() and value.removeprefix("-").isdigit()
    if not is_number or not -(2**63) <= int(value) < 2**63:
        raise BrokerRefusedError(
            addr, Code.SYSTEM_ERROR, f"{name} of its response is {value[:100]!r}, which is not a number of 64 bits"
        )
    return int(value)
