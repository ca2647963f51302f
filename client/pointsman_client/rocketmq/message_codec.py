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
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple

from pointsman.group_topics import DLQ_PREFIX, RETRY_PREFIX, is_group_topic, without_pop_retry
from pointsman_client.core.message import NO_PROPERTIES, Message, OutgoingMessage, ReceivedMessage
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.reply_address import ReplyAddress
from pointsman_client.errors import InvalidMessageError

COMPRESSED = 0x1
"""Flag of a compressed body, in ``sysFlag``. zlib's number in the bits of the type is 0."""
PREPARED = 0x4
"""Flag of a half message."""
_IPV6_HOSTS, _INNER_BATCH = 0x30, 0xC0

MAX_PROPERTIES_BYTES = 32_767
"""Brokers refuse longer ones (``Short.MAX_VALUE``)."""

# Sizes of the hosts are in bits 4 (born) and 5 (stored) of sysFlag.
_HEADERS = tuple(struct.Struct(f">III8xqqiq{born}xq{stored}si8xI") for stored in (8, 20) for born in (8, 20))
_QUEUE_ID = struct.Struct(">12xi")
_SYS_FLAG_AT, _SHORTEST = 36, 91
_TOPIC_WIDTHS = {0xDAA320A7: 1, 0xDAA320AB: 2}
"""Bytes of the topic's length, by magic number."""
_BATCHED = struct.Struct(">IIIiI")
_PROPERTIES_LENGTH = struct.Struct(">H")
MAX_BATCHED = 100_000
"""Messages in a batch that is stored as one: more do not fit into the 4 MiB of ``maxMessageSize``."""
MAX_UNWRAPPED = 10_000
"""Maximum number of messages that are read at a time from a batch that is stored as one."""
_CRC_MASK = 0x7FFFFFFF
_64_BITS = 0xFFFFFFFFFFFFFFFF

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
_AWAITED = frozenset({"REPLY_TO_CLIENT", "CORRELATION_ID", "TTL"})
"""Of a request, and of its reply."""
_HIDDEN = RESERVED_PROPERTIES.difference(_AWAITED)


class Unread(NamedTuple):
    """The first stored message that was not read."""

    queue_offset: int
    problem: str
    """Why it cannot be read; empty: enough messages were read before it."""


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
    if outgoing.internal_properties:
        text += "".join([property_text(name, value) for name, value in outgoing.internal_properties.items()])
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


def encode_batch(messages: Iterable[OutgoingMessage], topic: str) -> bytes:
    """Return the body of a batch for a queue of ``topic``: a record for each message.

    Raises InvalidMessageError for properties that would not arrive as they are.
    """
    parts: list[bytes] = []
    record, length = _BATCHED.pack, _PROPERTIES_LENGTH.pack
    for outgoing in messages:
        body, properties = outgoing.message.body, properties_text(outgoing, topic).encode()
        body_bytes, property_bytes = len(body), len(properties)
        size = _BATCHED.size + body_bytes + _PROPERTIES_LENGTH.size + property_bytes
        parts += (record(size, 0, 0, 0, body_bytes), body, length(property_bytes), properties)
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
    data: bytes, queue: MessageQueue, *, first_offset: int, max_messages: int, max_body_bytes: int
) -> tuple[list[ReceivedMessage], Unread | None]:
    """Read stored messages from offset ``first_offset`` on, up to the first that cannot be read.

    Ends early with ``max_messages``, which one batch may exceed by :data:`MAX_UNWRAPPED`, or with decompressed bodies
    of more than ``max_body_bytes``, the limit of each.
    """
    found: list[ReceivedMessage] = []
    next_offset, decompressed_bytes = first_offset, 0
    reader = _MessageReader(queue)
    try:
        for header, stored_body, properties in _records(data):
            queue_offset = header.queue_offset
            is_inner_batch = header.sys_flag & _INNER_BATCH == _INNER_BATCH
            if queue_offset >= next_offset:
                next_offset = queue_offset
            elif not is_inner_batch or next_offset - queue_offset > MAX_BATCHED:
                continue
            body = _checked_body(header, stored_body, max_body_bytes)
            if header.sys_flag & COMPRESSED:
                decompressed_bytes += len(body)
            if not is_inner_batch:
                found.append(reader.read(header, queue_offset, body, properties))
                next_offset += 1
            else:
                begin = next_offset - queue_offset
                inner = islice(_unwrapped(body), begin, begin + max(max_messages, MAX_UNWRAPPED))
                read = [reader.read(header, at, *each) for at, each in enumerate(inner, next_offset)]
                found += read
                next_offset += len(read)
            if len(found) >= max_messages or (decompressed_bytes > max_body_bytes and found):
                return found, Unread(next_offset, "")
            if decompressed_bytes > max_body_bytes:
                problem = f"batches before it have more than {max_body_bytes} bytes together (max_body_bytes)"
                return found, Unread(next_offset, problem)
    except _UnreadableError as error:
        return found, Unread(next_offset, str(error))
    return found, None


