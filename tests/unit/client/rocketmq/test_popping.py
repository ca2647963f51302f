"""POP as requests to a broker, and what its responses mean."""

from __future__ import annotations

import base64

import pytest

from pointsman.rocketmq.codes import BrokerResponseCode as Code
from pointsman.rocketmq.frames import Command
from pointsman_client.core.lease import ConsumeMode, Lease, LeasedMessage
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.subscription import SqlFilter
from pointsman_client.errors import BrokerRefusedError, UnreadableMessageError
from pointsman_client.ports.transport import Reader
from pointsman_client.rocketmq.popping import (
    batch_body,
    lease_fields,
    pop_fields,
    read_changed,
    read_mode,
    read_popped,
)
from tests.kit.broker.rocketmq.stored_messages import stored_message

QUEUE = MessageQueue("orders", "c1", "a", 0)
RETRY_V1, RETRY_V2 = "%RETRY%billing_orders", "%RETRY%billing+orders"
HEAD = {"popTime": "1700", "invisibleTime": "30000", "reviveQid": "3"}


def popped(*records: bytes, code: int = Code.SUCCESS, **ext: str) -> list[LeasedMessage]:
    command = Command(code=code, ext=HEAD | ext)
    return read_popped("ADDR", QUEUE, command, b"".join(records), group="billing", max_body_bytes=1_000)


def test_a_pop_has_the_subscription_and_at_most_32_messages() -> None:
    fields = pop_fields("orders", reader=Reader("billing", "a || b"), max_messages=99, invisible_ms=5, is_ordered=True)
    assert (fields["exp"], fields["expType"], fields["maxMsgNums"]) == ("a || b", "TAG", "32")
    assert (fields["queueId"], fields["order"], fields["invisibleTime"]) == ("-1", "true", "5")


def test_a_pop_has_a_condition_that_the_broker_evaluates() -> None:
    reader = Reader("billing", SqlFilter("amount > 500"))
    fields = pop_fields("orders", reader=reader, max_messages=1, invisible_ms=5, is_ordered=False)
    assert (fields["exp"], fields["expType"]) == ("amount > 500", "SQL92")


def test_receipts_of_several_queues_are_as_java_makes_them() -> None:
    found = popped(
        stored_message(b"x", offset=7, queue_id=2),
        stored_message(b"y", offset=9, queue_id=2),
        stored_message(b"z", offset=4, queue_id=1),
        startOffsetInfo="0 2 6;0 1 4",
        msgOffsetInfo="0 2 7,9;0 1 4",
    )
    assert [each.lease.receipt for each in found] == [
        "6 1700 30000 3 0 a 2 7",
        "6 1700 30000 3 0 a 2 9",
        "4 1700 30000 3 0 a 1 4",
    ]
    assert [each.message.queue.queue_id for each in found] == [2, 2, 1]
    assert lease_fields(found[1].lease, group="billing") == {
        "consumerGroup": "billing",
        "topic": "orders",
        "queueId": "2",
        "extraInfo": "6 1700 30000 3 0 a 2 9",
        "offset": "9",
    }


@pytest.mark.parametrize(("kind", "topic"), [("1", RETRY_V1), ("2", RETRY_V2)])
def test_a_retried_message_has_its_topic_and_is_acknowledged_in_the_retry_topic(kind: str, topic: str) -> None:
    receipt = f"0 1600 10000 1 {kind} a 0 5"
    (found,) = popped(stored_message(b"x", offset=5, properties=f"POP_CK\x01{receipt}\x02", reconsume_times=2))
    assert (found.message.topic, found.message.queue.topic, found.message.reconsume_times) == ("orders", topic, 2)
    assert found.lease == Lease(MessageQueue(topic, "c1", "a", 0), 5, receipt)
    assert found.message.properties == {}


def test_a_retry_topic_of_a_broker_that_does_not_rename_it_is_recognized() -> None:
    (found,) = popped(stored_message(b"x", offset=5, topic=RETRY_V2), startOffsetInfo="2 0 5")
    assert (found.message.topic, found.lease.queue.topic) == ("orders", RETRY_V2)
    assert found.lease.receipt == "5 1700 30000 3 2 a 0 5"


