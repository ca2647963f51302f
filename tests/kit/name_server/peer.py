"""A client of plain stubs, and a name server in this process with one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import grpc

from pointsman.v1.admin_service_pb2_grpc import AdminServiceStub
from pointsman.v1.broker_pb2 import TopicConfig
from pointsman.v1.registration_service_pb2_grpc import RegistrationServiceStub
from pointsman.v1.route_service_pb2_grpc import RouteServiceStub
from pointsman_namesrv.app import NameServerApp
from tests.kit.name_server import wire
from tests.kit.name_server.in_process import running_name_server


@dataclass
class Peer:
    """A channel to a name server and its three stubs."""

    channel: grpc.aio.Channel

    def __post_init__(self) -> None:
        self.registration = RegistrationServiceStub(self.channel)
        self.route = RouteServiceStub(self.channel)
        self.admin = AdminServiceStub(self.channel)

    async def register(self, *topics: str | TopicConfig, **facts: Any) -> int:
        """Register a broker with :func:`wire.registration`; return its generation."""
        full = (wire.topic(each) if isinstance(each, str) else each for each in topics)
        return (await self.registration.RegisterBroker(wire.registration(*full, **facts))).generation


@asynccontextmanager
async def peer_of(addr: str) -> AsyncIterator[Peer]:
    """Connect for the length of the block."""
    async with grpc.aio.insecure_channel(addr) as channel:
        yield Peer(channel)


async def register_at(addr: str, *topics: str | TopicConfig, **facts: Any) -> int:
    """Register a broker at a name server, as :meth:`Peer.register`."""
    async with peer_of(addr) as peer:
        return await peer.register(*topics, **facts)


@asynccontextmanager
async def serving(**settings: Any) -> AsyncIterator[tuple[NameServerApp, Peer]]:
    """Run a name server (:func:`running_name_server`) and a client of it for the length of the block."""
    async with running_name_server(**settings) as app, peer_of(app.addr) as peer:
        yield app, peer