def read_stored(data: bytes, *, cluster: str, broker_name: str, max_body_bytes: int) -> list[ReceivedMessage]:
    """Read stored messages of any topics and queues of one broker. Raises ValueError."""
    found: list[ReceivedMessage] = []
    for record in stored_records(data):
        topic, queue_id = stored_queue(record)
        queue = MessageQueue(topic, cluster, broker_name, queue_id)
        messages, unread = decode_messages(
            record, queue, first_offset=0, max_messages=MAX_UNWRAPPED, max_body_bytes=max_body_bytes
        )
        if unread is not None and unread.problem:
            raise _UnreadableError(unread.problem)
        found += messages
    return found


def stored_records(data: bytes) -> Iterator[bytes]:
    """Yield each stored message as it is."""
    at = 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        yield data[at : at + max(size, 4)]
        at += max(size, 4)


def stored_property(record: bytes, name: str) -> str:
    """Return a property of one stored message; empty: it has none, or cannot be read."""
    try:
        properties = next((each for _, _, each in _records(record)), b"").decode("utf-8", "replace")
    except _UnreadableError:
        return ""
    pairs = (item.partition("\x01") for item in properties.split("\x02"))
    return next((value for found, _, value in pairs if found == name), "")


def store_times(data: bytes) -> list[tuple[int, int]]:
    """Return offset and store time in milliseconds of stored messages. Raises ValueError."""
    return [(header.queue_offset, header.stored_ms) for header, _, _ in _records(data)]


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


class _Header(NamedTuple):
    size: int
    magic: int
    crc: int
    queue_offset: int
    commit_log_offset: int
    sys_flag: int
    born_ms: int
    stored_ms: int
    store_host: bytes
    reconsume_times: int
    body_length: int


def stored_queue(data: bytes) -> tuple[str, int]:
    """Return topic and queue id of the first stored message; empty and 0 if there is none."""
    if len(data) < _SHORTEST:
        return "", 0
    header = _HEADERS[(data[_SYS_FLAG_AT + 3] & _IPV6_HOSTS) >> 4]
    if len(data) < header.size:
        return "", 0
    _, magic, *_, body_length = header.unpack_from(data)
    (queue_id,) = _QUEUE_ID.unpack_from(data)
    at, width = header.size + body_length, _TOPIC_WIDTHS.get(magic, 2)
    end = at + width + int.from_bytes(data[at : at + width], "big")
    return data[at + width : end].decode("utf-8", "replace"), queue_id


def _records(data: bytes) -> Iterator[tuple[_Header, bytes, bytes]]:
    """Yield header, body and properties of each stored message."""
    at, end = 0, len(data)
    while at < end:
        if end - at < _SHORTEST:
            raise _UnreadableError(f"a stored message is cut off after {end - at} bytes")
        # The lowest byte of sysFlag.
        layout = _HEADERS[(data[at + _SYS_FLAG_AT + 3] & _IPV6_HOSTS) >> 4]
        body_at = at + layout.size
        if end < body_at:
            raise _UnreadableError(f"a stored message is cut off after {end - at} bytes")
        # Like _Header._make(...) in half the time: this runs for each message.
        header = tuple.__new__(_Header, layout.unpack_from(data, at))
        width = _TOPIC_WIDTHS.get(header.magic)
        if width is None:
            raise _UnreadableError(f"a stored message has the unknown magic number {header.magic:08X}")
        topic_at = body_at + header.body_length
        at += header.size
        try:
            topic_length = data[topic_at] if width == 1 else data[topic_at] << 8 | data[topic_at + 1]
            properties_at = topic_at + width + topic_length + 2
            properties_end = properties_at + (data[properties_at - 2] << 8 | data[properties_at - 1])
        except IndexError:
            properties_end = end + 1
        if properties_end > at or at > end:
            raise _UnreadableError(f"the lengths in a stored message of {header.size} bytes exceed it")
        yield header, data[body_at:topic_at], data[properties_at:properties_end]


def _checked_body(header: _Header, body: bytes, max_bytes: int) -> bytes:
    """The body, checked and decompressed."""
    crc = zlib.crc32(body) & _CRC_MASK
    if crc != header.crc:
        raise _UnreadableError(f"the CRC-32 of its body is {crc}, {header.crc} was stored: the message is damaged")
    return _decompressed(body, header.sys_flag >> 8 & 7, max_bytes) if header.sys_flag & COMPRESSED else body


