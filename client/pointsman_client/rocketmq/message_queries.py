"""Messages by key, by id and by their place in the commit log, as the index of a broker has them (``mqadmin``)."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping

from pointsman.names import join_addr
from pointsman.rocketmq.codes import BrokerRequestCode, BrokerResponseCode
from pointsman_client.core.message import ReceivedMessage
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.errors import UnreadableMessageError
from pointsman_client.rocketmq.broker_link import Link
from pointsman_client.rocketmq.broker_refusals import refused
from pointsman_client.rocketmq.message_codec import commit_log_offset, read_stored

MAX_INDEXED = 64
"""Messages that a broker returns for a key (``maxMsgsNumBatch``)."""
MAX_BODY_BYTES = 16 * 1024 * 1024
_ALL_TIMES = {"beginTimestamp": "0", "endTimestamp": str(2**63 - 1)}
_NO_SUCH_MESSAGE = "can not find message"


async def query_messages(
    link: Link, queue: MessageQueue, *, key: str = "", message_id: str = "", timeout_seconds: float
) -> list[ReceivedMessage]:
    """Return messages of the queue's topic and broker with a key, or with a producer's id: at most MAX_INDEXED.

    The index has hashes, so messages of other keys are left out. Raises as :meth:`Link.request`, BrokerRefusedError,
    and UnreadableMessageError.
    """
    fields = {"topic": queue.topic, "key": key or message_id, "maxNum": str(MAX_INDEXED), **_ALL_TIMES}
    if message_id:
        fields["_UNIQUE_KEY_QUERY"] = "true"
    found = await _ask(link, queue, BrokerRequestCode.QUERY_MESSAGE, fields, timeout_seconds)
    return [each for each in found if (key in each.keys if key else each.message_id == message_id)]


async def view_message(
    link: Link, queue: MessageQueue, offset_message_id: str, *, timeout_seconds: float
) -> ReceivedMessage | None:
    """Return the message with this ``offsetMsgId``; None: the broker has none. Raises as :func:`query_messages`."""
    offset = commit_log_offset(offset_message_id)
    if offset is None:
        return None
    fields = {"topic": queue.topic, "offset": str(offset)}
    found = await _ask(link, queue, BrokerRequestCode.VIEW_MESSAGE_BY_ID, fields, timeout_seconds)
    return next((each for each in found if each.offset_message_id == offset_message_id.upper()), None)


def broker_of(offset_message_id: str) -> str | None:
    """Return the address of the broker that an ``offsetMsgId`` names; None for an id of another form."""
    if commit_log_offset(offset_message_id) is None:
        return None
    try:
        stored_by = bytes.fromhex(offset_message_id)[:-8]
    except ValueError:
        return None
    host, port = ipaddress.ip_address(stored_by[:-4]), int.from_bytes(stored_by[-4:], "big")
    return join_addr(str(host), port) if 0 < port < 65_536 else None


async def _ask(
    link: Link, queue: MessageQueue, code: BrokerRequestCode, fields: Mapping[str, str], timeout_seconds: float
) -> list[ReceivedMessage]:
    command, body = await link.request(code, fields, timeout_seconds=timeout_seconds, is_read=True)
    if command.code == BrokerResponseCode.QUERY_NOT_FOUND or _NO_SUCH_MESSAGE in (command.remark or ""):
        return []
    if command.code != BrokerResponseCode.SUCCESS:
        raise refused(link.addr, command)
    try:
        return read_stored(body, cluster=queue.cluster, broker_name=queue.broker_name, max_body_bytes=MAX_BODY_BYTES)
    except ValueError as error:
        raise UnreadableMessageError(link.addr, str(queue), offset=-1, problem=str(error)) from error
