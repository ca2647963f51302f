"""Requests that a RocketMQ broker sends to a consumer: changed members, reset offsets, queries of operators."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any

from pointsman.clock import Clock
from pointsman.rocketmq.bodies import shown
from pointsman.rocketmq.codes import BrokerRequestCode, BrokerResponseCode
from pointsman.rocketmq.frames import Command, compact
from pointsman_client.aio import end_tasks, start_task
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.retry_rules import Outcome
from pointsman_client.ports.coordination import CoordinationRequest
from pointsman_client.rocketmq.broker_connection import Reply
from pointsman_client.rocketmq.groups.member_links import queue_name
from pointsman_client.rocketmq.message_codec import decode_messages, stored_queue

SendReply = Callable[[Reply], None]
MAX_REQUESTS_PER_SECOND = 10
"""Per broker; further ones are rejected with SYSTEM_BUSY. Notices of changed members cost nothing and do not count, and
resets count by their bytes: an operator may reset many topics."""
MAX_RESET_QUEUES = 10_000
MAX_RESET_BYTES = 4 * 1024 * 1024
"""Of one reset, and of all resets of a broker in a second."""
_QUEUE_AND_OFFSET = re.compile(r"(\{[^{}]*\}):(-?[0-9]{1,19})\b")
"""An entry of a map whose keys are objects, as fastjson writes it."""

logger = logging.getLogger(__name__)


class BrokerRequests:
    """Handles the requests for one consumer. One message at a time is consumed for an operator."""

    def __init__(
        self, request: CoordinationRequest, *, on_list_changed: Callable[[], None], max_body_bytes: int
    ) -> None:
        self._request = request
        self._on_list_changed = on_list_changed
        self._max_body_bytes = max_body_bytes
        self._clock: Clock = request.clock
        self._started_at = request.clock.utc_now()
        self._consuming: asyncio.Task[None] | None = None
        self._second = 0
        self._in_second = Counter[tuple[str, bool]]()
        self._busy_addrs: set[str] = set()
        """Brokers that sent too much in this second."""

    def handle(self, addr: str, command: Command, body: bytes, reply: SendReply) -> None:
        """Handle one request of the broker at ``addr``; see ``RequestHandler``."""
        group = command.ext.get("consumerGroup") or command.ext.get("group")
        if command.code == BrokerRequestCode.NOTIFY_CONSUMER_IDS_CHANGED and group == self._request.group:
            self._on_list_changed()
        elif self._is_too_many(addr, command, body):
            problem = f"more than {MAX_REQUESTS_PER_SECOND} requests, or {MAX_RESET_BYTES} bytes of resets, in a second"
            if addr not in self._busy_addrs:
                self._busy_addrs.add(addr)
                logger.warning("requests of broker %s are rejected: %s", addr, problem)
            reply(Reply(BrokerResponseCode.SYSTEM_BUSY, problem))
        elif command.code == BrokerRequestCode.CHECK_TRANSACTION_STATE:
            logger.info("request of %s for the state of a transaction ignored: this connection is of a consumer", addr)
        elif group != self._request.group:
            problem = f"the consumer group {shown(group)} is not at this connection"
            reply(Reply(BrokerResponseCode.SYSTEM_ERROR, problem))
        elif command.code == BrokerRequestCode.RESET_CONSUMER_CLIENT_OFFSET:
            self._reset(addr, command, body)
        elif command.code == BrokerRequestCode.GET_CONSUMER_RUNNING_INFO:
            reply(self._running_info())
        elif command.code == BrokerRequestCode.CONSUME_MESSAGE_DIRECTLY:
            self._consume(command, body, reply)
        else:
            message = f"request code {command.code} is not supported"
            reply(Reply(BrokerResponseCode.REQUEST_CODE_NOT_SUPPORTED, message))

    async def close(self) -> None:
        """End what runs."""
        if self._consuming is not None:
            await end_tasks([self._consuming], timeout_seconds=0.5)

    def _is_too_many(self, addr: str, command: Command, body: bytes) -> bool:
        second = int(self._clock.monotonic())
        if second != self._second:
            self._second = second
            self._in_second.clear()
            self._busy_addrs.clear()
        is_reset = command.code == BrokerRequestCode.RESET_CONSUMER_CLIENT_OFFSET
        before = self._in_second[addr, is_reset]
        self._in_second[addr, is_reset] += len(body) + 1 if is_reset else 1
        return before >= (MAX_RESET_BYTES if is_reset else MAX_REQUESTS_PER_SECOND)

    def _reset(self, addr: str, command: Command, body: bytes) -> None:
        """Reset offsets, as brokers before 5.2 have it done by the members."""
        consumer = self._request.consumer()
        offsets = reset_offsets(body)
        if not offsets:
            topic = shown(command.ext.get("topic"))
            logger.warning("a request of %s to reset offsets of topic %s lists no queue", addr, topic)
        elif consumer is not None:
            consumer.reset_offsets(offsets)

    def _running_info(self) -> Reply:
        consumer = self._request.consumer()
        if consumer is None:
            return Reply(BrokerResponseCode.SYSTEM_ERROR, "the consumer has not started")
        consume_type = "CONSUME_ACTIVELY" if self._request.call_listener is None else "CONSUME_PASSIVELY"
        # A consumer that leases messages holds no queues.
        queues = () if self._request.leases else consumer.describe()["queues"]
        properties = {
            "PROP_CONSUME_TYPE": "CONSUME_POP" if self._request.leases else consume_type,
            "PROP_CONSUMEORDERLY": str(self._request.is_ordered).lower(),
            "PROP_CONSUMER_START_TIMESTAMP": str(int(self._started_at.timestamp() * 1000)),
            "PROP_NAMESERVER_ADDR": ";".join(self._request.name_servers()),
        }
        return Reply(body=running_info(properties, queues, self._request.subscriptions()))

    def _consume(self, command: Command, body: bytes, reply: SendReply) -> None:
        call = self._request.call_listener
        if call is None:
            reply(Reply(BrokerResponseCode.SYSTEM_ERROR, "the consumer has no listener"))
            return
        if self._consuming is not None and not self._consuming.done():
            problem = "the consumer still consumes the message of another request"
            reply(Reply(BrokerResponseCode.SYSTEM_ERROR, problem))
            return

        async def consume() -> None:
            began_at = self._clock.monotonic()
            topic, queue_id = stored_queue(body)
            queue = MessageQueue(topic, "", command.ext.get("brokerName", ""), queue_id)
            messages, unread = await asyncio.to_thread(
                decode_messages, body, queue, first_offset=0, max_messages=2, max_body_bytes=self._max_body_bytes
            )
            if len(messages) != 1:
                problem = unread.problem if unread is not None else ""
                reply(Reply(BrokerResponseCode.SYSTEM_ERROR, problem or "the body must be one message"))
                return
            end = await call(messages[0])
            result = {Outcome.SUCCESS: "CR_SUCCESS", Outcome.LATER: "CR_LATER"}.get(end.outcome, "CR_THROW_EXCEPTION")
            facts = {
                "order": self._request.is_ordered,
                "autoCommit": True,
                "consumeResult": result,
                "remark": end.error,
                "spentTimeMills": round((self._clock.monotonic() - began_at) * 1000),
            }
            reply(Reply(body=compact(facts)))

        self._consuming = start_task(consume(), name=f"pointsman-consume-directly-{self._request.group}")


def reset_offsets(body: bytes) -> dict[tuple[str, str, int], int]:
    """Read the body of code 220: a map from queue to offset, whose keys are objects without quotes around them."""
    offsets: dict[tuple[str, str, int], int] = {}
    text = body[:MAX_RESET_BYTES].decode(errors="replace")
    for entry in islice(_QUEUE_AND_OFFSET.finditer(text), MAX_RESET_QUEUES):
        try:
            name = queue_name(json.loads(entry[1]))
        except (ValueError, RecursionError):
            continue
        if name is not None:
            offsets[name] = max(int(entry[2]), 0)
    return offsets


def running_info(
    properties: Mapping[str, str], queues: Iterable[Mapping[str, Any]], subscriptions: Mapping[str, str]
) -> bytes:
    """Write RocketMQ's ``ConsumerRunningInfo``; the keys of ``mqTable`` are objects, as its readers expect.

    ``queues``: as ``RunningConsumer.describe`` has them.
    """
    entries = []
    for queue in queues:
        key = {"brokerName": queue["brokerName"], "queueId": queue["queueId"], "topic": queue["topic"]}
        entries.append(compact(key) + b":" + compact(_queue_info(queue)))
    facts = {
        "properties": properties,
        "statusTable": {},
        "subscriptionSet": [{"topic": topic, "subString": text} for topic, text in sorted(subscriptions.items())],
    }
    return compact(facts)[:-1] + b',"mqTable":{' + b",".join(entries) + b"}}"


def _queue_info(queue: Mapping[str, Any]) -> dict[str, object]:
    position, finished = queue.get("position", 0), queue.get("finishedUpTo", 0)
    waiting = queue.get("waiting", 0) + queue.get("inFlight", 0)
    return {
        "commitOffset": finished,
        "cachedMsgCount": waiting,
        "cachedMsgMinOffset": finished,
        "cachedMsgMaxOffset": max(position - 1, finished),
        "locked": queue["locked"],
        "droped": False,
    }
