"""Services of the agent on the agent's own gRPC server, on a free port."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
from prometheus_client import CollectorRegistry

from pointsman.clock import SystemClock
from pointsman.daemon.rpc.rpc_server import Service
from pointsman.wire.channel_options import CHANNEL_OPTIONS
from pointsman_agent.core.topic_set import TopicConfig, TopicSet
from pointsman_agent.rpc.agent_server import AgentServer


@asynccontextmanager
async def served(*services: Service) -> AsyncIterator[grpc.aio.Channel]:
    """Serve for the length of the block, and give a channel to it."""
    server = AgentServer(longest_silence=120.0, clock=SystemClock(), registry=CollectorRegistry())
    port = server.bind("127.0.0.1:0")
    await server.start(services)
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=CHANNEL_OPTIONS) as channel:
            yield channel
    finally:
        await server.stop(0.0)


def topic_set(**queues: int) -> TopicSet:
    """Topics with the given number of queues each."""
    return TopicSet.from_content([TopicConfig(name, n, n, 6) for name, n in queues.items()], state_version=0)
