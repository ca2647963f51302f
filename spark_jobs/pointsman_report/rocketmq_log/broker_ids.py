"""Broker names and ids by address, from a name server's response to GET_BROKER_CLUSTER_INFO (106), live or saved.

A log has only the addresses of brokers.
"""

from __future__ import annotations

import json
import re
import socket
import struct
from pathlib import Path
from typing import Any, NamedTuple

from pointsman_report.report_errors import ReportError

TIMEOUT_SECONDS = 5.0
MAX_RESPONSE_BYTES = 16 * 1024 * 1024
"""RocketMQ's limit of a frame (``com.rocketmq.remoting.frameMaxLength``)."""

_BARE_KEY = re.compile(rb"(?<=[{,])(-?\d+)(?=:)")
_REQUEST = b'{"code":106,"flag":0,"language":"PYTHON","opaque":1,"serializeTypeCurrentRPC":"JSON","version":479}'
_ADDR = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.%]+)\]|(?P<host>[^:/\s]+)):(?P<port>\d{1,5})")


class BrokerIdsError(ReportError):
    """No valid response to request 106; the message has the reason."""


class BrokerId(NamedTuple):
    """The key of a replica in the history."""

    cluster: str
    broker_name: str
    broker_id: int


def load(source: str) -> dict[str, BrokerId]:
    """Read the brokers by address from a file, or query a name server ``host:port``.

    Raises:
        BrokerIdsError: neither succeeded.
    """
    path = Path(source)
    addr = _ADDR.fullmatch(source)
    if addr is not None and not path.exists():
        body = _query(addr["v6"] or addr["host"], int(addr["port"]), source)
    else:
        try:
            body = path.read_bytes()
        except OSError as error:
            raise BrokerIdsError(f"--ids {source}: {error.strerror}; give a file or a name server HOST:PORT") from error
    try:
        return brokers_of(body)
    except ValueError as error:
        raise BrokerIdsError(f"--ids {source}: not a response to request 106 (ClusterInfo): {error}") from error


def brokers_of(body: bytes) -> dict[str, BrokerId]:
    """Parse RocketMQ's ``ClusterInfo``; numeric keys may be unquoted, as RocketMQ writes them, or quoted.

    Raises:
        ValueError: it is not a ClusterInfo.
    """
    try:
        table: Any = json.loads(_BARE_KEY.sub(rb'"\1"', body))
        return {
            str(addr): BrokerId(str(data["cluster"]), str(name), int(number))
            for name, data in table["brokerAddrTable"].items()
            for number, addr in data["brokerAddrs"].items()
            if int(number) >= 0
        }
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"brokerAddrTable, cluster or brokerAddrs is missing ({error})") from error


def _query(host: str, port: int, source: str) -> bytes:
    # The report does not depend on the wire packages. This is the only request it sends, so 20 lines are acceptable.
    try:
        with socket.create_connection((host, port), TIMEOUT_SECONDS) as connection:
            connection.settimeout(TIMEOUT_SECONDS)
            connection.sendall(struct.pack(">II", 4 + len(_REQUEST), len(_REQUEST)) + _REQUEST)
            (length,) = struct.unpack(">I", _read(connection, 4))
            if not 4 <= length <= MAX_RESPONSE_BYTES:
                raise BrokerIdsError(f"--ids {source}: not a RocketMQ name server")
            frame = _read(connection, length)
        header_length = int.from_bytes(frame[1:4], "big")
        header = json.loads(frame[4 : 4 + header_length])
        if header["code"] != 0:
            raise BrokerIdsError(f"--ids {source}: request 106 was rejected: {header.get('remark')}")
        return frame[4 + header_length :]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BrokerIdsError(f"--ids {source}: no response to request 106: {error}") from error


def _read(connection: socket.socket, count: int) -> bytes:
    found = bytearray()
    while len(found) < count:
        part = connection.recv(min(65_536, count - len(found)))
        if not part:
            raise OSError("the connection was closed")
        found += part
    return bytes(found)
