"""What a stream reports of a member's queues."""

from __future__ import annotations

from pointsman.v1 import consumer_group_service_pb2 as wire
from pointsman_client.core.consumer_reading import ConsumerReading, QueueReading
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.pointsman_grpc.agents.sent_readings import MAX_QUEUES, SentReadings


def queue(number: int, topic: str = "orders") -> MessageQueue:
    return MessageQueue(topic, "c1", "a", number)


def reading(position: int = 5, *, call: float | None = None) -> QueueReading:
    return QueueReading(position, 4, 1, call, is_waiting=False)


def reported(message: wire.GroupReading) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
    """Return the queues of each topic that were reported, and those that were released."""
    return (
        {each.topic: [one.queue_id for one in each.queues] for each in message.topics if each.queues},
        {each.topic: list(each.released) for each in message.topics if each.released},
    )


def test_a_stream_reports_all_queues_first_and_then_what_changed() -> None:
    sent = SentReadings("billing")
    queues = {queue(1): reading(), queue(0): reading(), queue(0, "bills"): reading()}
    assert reported(sent.report(ConsumerReading(queues))) == ({"bills": [0], "orders": [0, 1]}, {})
    assert reported(sent.report(ConsumerReading(queues))) == ({}, {})

    queues[queue(1)] = reading(6)
    del queues[queue(0)]
    assert reported(sent.report(ConsumerReading(queues))) == ({"orders": [1]}, {"orders": [0]})
    assert reported(sent.report(ConsumerReading())) == ({}, {"bills": [0], "orders": [1]})


def test_a_report_has_the_reading_and_what_the_consumer_did() -> None:
    queues = {queue(0): reading(call=1.5), queue(1): QueueReading(0, None, 0, None, is_waiting=True)}
    message = SentReadings("billing").report(
        ConsumerReading(queues, retries=3, dead_letters=1, rebalances={"route": 1, "members": 2})
    )
    first, second = message.topics[0].queues
    assert (first.position, first.committed, first.in_flight, first.is_waiting) == (5, 4, 1, False)
    assert first.oldest_call.ToTimedelta().total_seconds() == 1.5
    assert (second.HasField("committed"), second.HasField("oldest_call"), second.is_waiting) == (False, False, True)
    assert (message.group, message.retries, message.dead_letters) == ("billing", 3, 1)
    assert [(each.trigger, each.count) for each in message.rebalances] == [("members", 2), ("route", 1)]


def test_of_too_many_queues_those_with_the_oldest_calls_are_reported_first_and_the_rest_later() -> None:
    sent = SentReadings("billing")
    queues = {queue(number): reading() for number in range(MAX_QUEUES + 10)}
    queues[queue(MAX_QUEUES + 5)] = reading(call=90.0)
    first, _ = reported(sent.report(ConsumerReading(queues)))
    assert len(first["orders"]) == MAX_QUEUES
    assert MAX_QUEUES + 5 in first["orders"]
    rest, released = reported(sent.report(ConsumerReading(queues)))
    assert (len(rest["orders"]), released) == (10, {})

    numbers = 0
    for _ in range(2):
        _, released = reported(sent.report(ConsumerReading()))
        numbers += len(released["orders"])
    assert numbers == MAX_QUEUES + 10
