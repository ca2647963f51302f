"""Recalls delayed messages, by their handles, at the brokers that hold them."""

from __future__ import annotations

from pointsman_client.errors import BrokerUnreachableError, InvalidOptionError
from pointsman_client.ownership import Resources
from pointsman_client.ports.transport import RecallsMessages, response_of


async def recall(resources: Resources, handle: str, *, timeout_seconds: float) -> None:
    """See :meth:`Producer.recall`."""
    transport = resources.transport
    if not isinstance(transport, RecallsMessages):
        problem = "cannot recall a message: use RocketMQ brokers, or let the consumer look up whether it still counts"
        raise InvalidOptionError("transport", type(transport).__name__, problem)
    topic, broker_name = transport.recall_place(handle)
    route = await resources.client.topic_route(topic)
    master = next((each.master for each in route.broker_datas if each.broker_name == broker_name), None)
    if master is None:
        raise BrokerUnreachableError(broker_name, "no route has its master")
    recalling = transport.recall(master.addr, handle, timeout_seconds=timeout_seconds)
    await response_of(master.addr, recalling, timeout_seconds=timeout_seconds)
