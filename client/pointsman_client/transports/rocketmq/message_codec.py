"""Messages as RocketMQ brokers store them and as producers send them. Pure.

A stored message is the big-endian record of RocketMQ's ``MessageDecoder``; a response to a pull has several of them in
a row. Properties are ``name 01 value 02``, repeated.
"""

from __future__ import annotations

import importlib
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from pointsman.wire.group_topics import is_group_topic
from pointsman_client.core.message import NO_PROPERTIES, Message, OutgoingMessage, ReceivedMessage
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.errors import InvalidMessageError

COMPRESSED = 0x1
"""Flag of a compressed body, in ``sysFlag``. zlib's number in the bits of the type is 0."""
_IPV6_HOSTS, _INNER_BATCH = 0x30, 0xC0

MAX_PROPERTIES_BYTES = 32_767
"""Brokers refuse longer ones (``Short.MAX_VALUE``)."""

# Sizes of the hosts are in bits 4 (born) and 5 (stored) of sysFlag.
_HEADERS = tuple(struct.Struct(f">IIIiiqqiq{born}sq{stored}siqI") for stored in (8, 20) for born in (8, 20))
_SYS_FLAG_AT, _SHORTEST = 36, 91
_MAGIC, _MAGIC_V2 = 0xDAA320A7, 0xDAA320AB
_BATCHED = struct.Struct(">IIIiI")
_CRC_MASK = 0x7FFFFFFF

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)

_ORIGIN, _ERROR = "POINTSMAN_ORIGIN", "POINTSMAN_ERROR"
RESERVED_PROPERTIES = frozenset(
    f"""
    {_ORIGIN} {_ERROR} TAGS KEYS UNIQ_KEY EXTEND_UNIQ_INFO DUP_INFO WAIT DELAY PGROUP TRAN_MSG BUYER_ID INSTANCE_ID
    TIMER_DELAY_SEC TIMER_DELAY_MS TIMER_DELIVER_MS TIMER_ENQUEUE_MS TIMER_DEQUEUE_MS TIMER_ROLL_TIMES TIMER_OUT_MS
    TIMER_DEL_UNIQKEY TIMER_DELAY_LEVEL TIMER_ROLL_LABEL CORRELATION_ID REPLY_TO_CLIENT TTL ARRIVE_TIME PUSH_REPLY_TIME
    MSG_TYPE CLUSTER MSG_REGION TRACE_ON REAL_TOPIC REAL_QID RETRY_TOPIC ORIGIN_MESSAGE_ID DLQ_ORIGIN_TOPIC
    DLQ_ORIGIN_MESSAGE_ID RECONSUME_TIME MAX_RECONSUME_TIMES TRANSFER_FLAG CORRECTION_FLAG MQ2_FLAG MIN_OFFSET
    MAX_OFFSET CONSUME_START_TIME POP_CK POP_CK_OFFSET 1ST_POP_TIME INNER_NUM INNER_BASE INNER_MULTI_DISPATCH
    INNER_MULTI_QUEUE_OFFSET TRAN_PREPARED_QUEUE_OFFSET TRANSACTION_CHECK_TIMES CHECK_IMMUNITY_TIME_IN_SECONDS
    __transactionId__ __CRC32# __BORNHOST BORN_TIMESTAMP
    """.split()
)
"""Names that RocketMQ or this transport uses itself (``MessageConst.STRING_HASH_SET``, and what brokers add)."""


class Unreadable(NamedTuple):
    """A stored message that cannot be read."""

    queue_offset: int
    problem: str


# --- out ------------------------------------------------------------------------------------------------------


