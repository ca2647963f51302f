"""A queue as RocketMQ writes it (``MessageQueue.toString``): without the cluster, which RocketMQ's queues have not."""

from __future__ import annotations

from pointsman_client.message_queue import MessageQueue


def queue_text(queue: MessageQueue) -> str:
    """Return the text that consistent hashing hashes and errors name."""
    return f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"
