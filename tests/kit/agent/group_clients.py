"""Clients of an agent's ConsumerGroupService."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import grpc
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from grpc_status import rpc_status

from pointsman.v1 import consumer_group_service_pb2 as wire
from pointsman.v1.consumer_group_service_pb2_grpc import ConsumerGroupServiceStub
from pointsman.wire.error_details import read_status

DEADLINE_SECONDS = 60.0
OWN_CONNECTION = (("grpc.use_local_subchannel_pool", 1),)


class Consumer:
    """One client with its own connection."""

    def __init__(self, addr: str, client_id: str, *groups: wire.GroupSubscription) -> None:
        self.client_id = client_id
        self.groups = groups
        self.channel = grpc.aio.insecure_channel(addr, options=OWN_CONNECTION)
        self.stub = ConsumerGroupServiceStub(self.channel)
        self.stream = self.stub.KeepMembership()

    async def beat(
        self, *groups: wire.GroupSubscription, readings: Iterable[wire.GroupReading] = ()
    ) -> wire.KeepMembershipResponse:
        """Send a heartbeat for these groups, or for those of the last one, and return the response."""
        self.groups = groups or self.groups
        request = wire.KeepMembershipRequest(client_id=self.client_id, groups=self.groups, readings=readings)
        await self.stream.write(request)
        return await self.answer()

    async def answer(self) -> wire.KeepMembershipResponse:
        """The agent's next message on the stream."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            answer = await self.stream.read()
        assert isinstance(answer, wire.KeepMembershipResponse), "the stream ended"
        return answer

    async def leave(self, *groups: str) -> list[str]:
        """Leave the groups; return those that were left."""
        request = wire.LeaveGroupsRequest(client_id=self.client_id, groups=groups)
        return list((await self.stub.LeaveGroups(request)).left)

    async def crash(self) -> None:
        """Close the connection without leaving."""
        await self.channel.close()


class GroupWatch:
    """An open WatchGroup, read one message at a time."""

    def __init__(self, channel: grpc.aio.Channel, group: str, client_id: str = "10.0.0.9@watcher") -> None:
        stub = ConsumerGroupServiceStub(channel)
        self.call = stub.WatchGroup(wire.WatchGroupRequest(group=group, client_id=client_id))

    async def news(self) -> wire.GroupMembership:
        """The next message."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            message = await self.call.read()
        assert isinstance(message, wire.WatchGroupResponse), "the watch ended"
        return message.membership

    async def ids(self) -> list[str]:
        """The members in the next message."""
        return list((await self.news()).client_ids)

    async def ending(self) -> tuple[grpc.StatusCode, str]:
        """Read it to its end; return status and the project's code."""
        return await ending_of(self.call)


async def ending_of(call: grpc.aio.UnaryStreamCall | grpc.aio.StreamStreamCall) -> tuple[grpc.StatusCode, str]:  # type: ignore[type-arg]  # any messages
    """Read a stream to its end; return status and the project's code."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        try:
            while await call.read() is not grpc.aio.EOF:
                pass
        except grpc.aio.AioRpcError as error:
            return error.code(), read_status(rpc_status.from_call(error)).code
    return grpc.StatusCode.OK, ""


def reads(
    group: str,
    *topics: str,
    tags: str = "*",
    model: wire.MessageModel.ValueType = wire.MESSAGE_MODEL_CLUSTERING,
    consume_type: wire.ConsumeType.ValueType = wire.CONSUME_TYPE_PUSH,
) -> wire.GroupSubscription:
    """A group and its subscription, of `orders` by default."""
    return wire.GroupSubscription(
        group=group,
        consume_type=consume_type,
        message_model=model,
        subscriptions=[wire.Subscription(topic=topic, expression=tags) for topic in topics or ("orders",)],
    )


def pin(group: str, to: Iterable[str], *, seconds: int | None = None, by: str = "") -> wire.PinGroupRequest:
    """An operator's request to pin."""
    duration = Duration(seconds=seconds) if seconds is not None else None
    return wire.PinGroupRequest(group=group, to=to, duration=duration, by=by)


def pin_queue(
    group: str,
    to: str,
    *,
    queue_id: int = 0,
    topic: str = "orders",
    cluster: str = "c1",
    broker_name: str = "a",
    seconds: int | None = 60,
    by: str = "",
) -> wire.PinQueueRequest:
    """An operator's request to pin a queue; an empty ``to`` ends the pin."""
    duration = Duration(seconds=seconds) if seconds is not None and to else None
    queue = {"topic": topic, "cluster": cluster, "broker_name": broker_name}
    return wire.PinQueueRequest(group=group, **queue, queue_id=queue_id, to=to, duration=duration, by=by)


def follows_pins(subscription: wire.GroupSubscription, *, strategy: str = "AVG") -> wire.GroupSubscription:
    """The subscription of a client that follows pins of queues."""
    setting = wire.AllocationSetting(name=strategy, settings="{}", digest=b"d" * 32, buildable_from=1)
    settings = wire.MemberSettings(strategy=setting, started_at=Timestamp(seconds=1), follows_queue_pins=True)
    subscription.settings.CopyFrom(settings)
    return subscription