def properties_text(outgoing: OutgoingMessage, topic: str, delay: str = "") -> str:
    """Return the properties of a message for a queue of ``topic``; ``delay``: properties as text, to be added.

    Raises InvalidMessageError for properties that would not arrive as they are.
    """
    message = outgoing.message
    text = f"UNIQ_KEY\x01{outgoing.message_id}\x02{delay}"
    if message.tags:
        text += f"TAGS\x01{message.tags}\x02"
    if message.keys:
        text += f"KEYS\x01{' '.join(message.keys)}\x02"
    if message.topic != topic:
        text += f"RETRY_TOPIC\x01{message.topic}\x02"
    if outgoing.origin:
        text += f"{_ORIGIN}\x01{outgoing.origin}\x02"
    if outgoing.error:
        text += f"{_ERROR}\x01{_without_separators(outgoing.error)}\x02"
    if message.properties:
        text += _users_properties(message.properties)
    if len(text) * 4 > MAX_PROPERTIES_BYTES and len(text.encode()) > MAX_PROPERTIES_BYTES:
        problem = f"have more than {MAX_PROPERTIES_BYTES} bytes with tags and keys, which RocketMQ brokers refuse"
        raise InvalidMessageError("properties", len(text.encode()), problem)
    return text


def property_text(name: str, value: object) -> str:
    """Return one property."""
    return f"{name}\x01{value}\x02"


def _users_properties(properties: Mapping[str, str]) -> str:
    if not RESERVED_PROPERTIES.isdisjoint(properties):
        name = min(RESERVED_PROPERTIES.intersection(properties))
        raise InvalidMessageError("properties", name, "is a name that RocketMQ uses itself: choose another")
    text = "".join([f"{name}\x01{value}\x02" for name, value in properties.items()])
    is_whole = text.count("\x01") == text.count("\x02") == len(properties)
    if not is_whole or "\x01\x02" in text or "" in properties:
        problem = "must have names and values that are not empty and do not contain U+0001 or U+0002 (RocketMQ)"
        raise InvalidMessageError("properties", dict(properties), problem)
    return text


def _without_separators(text: str) -> str:
    return text.replace("\x01", " ").replace("\x02", " ").encode("utf-8", "replace").decode()


def encode_batch(messages: Iterable[tuple[bytes, str]]) -> bytes:
    """Return the body of a batch: a record for each pair of body and properties."""
    parts: list[bytes] = []
    for body, properties in messages:
        text = properties.encode()
        size = _BATCHED.size + len(body) + 2 + len(text)
        parts += (_BATCHED.pack(size, 0, 0, 0, len(body)), body, len(text).to_bytes(2, "big"), text)
    return b"".join(parts)


def milliseconds(at: datetime) -> int:
    """Return a time as RocketMQ has it: milliseconds since 1970, UTC."""
    return (at - _EPOCH) // _MILLISECOND


def tag_code(tag: str) -> int:
    """Return Java's ``String.hashCode`` of a tag, by which brokers filter; 0: no tag."""
    code = 0
    units = tag.encode("utf-16-be", "surrogatepass")
    for (unit,) in struct.iter_unpack(">H", units):
        code = (31 * code + unit) & 0xFFFFFFFF
    return code - (code >> 31 << 32)


# --- in -------------------------------------------------------------------------------------------------------


def decode_messages(
    data: bytes, queue: MessageQueue, *, first_offset: int, max_body_bytes: int
) -> tuple[list[ReceivedMessage], Unreadable | None]:
    """Read stored messages from offset ``first_offset`` on, up to the first that cannot be read."""
    found: list[ReceivedMessage] = []
    next_offset = first_offset
    try:
        for record in _records(data):
            next_offset = max(next_offset, record.queue_offset)
            if record.is_inner_batch:
                found += (
                    each for each in _unwrapped(record, queue, max_body_bytes) if each.queue_offset >= next_offset
                )
            elif record.queue_offset >= next_offset:
                body = _body(record, max_body_bytes)
                found.append(_received(record, queue, record.queue_offset, body, record.properties))
            if found:
                next_offset = found[-1].queue_offset + 1
    except _UnreadableError as error:
        return found, Unreadable(next_offset, str(error))
    return found, None


def store_times(data: bytes) -> list[tuple[int, int]]:
    """Return offset and store time in milliseconds of stored messages. Raises ValueError."""
    return [(record.queue_offset, record.stored_ms) for record in _records(data)]


