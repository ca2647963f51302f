"""Producers and consumers for programs without an event loop: the same methods, blocking, on any number of threads.

All of them share one background thread with an event loop, from the first one's start to the last one's close.
"""

from pointsman_client.sync.client import NameServerClient, RouteChanges
from pointsman_client.sync.producer import Producer, SendCallback
from pointsman_client.sync.pull_consumer import PullConsumer
from pointsman_client.sync.push_consumer import Listener, PushConsumer

__all__ = ["Listener", "NameServerClient", "Producer", "PullConsumer", "PushConsumer", "RouteChanges", "SendCallback"]
