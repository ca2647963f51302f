"""Blocking clients, producers and consumers for programs without an event loop; thread-safe, with the same methods.

All of them share one background thread with an event loop, from the first start to the last close.
"""

from pointsman_client.sync.client import NameServerClient, RouteChanges
from pointsman_client.sync.producer import Producer, SendCallback
from pointsman_client.sync.pull_consumer import PullConsumer
from pointsman_client.sync.push_consumer import BatchListener, Listener, PushConsumer
from pointsman_client.sync.simple_consumer import SimpleConsumer
from pointsman_client.sync.transaction_producer import Transaction, TransactionProducer

__all__ = [
    "BatchListener",
    "Listener",
    "NameServerClient",
    "Producer",
    "PullConsumer",
    "PushConsumer",
    "RouteChanges",
    "SendCallback",
    "SimpleConsumer",
    "Transaction",
    "TransactionProducer",
]