def commit_log_offset(offset_message_id: str) -> int | None:
    """Return where in its broker's commit log a message is; None for an id of another form."""
    if len(offset_message_id) not in {32, 56}:
        return None
    try:
        return int(offset_message_id[-16:], 16)
    except ValueError:
        return None


class _UnreadableError(ValueError):
    pass


class _Record(NamedTuple):
    queue_offset: int
    commit_log_offset: int
    sys_flag: int
    born_ms: int
    stored_ms: int
    store_host: bytes
    reconsume_times: int
    crc: int
    body: bytes
    properties: bytes

    @property
    def is_inner_batch(self) -> bool:
        return self.sys_flag & _INNER_BATCH == _INNER_BATCH


def stored_queue(data: bytes) -> tuple[str, int]:
    """Return topic and queue id of the first stored message; empty and 0 if there is none."""
    if len(data) < _SHORTEST:
        return "", 0
    header = _HEADERS[(data[_SYS_FLAG_AT + 3] & _IPV6_HOSTS) >> 4]
    if len(data) < header.size:
        return "", 0
    _, magic, _, queue_id, *_, body_length = header.unpack_from(data)
    at, width = header.size + body_length, 1 if magic == _MAGIC else 2
    end = at + width + int.from_bytes(data[at : at + width], "big")
    return data[at + width : end].decode("utf-8", "replace"), queue_id


def _records(data: bytes) -> Iterator[_Record]:
    at, end = 0, len(data)
    while at < end:
        if end - at < _SHORTEST:
            raise _UnreadableError(f"a stored message is cut off after {end - at} bytes")
        # The lowest byte of sysFlag.
        header = _HEADERS[(data[at + _SYS_FLAG_AT + 3] & _IPV6_HOSTS) >> 4]
        if end - at < header.size:
            raise _UnreadableError(f"a stored message is cut off after {end - at} bytes")
        # fmt: off
        (size, magic, crc, _queue_id, _flag, queue_offset, log_offset, sys_flag, born_ms, _born_host, stored_ms,
         store_host, reconsume_times, _prepared, body_length) = header.unpack_from(data, at)
        # fmt: on
        if magic not in {_MAGIC, _MAGIC_V2}:
            raise _UnreadableError(f"a stored message has the unknown magic number {magic:08X}")
        body_at = at + header.size
        topic_at = body_at + body_length
        width = 1 if magic == _MAGIC else 2
        properties_at = topic_at + width + int.from_bytes(data[topic_at : topic_at + width], "big") + 2
        message_end = at + size
        properties_end = properties_at + int.from_bytes(data[properties_at - 2 : properties_at], "big")
        if properties_end > message_end or message_end > end:
            raise _UnreadableError(f"the lengths in a stored message of {size} bytes exceed it")
        at = message_end
        yield _Record(
            queue_offset,
            log_offset,
            sys_flag,
            born_ms,
            stored_ms,
            store_host,
            reconsume_times,
            crc,
            data[body_at:topic_at],
            data[properties_at:properties_end],
        )


def _body(record: _Record, max_bytes: int) -> bytes:
    """The body, checked and decompressed."""
    body = record.body
    crc = zlib.crc32(body) & _CRC_MASK
    if crc != record.crc:
        raise _UnreadableError(f"the CRC-32 of its body is {crc}, {record.crc} was stored: the message is damaged")
    return _decompressed(body, record.sys_flag >> 8 & 7, max_bytes) if record.sys_flag & COMPRESSED else body


