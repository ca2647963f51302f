"""Half messages of transactions: where a broker holds them, how they end, and what it asks about them. Pure."""

from __future__ import annotations

from pointsman.rocketmq.codes import BrokerRequestCode, BrokerResponseCode
from pointsman.rocketmq.frames import Command
from pointsman_client.core.message import OutgoingMessage, ReceivedMessage
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.transactions import HalfMessage, TransactionState
from pointsman_client.errors import BrokerRefusedError, UnreadableMessageError
from pointsman_client.rocketmq.message_codec import commit_log_offset, decode_messages, stored_queue
from pointsman_client.rocketmq.pulling import number

_ENDS = {TransactionState.COMMIT: 8, TransactionState.ROLLBACK: 12}
"""``commitOrRollback``, from the flags of ``MessageSysFlag``."""


def sent_half(addr: str, message: OutgoingMessage, command: Command) -> HalfMessage:
    """Read where a broker put a half message from its response. Raises BrokerRefusedError if that is missing."""
    msg_id = command.ext.get("msgId", "")
    log_offset = commit_log_offset(msg_id)
    if log_offset is None:
        problem = f"msgId of its response is {msg_id[:100]!r}, which is not the id of a stored message"
        raise BrokerRefusedError(addr, BrokerResponseCode.SYSTEM_ERROR, problem)
    return HalfMessage(
        addr,
        message.message.topic,
        message.message_id,
        number(addr, command, "queueOffset"),
        log_offset,
        command.ext.get("transactionId") or message.message_id,
    )


def checked_half(addr: str, command: Command, body: bytes) -> HalfMessage:
    """Read which half message a broker asks about (CHECK_TRANSACTION_STATE). Raises BrokerRefusedError."""
    topic, _ = stored_queue(body)
    transaction_id = command.ext.get("transactionId") or command.ext.get("msgId", "")
    message_id = command.ext.get("msgId") or transaction_id
    offset, log_offset = (number(addr, command, name) for name in ("tranStateTableOffset", "commitLogOffset"))
    return HalfMessage(addr, topic, message_id, offset, log_offset, transaction_id)


def end_fields(half: HalfMessage, state: TransactionState, *, group: str, is_checked: bool) -> dict[str, str]:
    """Return the fields of END_TRANSACTION (``EndTransactionRequestHeader``)."""
    return {
        "topic": half.topic,
        "producerGroup": group,
        "tranStateTableOffset": str(half.queue_offset),
        "commitLogOffset": str(half.commit_log_offset),
        "commitOrRollback": str(_ENDS[state]),
        "fromTransactionCheck": str(is_checked).lower(),
        "msgId": half.message_id,
        "transactionId": half.transaction_id,
    }


def read_checked(addr: str, body: bytes, *, max_body_bytes: int) -> ReceivedMessage:
    """Read the message that a broker asks about. Raises UnreadableMessageError."""
    topic, queue_id = stored_queue(body)
    queue = MessageQueue(topic, "", "", queue_id)
    messages, unread = decode_messages(body, queue, first_offset=0, max_messages=2, max_body_bytes=max_body_bytes)
    if len(messages) != 1:
        problem = "" if unread is None else unread.problem
        code = BrokerRequestCode.CHECK_TRANSACTION_STATE
        problem = problem or f"the body of request {code} must be one message"
        raise UnreadableMessageError(addr, str(queue), offset=0, problem=problem)
    return messages[0]
