"""Health and reflection of the agent."""

from __future__ import annotations

import asyncio

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from pointsman.daemon.rpc.standard_services import LIMIT, MAX_STREAMS
from tests.kit.agent.services import served
from tests.kit.refusal import refusal_of


async def test_watches_of_health_are_bounded() -> None:
    async with served() as channel:
        stub, request = health_pb2_grpc.HealthStub(channel), health_pb2.HealthCheckRequest(service="")
        calls = [stub.Watch(request) for _ in range(MAX_STREAMS)]
        await asyncio.gather(*(call.read() for call in calls))
        refused = await refusal_of(stub.Watch(request).read())
        assert refused.status is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert (refused.details.code, refused.details.facts["limit"]) == ("LIMIT_EXCEEDED", LIMIT)
        for call in calls:
            call.cancel()