class _MessageReader:
    """Makes the messages of one response."""

    def __init__(self, queue: MessageQueue) -> None:
        self._queue = queue
        self._is_of_group = is_group_topic(queue.topic)
        self._group = queue.topic.removeprefix(DLQ_PREFIX).removeprefix(RETRY_PREFIX)
        self._ignored = {""}
        """Properties that are not in received messages. Those that brokers add are the same in each message."""

    def read(self, header: _Header, queue_offset: int, body: bytes, properties: bytes) -> ReceivedMessage:
        """Return one message."""
        offset_message_id = f"{_hexadecimal(header.store_host)}{header.commit_log_offset & _64_BITS:016X}"
        topic, tags, message_id, origin, error = self._queue.topic, "", "", "", ""
        keys: tuple[str, ...] = ()
        users: dict[str, str] = {}
        ignored = self._ignored
        for item in properties.decode("utf-8", "replace").split("\x02"):
            if item in ignored:
                continue
            name, _, value = item.partition("\x01")
            if not name or not value:
                continue
            if name == "UNIQ_KEY":
                # 5.x appends the id of a batch to each of its messages; the first one is the message's own.
                message_id = message_id or value
            elif name not in _HIDDEN:
                users[name] = value
            elif name == "TAGS":
                tags = value
            elif name == "KEYS":
                keys = tuple(value.split())
            elif self._is_of_group:
                if name in {"RETRY_TOPIC", "DLQ_ORIGIN_TOPIC"}:
                    # A dead letter of a group that leases was last in that group's retry topic.
                    topic = without_pop_retry(value, self._group)
                elif name == _ORIGIN or (name == "ORIGIN_MESSAGE_ID" and not origin):
                    origin = value
                elif name == _ERROR:
                    error = value
            else:
                ignored.add(item)
        address = _taken_address(users) if users and not _AWAITED.isdisjoint(users) else None
        message = Message.unchecked(topic, body, tags, keys, users or NO_PROPERTIES)
        message_id = message_id or offset_message_id
        born_at, times = _time(header.born_ms), header.reconsume_times
        # Like ReceivedMessage(...) in half the time.
        return tuple.__new__(
            ReceivedMessage,
            (
                message,
                self._queue,
                queue_offset,
                message_id,
                born_at,
                times,
                None,
                origin,
                error,
                offset_message_id,
                address,
                None,
            ),
        )


def _taken_address(properties: dict[str, str]) -> ReplyAddress | None:
    """Remove what is of a request from the properties; None: it does not state who awaits a reply."""
    client_id, correlation_id = properties.pop("REPLY_TO_CLIENT", ""), properties.pop("CORRELATION_ID", "")
    ttl = properties.pop("TTL", "")
    return ReplyAddress(client_id, correlation_id, ttl) if client_id and correlation_id else None


def read_reply(properties: str, body: bytes, sys_flag: int, topic: str, *, max_body_bytes: int) -> ReceivedMessage:
    """Read a reply that a broker passes on, from its header and body. Raises ValueError."""
    if sys_flag & COMPRESSED:
        body = _decompressed(body, sys_flag >> 8 & 7, max_body_bytes)
    header = _Header(0, 0, 0, 0, 0, sys_flag, 0, 0, b"", 0, len(body))
    return _MessageReader(MessageQueue(topic, "", "", 0)).read(header, 0, body, properties.encode())


def _unwrapped(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield body and properties of each message of a batch that is stored as one (batch-queue topics of 5.x)."""
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
        yield data[body_at : properties_at - 2], data[properties_at:properties_end]
        at += size


# Messages of a batch have the same time of birth, and all of a response the same broker.
@lru_cache(maxsize=64)
def _time(milliseconds_since: int) -> datetime | None:
    try:
        return datetime.fromtimestamp(milliseconds_since / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return None


@lru_cache(maxsize=64)
def _hexadecimal(data: bytes) -> str:
    return data.hex().upper()


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
    _check_end(is_reached=decompressor.eof or len(data) == max_bytes)
    return data


def _lz4_decompressed(body: bytes, max_bytes: int) -> bytes:
    decompressor = _package("lz4.frame", "lz4", "LZ4").LZ4FrameDecompressor()
    data: bytes = decompressor.decompress(body, max_bytes)
    _check_end(is_reached=decompressor.eof or len(data) == max_bytes)
    return data


def _zstd_decompressed(body: bytes, max_bytes: int) -> bytes:
    package = _package("zstandard", "zstandard", "zstd")
    data: bytes = package.ZstdDecompressor().stream_reader(body).read(max_bytes)
    if len(data) < max_bytes:
        # The reader does not report a missing end, and this object has no limit.
        decompressor = package.ZstdDecompressor().decompressobj()
        decompressor.decompress(body)
        _check_end(is_reached=decompressor.eof)
    return data


def _check_end(*, is_reached: bool) -> None:
    if not is_reached:
        raise ValueError("its end is missing")


_METHODS = {0: _inflated, 1: _lz4_decompressed, 2: _zstd_decompressed, 3: _inflated}
"""By bits 8 to 10 of sysFlag (``CompressionType``). Each returns at most as many bytes as it is allowed."""


def _package(module: str, package: str, method: str) -> Any:  # noqa: ANN401  # a module that may be missing
    try:
        return importlib.import_module(module)
    except ImportError as error:
        text = f"its body is compressed with {method}, which needs {package}: pip install 'pointsman-client[rocketmq]'"
        raise _UnreadableError(text) from error
