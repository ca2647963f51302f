"""Messages as requests to a broker: headers prepared for each queue, compression, delays. Pure."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from datetime import datetime
from json.encoder import encode_basestring_ascii as json_text

from pointsman.rocketmq.codes import BrokerRequestCode
from pointsman.rocketmq.frames import MAX_FRAME_BYTES, MAX_HEADER_BYTES
from pointsman_client.core.message import OutgoingMessage
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.reply_address import REPLY_TYPE
from pointsman_client.errors import InvalidMessageError, MessageTooLargeError
from pointsman_client.rocketmq.message_codec import (
    COMPRESSED,
    PREPARED,
    encode_batch,
    milliseconds,
    properties_text,
    property_text,
)
from pointsman_client.rocketmq.request_frames import ENDS, request_head
from pointsman_client.rocketmq.rocketmq_options import RocketmqOptions

DEFAULT_TOPIC = "TBW102"
"""Topic of brokers that create topics with the first message (``autoCreateTopicEnable``)."""
DEFAULT_TOPIC_QUEUE_NUMS = 4
"""Queues of such a topic on each broker (``defaultTopicQueueNums`` of the Java client)."""
DELIVER_AT = "deliver_at"
VERSION_WITH_TIMERS = 413
"""5.0.0: older brokers ignore TIMER_DELIVER_MS."""

_DELAYS_MS = tuple(1000 * seconds for seconds in (1, 5, 10, 30, *range(60, 601, 60), 1200, 1800, 3600, 7200))
"""``messageDelayLevel`` of brokers: levels 1 to 18."""
_MAX_BODY_BYTES = MAX_FRAME_BYTES - MAX_HEADER_BYTES
_MAX_PREPARED = 10_000
# Plain numbers: they are looked up for each message.
_SEND = int(BrokerRequestCode.SEND_MESSAGE_V2)
_SEND_BATCH = int(BrokerRequestCode.SEND_BATCH_MESSAGE)
_SEND_REPLY = int(BrokerRequestCode.SEND_REPLY_MESSAGE_V2)
_NEVER_DEAD = "2147483647"
"""``maxReconsumeTimes``: the consumer itself moves messages to the dead letters."""


class SendRequests:
    """Turns messages into requests; keeps the constant part of the header for each queue."""

    def __init__(self, options: RocketmqOptions) -> None:
        self._options = options
        self._prepared: dict[tuple[MessageQueue, int], bytes] = {}

    def to_request(
        self,
        queue: MessageQueue,
        messages: Sequence[OutgoingMessage],
        *,
        now: datetime,
        version: int,
        is_one_way: bool = False,
    ) -> tuple[bytes, bytes]:
        """Return head and body of a request that sends the messages; more than one as a batch.

        ``version``: the broker's. Raises InvalidMessageError and MessageTooLargeError.
        """
        first, code, sys_flag = messages[0], _SEND, 0
        is_batch = len(messages) > 1
        if is_batch:
            due_at = next((each.due_at for each in messages if each.due_at is not None), None)
            if due_at is not None:
                problem = "cannot be set in a batch on RocketMQ brokers: send the message alone"
                raise InvalidMessageError(DELIVER_AT, due_at.isoformat(), problem)
            body = encode_batch(messages, queue.topic)
            code, properties = _SEND_BATCH, property_text("WAIT", "true")
        else:
            delay = "" if first.due_at is None else delay_property(first.due_at, now=now, version=version)
            properties = properties_text(first, queue.topic, delay)
            body, sys_flag = self._compressed(first.message.body)
            if internal := first.internal_properties:
                code = _SEND_REPLY if internal.get("MSG_TYPE") == REPLY_TYPE else _SEND
                sys_flag |= PREPARED if "TRAN_MSG" in internal else 0
        if len(body) > _MAX_BODY_BYTES:
            raise MessageTooLargeError(queue.topic, len(body), _MAX_BODY_BYTES)
        account = self._options.access_key
        if account is not None:
            fields = self._constant_fields(queue, is_batch=is_batch) | {
                "f": str(sys_flag),
                "g": str(milliseconds(first.born_at)),
                "i": properties,
                "j": str(first.reconsume_times),
            }
            return request_head(code, account.signed(fields, body), is_one_way=is_one_way), body
        head = b'%b"f":"%d","g":"%d","i":%b,"j":"%d"%b' % (
            self._prepared.get((queue, code)) or self._prepare(queue, code, is_batch=is_batch),
            sys_flag,
            milliseconds(first.born_at),
            json_text(properties).encode(),
            first.reconsume_times,
            ENDS[is_one_way],
        )
        return head, body

    def _constant_fields(self, queue: MessageQueue, *, is_batch: bool) -> dict[str, str]:
        """Fields by their letters in SEND_MESSAGE_V2 (``SendMessageRequestHeaderV2``)."""
        return {
            "a": self._options.producer_group,
            "b": queue.topic,
            "c": DEFAULT_TOPIC,
            "d": str(DEFAULT_TOPIC_QUEUE_NUMS),
            "e": str(queue.queue_id),
            "h": "0",
            "k": "false",
            "l": _NEVER_DEAD,
            "m": "true" if is_batch else "false",
            "n": queue.broker_name,
        }

    def _prepare(self, queue: MessageQueue, code: int, *, is_batch: bool) -> bytes:
        fields = self._constant_fields(queue, is_batch=is_batch)
        head = request_head(code, fields).removesuffix(ENDS[False]) + b","
        if len(self._prepared) >= _MAX_PREPARED:
            self._prepared.clear()
        self._prepared[queue, code] = head
        return head

    def _compressed(self, body: bytes) -> tuple[bytes, int]:
        """The body as it is sent, and its sysFlag."""
        from_bytes = self._options.compress_from_bytes
        if from_bytes is None or len(body) < from_bytes:
            return body, 0
        smaller = zlib.compress(body, self._options.compress_level)
        return (smaller, COMPRESSED) if len(smaller) < len(body) else (body, 0)


def delay_property(due_at: datetime, *, now: datetime, version: int) -> str:
    """Return the property by which a broker of this version delivers a message at ``due_at``; empty: it is due.

    Before 5.0 brokers have levels only: the first that is not too early. Raises InvalidMessageError beyond the highest.
    """
    wait_ms = milliseconds(due_at) - milliseconds(now)
    if wait_ms <= 0:
        return ""
    if version >= VERSION_WITH_TIMERS:
        return property_text("TIMER_DELIVER_MS", milliseconds(due_at))
    level = next((level for level, delay in enumerate(_DELAYS_MS, 1) if delay >= wait_ms), None)
    if level is None:
        problem = "is more than 2 h ahead, the longest delay of brokers before 5.0"
        raise InvalidMessageError(DELIVER_AT, due_at.isoformat(), problem)
    return property_text("DELAY", level)