def test_deliveries_of_an_ordered_message_are_counted_by_the_broker() -> None:
    found = popped(stored_message(b"x", offset=5), stored_message(b"y", offset=6), orderCountInfo="0 qo0%5 2;0 0 1")
    assert [each.message.reconsume_times for each in found] == [2, 1]


@pytest.mark.parametrize("code", [Code.POLLING_TIMEOUT, Code.POLLING_FULL, Code.PULL_NOT_FOUND])
def test_a_response_without_messages_is_empty(code: Code) -> None:
    assert popped(code=code) == []


def test_a_refusal_and_a_response_that_cannot_be_read_are_errors() -> None:
    with pytest.raises(BrokerRefusedError):
        popped(code=Code.NO_PERMISSION)
    with pytest.raises(BrokerRefusedError, match=r"startOffsetInfo of its response is not readable: 'what'"):
        popped(stored_message(b"x"), startOffsetInfo="what")
    with pytest.raises(UnreadableMessageError):
        popped(stored_message(b"x", crc=1))


def test_one_unreadable_message_does_not_hide_the_others() -> None:
    found = popped(stored_message(b"x", crc=1), stored_message(b"y", offset=1))
    assert [each.message.body for each in found] == [b"y"]


def test_acknowledgements_of_one_pop_share_a_bit_set() -> None:
    found = popped(
        *(stored_message(b"x", offset=offset, queue_id=2) for offset in (6, 7, 15)),
        stored_message(b"r", offset=0, properties="POP_CK\x010 1600 10000 1 1 a 0 0\x02"),
        startOffsetInfo="0 2 6",
    )
    body = batch_body([each.lease for each in found], group="billing")
    assert body["brokerName"] == "a"
    normal, retried = body["acks"]
    bits = normal.pop("b")
    assert normal == {"c": "billing", "t": "orders", "r": "0", "so": 6, "q": 2, "rq": 3, "pt": 1700, "it": 30000}
    assert base64.b64decode(bits) == bytes([0b11, 0b10])  # bits 0, 1 and 9, as BitSet.toByteArray
    assert (retried["t"], retried["r"], retried["so"], retried["q"]) == ("orders", "1", 0, 0)


def test_a_changed_lease_begins_at_its_own_offset() -> None:
    lease = Lease(QUEUE, 9, "6 1700 30000 3 0 a 0 9")
    after = read_changed("ADDR", lease, Command(code=0, ext={**HEAD, "popTime": "1800", "invisibleTime": "60000"}))
    assert after == lease._replace(receipt="9 1800 60000 3 0 a 0 9")
    assert read_changed("ADDR", lease, Command(code=0, ext={})) == lease


@pytest.mark.parametrize(
    ("body", "mode"),
    [
        (b'{"messageQueueAssignments":[{"mode":"POP"},{"mode":"POP"}]}', ConsumeMode.POP),
        (b'{"messageQueueAssignments":[{"mode":"PULL"}]}', ConsumeMode.PULL),
        (b'{"messageQueueAssignments":[{"messageQueue":{}}]}', ConsumeMode.PULL),
        (b'{"messageQueueAssignments":[]}', None),
        (b'{"messageQueueAssignments":7}', None),
        (b"{}", None),
    ],
)
def test_the_mode_is_that_of_the_assigned_queues(body: bytes, mode: ConsumeMode | None) -> None:
    assert read_mode("ADDR", Command(code=Code.SUCCESS), body) == mode


@pytest.mark.parametrize(("code", "body"), [(Code.SUCCESS, b"[]"), (Code.SUCCESS, b"?"), (Code.NO_PERMISSION, b"{}")])
def test_an_assignment_that_cannot_be_read_is_an_error_of_the_broker(code: int, body: bytes) -> None:
    with pytest.raises(BrokerRefusedError):
        read_mode("ADDR", Command(code=code), body)
