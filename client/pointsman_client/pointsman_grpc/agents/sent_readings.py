"""What a member reports to one agent about the queues of its broker, with its heartbeats. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from itertools import groupby

from pointsman.v1 import consumer_group_service_pb2 as wire
from pointsman_client.core.consumer_reading import ConsumerReading, QueueReading
from pointsman_client.core.message_queue import MessageQueue

MAX_QUEUES = 1_024
"""Queues of one report. The agent refuses more."""


class SentReadings:
    """What one stream has reported, so that it reports only what changed. Each stream begins with a new one."""

    def __init__(self, group: str) -> None:
        self._group = group
        self._sent: dict[MessageQueue, QueueReading] = {}

    def report(self, reading: ConsumerReading) -> wire.GroupReading:
        """Return what changed; of more than :data:`MAX_QUEUES` queues those with the oldest calls first."""
        changed = [queue for queue, each in reading.queues.items() if self._sent.get(queue) != each]
        if len(changed) > MAX_QUEUES:
            changed.sort(key=lambda queue: -(reading.queues[queue].oldest_call_seconds or 0.0))
        changed = changed[:MAX_QUEUES]
        released = list(self._sent.keys() - reading.queues.keys())[: MAX_QUEUES - len(changed)]
        for queue in released:
            del self._sent[queue]
        self._sent.update((queue, reading.queues[queue]) for queue in changed)
        return wire.GroupReading(
            group=self._group,
            topics=list(_by_topic(reading, changed, released)),
            retries=reading.retries,
            dead_letters=reading.dead_letters,
            rebalances=[
                wire.RebalanceCount(trigger=trigger, count=count)
                for trigger, count in sorted(reading.rebalances.items())
            ],
        )


def _by_topic(
    reading: ConsumerReading, changed: Iterable[MessageQueue], released: Iterable[MessageQueue]
) -> Iterable[wire.TopicReading]:
    kept = dict.fromkeys(changed, True) | dict.fromkeys(released, False)
    for topic, queues in groupby(sorted(kept), key=lambda queue: queue.topic):
        message = wire.TopicReading(topic=topic)
        for queue in queues:
            if kept[queue]:
                message.queues.append(_to_message(queue, reading.queues[queue]))
            else:
                message.released.append(queue.queue_id)
        yield message


def _to_message(queue: MessageQueue, reading: QueueReading) -> wire.QueueReading:
    message = wire.QueueReading(
        queue_id=queue.queue_id,
        position=reading.position,
        committed=reading.committed,
        in_flight=reading.in_flight,
        is_waiting=reading.is_waiting,
    )
    if reading.oldest_call_seconds is not None:
        message.oldest_call.FromTimedelta(timedelta(seconds=reading.oldest_call_seconds))
    return message