def _received(
    record: _Record, queue: MessageQueue, queue_offset: int, body: bytes, properties: bytes
) -> ReceivedMessage:
    topic, tags, message_id, origin, error = queue.topic, "", "", "", ""
    keys: tuple[str, ...] = ()
    users: dict[str, str] = {}
    is_of_group = is_group_topic(topic)
    for item in properties.decode("utf-8", "replace").split("\x02"):
        name, _, value = item.partition("\x01")
        if not name or not value:
            continue
        if name not in RESERVED_PROPERTIES:
            users[name] = value
        elif name == "UNIQ_KEY":
            # 5.x appends the id of a batch to each of its messages; the first one is the message's own.
            message_id = message_id or value
        elif name == "TAGS":
            tags = value
        elif name == "KEYS":
            keys = tuple(value.split())
        elif is_of_group:
            if name in {"RETRY_TOPIC", "DLQ_ORIGIN_TOPIC"}:
                topic = value
            elif name == _ORIGIN or (name == "ORIGIN_MESSAGE_ID" and not origin):
                origin = value
            elif name == _ERROR:
                error = value
    offset_message_id = (record.store_host + record.commit_log_offset.to_bytes(8, "big", signed=True)).hex().upper()
    return ReceivedMessage(
        Message.unchecked(topic, body, tags, keys, users or NO_PROPERTIES),
        queue,
        queue_offset,
        message_id or offset_message_id,
        _time(record.born_ms),
        record.reconsume_times,
        None,
        origin,
        error,
        offset_message_id,
    )


def _unwrapped(record: _Record, queue: MessageQueue, max_bytes: int) -> list[ReceivedMessage]:
    """The messages of a batch that is stored as one message (batch-queue topics of 5.x)."""
    data = _body(record, max_bytes)
    found: list[ReceivedMessage] = []
    at = 0
    while at < len(data):
        body_at = at + _BATCHED.size
        if body_at > len(data):
            raise _UnreadableError("a stored batch is cut off")
        size, _magic, _crc, _flag, body_length = _BATCHED.unpack_from(data, at)
        properties_at = body_at + body_length + 2
        properties_end = properties_at + int.from_bytes(data[properties_at - 2 : properties_at], "big")
        if not properties_end <= at + size <= len(data):
            raise _UnreadableError("the lengths in a stored batch exceed it")
        body, properties = data[body_at : properties_at - 2], data[properties_at:properties_end]
        found.append(_received(record, queue, record.queue_offset + len(found), body, properties))
        at += size
    return found


def _time(milliseconds_since: int) -> datetime | None:
    try:
        return datetime.fromtimestamp(milliseconds_since / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return None


def _decompressed(body: bytes, kind: int, max_bytes: int) -> bytes:
    method = _METHODS.get(kind)
    if method is None:
        raise _UnreadableError(f"its body is compressed by unknown method {kind}")
    try:
        data = method(body, max_bytes + 1)
    except _UnreadableError:
        raise
    except Exception as error:  # each library raises its own errors for bytes that it cannot read
        raise _UnreadableError(f"its body cannot be decompressed: {error}") from error
    if len(data) > max_bytes:
        raise _UnreadableError(f"its body has more than {max_bytes} bytes after decompression (max_body_bytes)")
    return data


def _inflated(body: bytes, max_bytes: int) -> bytes:
    decompressor = zlib.decompressobj()
    data = decompressor.decompress(body, max_bytes)
    if not decompressor.eof and len(data) < max_bytes:
        raise ValueError("its end is missing")
    return data


def _lz4_decompressed(body: bytes, max_bytes: int) -> bytes:
    data: bytes = _package("lz4.frame", "lz4", "LZ4").LZ4FrameDecompressor().decompress(body, max_bytes)
    return data


def _zstd_decompressed(body: bytes, max_bytes: int) -> bytes:
    data: bytes = _package("zstandard", "zstandard", "zstd").ZstdDecompressor().stream_reader(body).read(max_bytes)
    return data


_METHODS = {0: _inflated, 1: _lz4_decompressed, 2: _zstd_decompressed, 3: _inflated}
"""By bits 8 to 10 of sysFlag (``CompressionType``). Each returns at most as many bytes as it is allowed."""


def _package(module: str, package: str, method: str) -> Any:  # noqa: ANN401  # a module that may be missing
    try:
        return importlib.import_module(module)
    except ImportError as error:
        text = f"its body is compressed with {method}, which needs the package {package}: pip install {package}"
        raise _UnreadableError(text) from error
