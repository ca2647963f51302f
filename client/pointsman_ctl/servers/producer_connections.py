"""Who sends to a broker: RocketMQ brokers know the groups of producers, Redis servers their connections.

Neither knows the topics of a producer. Any text in the responses is read, and made printable where it is shown.

Sources: RocketMQ ``ProducerTableInfo`` (request code 328), ``ProducerConnection`` (204); Redis ``CLIENT LIST``.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pointsman.names import split_addr
from pointsman.rocketmq.bodies import BadBodyError, list_of, number_of, read_object, text_of, to_object
from pointsman.rocketmq.codes import BrokerRequestCode as Request
from pointsman.rocketmq.codes import BrokerResponseCode as Code
from pointsman.rocketmq.frames import version_text
from pointsman_client import BrokerRefusedError, BrokerUnreachableError, ResponseCode
from pointsman_client.rocketmq import Link

WRITES = frozenset({"xadd", "exec", "wait", "waitaof"})
"""The last command of a connection that sends: XADD, alone or in MULTI, then perhaps the wait for replicas or disk."""
INNER_PRODUCER = "CLIENT_INNER_PRODUCER"
"""Group that every client of RocketMQ has, consumers too, to send failed messages back."""
MAX_REMARK = 300


@dataclass(frozen=True, slots=True)
class Sender:
    """One connection of a producer."""

    client_id: str
    """RocketMQ: of the client; Redis: the connection's name, empty: none."""
    addr: str
    group: str = ""
    """Producer group; empty on Redis brokers."""
    client: str = ""
    """Language or library, and version."""
    user: str = ""
    """ACL user of Redis."""
    idle_seconds: float | None = None
    """Since its last command or heartbeat; None: not known."""


async def rocketmq_senders(link: Link, group: str, *, seconds: float) -> list[Sender]:
    """Return the producers of one group, or of all where the broker lists them.

    Raises as :meth:`Link.request`, and BrokerRefusedError.
    """
    code = Request.GET_PRODUCER_CONNECTION_LIST if group else Request.GET_ALL_PRODUCER_INFO
    ext = {"producerGroup": group} if group else {}
    command, body = await link.request(code, ext, timeout_seconds=seconds, is_read=True)
    remark = (command.remark or "")[:MAX_REMARK]
    if group and command.code == Code.SYSTEM_ERROR and "not exist" in remark:
        return []
    if command.code == Code.REQUEST_CODE_NOT_SUPPORTED:
        text = "it does not list the producers of all groups: give --group"
        raise BrokerRefusedError(link.addr, command.code, text)
    if command.code != Code.SUCCESS:
        raise BrokerRefusedError(link.addr, command.code, f"{code.name} ({code}): {command.code}: {remark}")
    try:
        read = _of_group(group, body) if group else _of_all_groups(body, now=time.time())
        return sorted(read, key=lambda each: (each.group, each.client_id, each.addr))
    except BadBodyError as error:
        text = f"the response to {code.name} ({code}) cannot be read: {error}"
        raise BrokerRefusedError(link.addr, ResponseCode.SYSTEM_ERROR, text) from error


def _of_group(group: str, body: bytes) -> Iterator[Sender]:
    for connection in list_of(read_object(body), "connectionSet"):
        each = to_object(connection, "connectionSet")
        yield Sender(text_of(each, "clientId"), text_of(each, "clientAddr"), group, _client(each))


def _of_all_groups(body: bytes, *, now: float) -> Iterator[Sender]:
    table = to_object(read_object(body).get("data"), "data")
    for group in table.keys() - {INNER_PRODUCER}:
        for producer in list_of(table, group):
            each = to_object(producer, group)
            at = number_of({"lastUpdateTimestamp": 0, **each}, "lastUpdateTimestamp", most=2**63 - 1) / 1000
            idle = max(0.0, now - at) if at else None
            # It has the port, too, and Java's mark of an address that was not resolved.
            addr = text_of(each, "remoteIP").removeprefix("/")
            yield Sender(text_of(each, "clientId"), addr, group, _client(each), idle_seconds=idle)


def _client(each: Mapping[str, object]) -> str:
    version = version_text(number_of(each, "version", most=2**63 - 1))
    return f"{text_of(each, 'language')} {version}".strip()


async def redis_senders(
    addr: str, *, username: str, password: str, ssl: Mapping[str, object] | None, seconds: float
) -> list[Sender]:
    """Return the connections whose last command was one of WRITES. Needs the permission for CLIENT LIST.

    Raises ImportError without the redis package, BrokerUnreachableError and BrokerRefusedError.
    """
    from redis.asyncio import Redis  # noqa: PLC0415  # an extra
    from redis.exceptions import AuthenticationError, RedisError, ResponseError  # noqa: PLC0415

    host, port = split_addr(addr)
    options = {} if ssl is None else {"ssl": True, **ssl}
    client = Redis(
        host=host,
        port=port,
        username=username or None,
        password=password or None,
        socket_timeout=seconds,
        socket_connect_timeout=seconds,
        **options,  # type: ignore[arg-type]  # those of SSLConnection
    )
    try:
        listed = await client.client_list(_type="normal")
    except AuthenticationError as error:
        text = f"{error} (check username and password)"
        raise BrokerRefusedError(addr, ResponseCode.NO_PERMISSION, text) from error
    except ResponseError as error:
        text = f"{error} (permit the user CLIENT LIST)"
        raise BrokerRefusedError(addr, ResponseCode.NO_PERMISSION, text) from error
    except (RedisError, OSError, ValueError) as error:
        raise BrokerUnreachableError(addr, f"cannot be queried: {error}") from error
    finally:
        await client.aclose()
    return sorted(
        (_connection(each) for each in listed if str(each.get("cmd", "")).partition("|")[0] in WRITES),
        key=lambda each: (each.client_id, each.addr),
    )


def _connection(each: Mapping[str, object]) -> Sender:
    def text(name: str) -> str:
        return str(each.get(name, ""))

    idle = text("idle")
    return Sender(
        text("name"),
        text("addr"),
        client=f"{text('lib-name')} {text('lib-ver')}".strip(),
        user=text("user"),
        idle_seconds=float(idle) if idle.isascii() and idle.isdigit() else None,
    )
