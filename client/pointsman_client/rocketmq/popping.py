"""POP as requests to a broker, and what its responses mean (``PopMessageProcessor``, ``ExtraInfoUtil``). Pure.

The receipt of a delivery is RocketMQ's ``extraInfo``, eight fields with spaces between them: the first offset of the
pop, its time, the invisible time, the queue for revival, whether the message is from a retry topic, broker, queue id
and offset. Java members of the group use the same.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from pointsman.group_topics import retry_topic, without_pop_retry
from pointsman.rocketmq.bodies import BadBodyError, read_object
from pointsman.rocketmq.codes import BrokerResponseCode as Code
from pointsman.rocketmq.frames import Command, compact
from pointsman_client.core.lease import ConsumeMode, Lease, LeasedMessage
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.subscription import expression_type
from pointsman_client.errors import BrokerRefusedError, UnreadableMessageError
from pointsman_client.ports.transport import Reader
from pointsman_client.rocketmq.broker_refusals import refused
from pointsman_client.rocketmq.message_codec import decode_messages, stored_property, stored_queue, stored_records
from pointsman_client.rocketmq.pulling import number

MAX_POPPED = 32
"""Messages of one request (``PopMessageProcessor``)."""
VERSION_WITH_POP = 413
"""5.0.0."""
VERSION_WITH_BATCHES = 435
"""5.1.1: of acknowledgements."""

_NORMAL, _RETRY, _RETRY_V2 = "0", "1", "2"
_ALL_QUEUES = "-1"
_FIELDS = 8
_EMPTY = {Code.POLLING_FULL, Code.POLLING_TIMEOUT, Code.PULL_NOT_FOUND}


class Receipt(NamedTuple):
    """The fields of a receipt, as texts."""

    first_offset: str
    popped_ms: str
    invisible_ms: str
    revive_queue_id: str
    kind: str
    broker_name: str
    queue_id: str
    queue_offset: str

    @classmethod
    def read(cls, text: str) -> Receipt:
        """Read a receipt. Raises ValueError."""
        fields = text.split(" ")
        if len(fields) != _FIELDS or fields[4] not in {_NORMAL, _RETRY, _RETRY_V2}:
            raise ValueError(f"{text[:100]!r} is not the receipt of a message")
        return cls(*fields)

    @property
    def text(self) -> str:
        """The receipt as a broker has it."""
        return " ".join(self)


def pop_fields(topic: str, *, reader: Reader, max_messages: int, invisible_ms: int, is_ordered: bool) -> dict[str, str]:
    """Return the fields of a pop that the broker does not hold; they contain the subscription."""
    return {
        "consumerGroup": reader.group,
        "topic": topic,
        "queueId": _ALL_QUEUES,
        "maxMsgNums": str(min(max_messages, MAX_POPPED)),
        "invisibleTime": str(invisible_ms),
        "pollTime": "0",
        "bornTime": "0",
        # Of retry topics; a topic's own offsets are committed before.
        "initMode": "0",
        "expType": expression_type(reader.expression),
        "exp": str(reader.expression),
        "order": "true" if is_ordered else "false",
    }


def notification_fields(topic: str, *, group: str, wait_ms: int, is_ordered: bool) -> dict[str, str]:
    """Return the fields of a request that ends when there is something to pop."""
    return {
        "consumerGroup": group,
        "topic": topic,
        "queueId": _ALL_QUEUES,
        "pollTime": str(wait_ms),
        "bornTime": "0",
        "order": "true" if is_ordered else "false",
    }


def read_popped(
    addr: str, queue: MessageQueue, command: Command, body: bytes, *, group: str, max_body_bytes: int
) -> list[LeasedMessage]:
    """Read the response to a pop; ``queue``: any one of the topic at the broker.

    Raises BrokerRefusedError, and UnreadableMessageError if none of the messages can be read.
    """
    if command.code in _EMPTY:
        return []
    if command.code != Code.SUCCESS:
        raise refused(addr, command)
    starts = _numbers_by_queue(addr, command, "startOffsetInfo")
    counts = _numbers_by_queue(addr, command, "orderCountInfo")
    head = [str(number(addr, command, name)) for name in ("popTime", "invisibleTime", "reviveQid")]
    found: list[LeasedMessage] = []
    unread: UnreadableMessageError | None = None
    for record in stored_records(body):
        stored_topic, queue_id = stored_queue(record)
        text = stored_property(record, "POP_CK")
        kind = Receipt.read(text).kind if text else _kind_of(stored_topic, group)
        real = replace(queue, topic=real_topic(queue.topic, group, kind), queue_id=queue_id)
        messages, problem = decode_messages(
            record, queue, first_offset=0, max_messages=MAX_POPPED, max_body_bytes=max_body_bytes
        )
        if not messages:
            offset, why = (problem.queue_offset, problem.problem) if problem is not None else (-1, "it is empty")
            unread = UnreadableMessageError(addr, str(real), offset=offset, problem=why)
            continue
        message = messages[0]._replace(queue=real)
        offset = message.queue_offset
        if not text:
            first = starts.get(f"{kind} {queue_id}", offset)
            text = " ".join((str(first), *head, kind, queue.broker_name, str(queue_id), str(offset)))
        # An ordered group has no retry topic: the broker counts deliveries in its memory.
        times = counts.get(f"{kind} qo{queue_id}%{offset}", counts.get(f"{kind} {queue_id}", 0))
        message = message._replace(reconsume_times=max(message.reconsume_times, times))
        found.append(LeasedMessage(message, Lease(real, offset, text)))
    if unread is not None and not found:
        raise unread
    return found


def real_topic(topic: str, group: str, kind: str) -> str:
    """Return the topic in which a message of ``topic`` is stored (``KeyBuilder.buildPopRetryTopic``)."""
    if kind == _NORMAL:
        return topic
    return f"{retry_topic(group)}{'_' if kind == _RETRY else '+'}{topic}"


def lease_fields(lease: Lease, *, group: str) -> dict[str, str]:
    """Return the fields of an acknowledgement, and of a change of the invisible time without that time."""
    return {
        "consumerGroup": group,
        "topic": lease.queue.topic,
        "queueId": str(lease.queue.queue_id),
        "extraInfo": lease.receipt,
        "offset": str(lease.queue_offset),
    }


def batch_body(leases: Iterable[Lease], *, group: str) -> dict[str, Any]:
    """Return the body that acknowledges leases of one broker (``BatchAckMessageRequestBody``)."""
    bits: dict[tuple[str, ...], int] = {}
    broker_name = ""
    for lease in leases:
        receipt = Receipt.read(lease.receipt)
        broker_name = receipt.broker_name
        key = (without_pop_retry(lease.queue.topic, group), *receipt[:5], receipt.queue_id)
        bits[key] = bits.get(key, 0) | 1 << (int(receipt.queue_offset) - int(receipt.first_offset))
    return {
        "brokerName": broker_name,
        "acks": [
            {
                "c": group,
                "t": topic,
                "r": kind,
                "so": int(first),
                "q": int(queue_id),
                "rq": int(revive),
                "pt": int(popped),
                "it": int(invisible),
                # A Java BitSet: the lowest bit comes first, without trailing zero bytes.
                "b": base64.b64encode(mask.to_bytes((mask.bit_length() + 7) // 8, "little")).decode(),
            }
            for (topic, first, popped, invisible, revive, kind, queue_id), mask in bits.items()
        ],
    }


def read_changed(addr: str, lease: Lease, command: Command) -> Lease:
    """Return the lease after a change of its invisible time."""
    if "popTime" not in command.ext:
        return lease
    before = Receipt.read(lease.receipt)
    popped, invisible, revive = (str(number(addr, command, name)) for name in ("popTime", "invisibleTime", "reviveQid"))
    after = before._replace(
        first_offset=before.queue_offset, popped_ms=popped, invisible_ms=invisible, revive_queue_id=revive
    )
    return lease._replace(receipt=after.text)


def mode_query(topic: str, *, group: str, client_id: str) -> bytes:
    """Return the body of a query of the queues that a member gets, and in which mode it is to read them.

    As of a broadcasting member: for that the broker needs no heartbeat of it before.
    """
    return compact(
        {
            "topic": topic,
            "consumerGroup": group,
            "clientId": client_id,
            "strategyName": "AVG",
            "messageModel": "BROADCASTING",
        }
    )


def read_mode(addr: str, command: Command, body: bytes) -> ConsumeMode | None:
    """Return the mode; None: the broker knows no queue of the topic yet. Raises BrokerRefusedError."""
    if command.code != Code.SUCCESS:
        raise refused(addr, command)
    try:
        assigned = read_object(body).get("messageQueueAssignments")
    except BadBodyError as error:
        raise BrokerRefusedError(addr, Code.SYSTEM_ERROR, f"assignment of queues: {error}") from error
    modes = {each.get("mode") for each in assigned if isinstance(each, dict)} if isinstance(assigned, list) else set()
    # Fastjson leaves out what is not set, which means PULL.
    return None if not modes else ConsumeMode.POP if modes == {"POP"} else ConsumeMode.PULL


def _kind_of(stored_topic: str, group: str) -> str:
    if without_pop_retry(stored_topic, group) == stored_topic:
        return _NORMAL
    return _RETRY_V2 if stored_topic[len(retry_topic(group))] == "+" else _RETRY


def _numbers_by_queue(addr: str, command: Command, name: str) -> Mapping[str, int]:
    """Read ``kind queue number;...``."""
    found: dict[str, int] = {}
    for item in command.ext.get(name, "").split(";"):
        fields: Sequence[str] = item.split(" ")
        if not item:
            continue
        if len(fields) != 3 or not fields[2].isdigit():
            text = f"{name} of its response is not readable: {item[:100]!r}"
            raise BrokerRefusedError(addr, Code.SYSTEM_ERROR, text)
        found[f"{fields[0]} {fields[1]}"] = int(fields[2])
    return found
