"""Messages as RocketMQ's brokers store them, made for tests."""

from __future__ import annotations

import struct
import zlib
from typing import Any

MAGIC, MAGIC_V2 = 0xDAA320A7, 0xDAA320AB
BORN_MS, STORED_MS = 1_767_225_600_123, 1_767_225_600_456
IPV4, IPV6 = bytes([127, 0, 0, 1]), bytes(15) + b"\x01"
PORT = 10_911


def stored_message(
    body: bytes,
    *,
    offset: int = 0,
    queue_id: int = 0,
    topic: str = "orders",
    properties: str = "",
    sys_flag: int = 0,
    magic: int = MAGIC,
    crc: int | None = None,
    born_host: bytes = IPV4,
    store_host: bytes = IPV4,
    log_offset: int = 0,
    born_ms: int = BORN_MS,
    stored_ms: int = STORED_MS,
    reconsume_times: int = 0,
) -> bytes:
    """Return one record; the bits of sysFlag for IPv6 hosts are set by the hosts."""
    sys_flag |= (0x10 if len(born_host) == 16 else 0) | (0x20 if len(store_host) == 16 else 0)
    name, more = topic.encode(), properties.encode()
    record = struct.pack(">III", magic, zlib.crc32(body) & 0x7FFFFFFF if crc is None else crc, queue_id)
    record += struct.pack(">iqqiq", 0, offset, log_offset, sys_flag, born_ms)
    record += born_host + struct.pack(">Iq", PORT, stored_ms) + store_host + struct.pack(">I", PORT)
    record += struct.pack(">iqI", reconsume_times, 0, len(body)) + body
    record += len(name).to_bytes(2 if magic == MAGIC_V2 else 1, "big") + name + struct.pack(">H", len(more)) + more
    return struct.pack(">I", len(record) + 4) + record


def batch_record(body: bytes, properties: str = "") -> bytes:
    """Return one message of a batch's body."""
    more = properties.encode()
    return (
        struct.pack(">IIIiI", 22 + len(body) + len(more), 0, 0, 0, len(body))
        + body
        + struct.pack(">H", len(more))
        + more
    )


def read_batch(data: bytes) -> list[tuple[bytes, str]]:
    """Return body and properties of each message of a batch, as a broker reads them."""
    found, at = [], 0
    while at < len(data):
        size, _, _, _, length = struct.unpack_from(">IIIiI", data, at)
        body = data[at + 20 : at + 20 + length]
        (more,) = struct.unpack_from(">H", data, at + 20 + length)
        properties = data[at + 22 + length : at + 22 + length + more]
        assert size == 22 + length + more
        found.append((body, properties.decode()))
        at += size
    return found


def property_map(properties: str) -> dict[str, str]:
    """Return properties by name."""
    return dict(item.split("\x01") for item in properties.split("\x02") if item)


def text_of(properties: dict[str, Any]) -> str:
    """Return properties as text."""
    return "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
