"""A RocketMQ broker for tests that knows producers: it asks about half messages, and passes replies on."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Mapping

from pointsman.rocketmq.codes import BrokerRequestCode as Request
from pointsman.rocketmq.codes import BrokerResponseCode as Code
from pointsman.rocketmq.frames import ONE_WAY_FLAG, Command, encode
from tests.kit.broker.rocketmq.fake_broker import Answer, FakeBroker
from tests.kit.broker.rocketmq.stored_messages import property_map, stored_message

HOST = "7F00000100002A9F"
"""127.0.0.1:10911, as in the ids of stored messages."""


class TransactionBroker(FakeBroker):
    """Checks half messages when the test says so. A check puts the message back, to another place, as brokers do."""

    def __init__(self, *, version: int = 479) -> None:
        super().__init__(version=version)
        self.halves: dict[int, tuple[str, int, bytes, dict[str, str]]] = {}
        """By place: topic, queue id, record and properties."""
        self.sent: list[Command] = []
        """The sends of half messages."""
        self.is_late = False
        """Whether it asks about transactions that have ended, as brokers of 5.x do for 3 s."""
        self.ends: list[Mapping[str, str]] = []
        self.producers: defaultdict[str, dict[asyncio.StreamWriter, str]] = defaultdict(dict)
        """By group: client ids by connection."""
        self._last = 0
        self._peer: asyncio.StreamWriter | None = None
        self.handlers |= {
            Request.HEART_BEAT: self._heartbeat,
            Request.UNREGISTER_CLIENT: self._unregister,
            Request.END_TRANSACTION: self._end,
            Request.SEND_REPLY_MESSAGE_V2: self._reply,
        }

    def check(self) -> None:
        """Ask a producer of its group about each half message."""
        for place, (topic, queue_id, record, properties) in list(self.halves.items()):
            del self.halves[place]
            self._last += 1
            self.halves[self._last] = topic, queue_id, record, properties
            asked = next(iter(self.producers[properties["PGROUP"]]))
            ext = {
                "tranStateTableOffset": str(self._last),
                "commitLogOffset": str(1_000 * self._last),
                "msgId": properties["UNIQ_KEY"],
                "transactionId": properties["UNIQ_KEY"],
                "offsetMsgId": f"{HOST}{1_000 * self._last:016X}",
            }
            asked.write(encode(Command(code=Request.CHECK_TRANSACTION_STATE, flag=ONE_WAY_FLAG, ext=ext), record))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await super()._serve(reader, writer)
        finally:
            for group in self.producers.values():
                group.pop(writer, None)

    async def _answer(self, command: Command, body: bytes, writer: asyncio.StreamWriter) -> None:
        # The handler is called before anything else runs.
        self._peer = writer
        await super()._answer(command, body, writer)

    def _heartbeat(self, _: Command, body: bytes) -> Answer:
        assert self._peer is not None
        heartbeat = json.loads(body)
        assert heartbeat["consumerDataSet"] == []
        for each in heartbeat["producerDataSet"]:
            self.producers[each["groupName"]][self._peer] = heartbeat["clientID"]
        return Answer()

    def _unregister(self, command: Command, _: bytes) -> Answer:
        assert self._peer is not None
        group = self.producers[command.ext["producerGroup"]]
        assert group.pop(self._peer) == command.ext["clientID"]
        return Answer()

    async def _send(self, command: Command, body: bytes) -> Answer:
        properties = property_map(command.ext["i"])
        if properties.get("TRAN_MSG") != "true":
            return await super()._send(command, body)
        self.sent.append(command)
        self._last += 1
        topic, queue_id = command.ext["b"], int(command.ext["e"])
        record = stored_message(
            body,
            offset=0,
            queue_id=queue_id,
            topic=topic,
            properties=command.ext["i"],
            sys_flag=int(command.ext["f"]),
            born_ms=int(command.ext["g"]),
            stored_ms=int(command.ext["g"]),
            reconsume_times=0,
            log_offset=1_000 * self._last,
        )
        self.halves[self._last] = topic, queue_id, record, properties
        msg_id = f"{HOST}{1_000 * self._last:016X}"
        return Answer(ext={"msgId": msg_id, "queueId": "0", "queueOffset": str(self._last)})

    async def _reply(self, command: Command, body: bytes) -> Answer:
        """Pass a reply on to the connection of the producer that awaits it."""
        ext = command.ext
        client_id = property_map(ext["i"])["REPLY_TO_CLIENT"]
        known = {known: writer for group in self.producers.values() for writer, known in group.items()}
        if client_id not in known:
            return Answer(Code.SYSTEM_ERROR, remark=f"push reply message fail, channel of <{client_id}> not found.")
        pushed = {"topic": ext["b"], "queueId": ext["e"], "sysFlag": ext["f"], "properties": ext["i"]}
        asked = Command(code=Request.PUSH_REPLY_MESSAGE_TO_CLIENT, opaque=7, ext=pushed)
        known[client_id].write(encode(asked, body))
        return Answer(ext={"msgId": "0", "queueId": "0", "queueOffset": "0"})

    async def _end(self, command: Command, _: bytes) -> Answer:
        ext = command.ext
        self.ends.append(ext)
        place = int(ext["tranStateTableOffset"])
        assert int(ext["commitLogOffset"]) == 1_000 * place
        half = self.halves.get(place) if self.is_late else self.halves.pop(place, None)
        if half is None:
            return Answer(Code.SYSTEM_ERROR, remark="Find prepared transaction message failed")
        topic, queue_id, record, properties = half
        assert (ext["producerGroup"], ext["topic"]) == (properties["PGROUP"], topic)
        if ext["commitOrRollback"] == "8":
            await self.append(topic, queue_id, [record])
        return Answer()
