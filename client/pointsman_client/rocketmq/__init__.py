"""RocketMQ's brokers and name servers, 4.9 and 5.x, over the remoting protocol; needs nothing but Python.

::

    rocketmq_transport.py   the transport: one link for each address
    broker_link.py          a connection that is opened when needed and again after it broke
    broker_connection.py    one TCP connection: many requests in flight, responses matched by opaque
    sending.py, pulling.py  messages as requests, and what the responses mean
    message_codec.py        stored messages, batches, properties, ids
    broker_refusals.py      response codes as errors
    message_queries.py      messages by key and id, from a broker's index
    groups/                 members, queue locks and offsets of a group at the brokers
    rocketmq_routes.py      routes from RocketMQ's name servers; route_bodies.py: their responses
"""

from pointsman_client.core.request_signature import AccessKey
from pointsman_client.rocketmq.broker_link import Link
from pointsman_client.rocketmq.message_queries import MAX_INDEXED, broker_of, query_messages, view_message
from pointsman_client.rocketmq.rocketmq_options import RocketmqOptions
from pointsman_client.rocketmq.rocketmq_transport import RocketmqTransport

__all__ = [
    "MAX_INDEXED",
    "AccessKey",
    "Link",
    "RocketmqOptions",
    "RocketmqTransport",
    "broker_of",
    "query_messages",
    "view_message",
]
