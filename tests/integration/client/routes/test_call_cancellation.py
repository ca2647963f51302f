"""A task whose call fails at the moment of its cancellation is cancelled all the same."""

from __future__ import annotations

import asyncio
import contextlib

import grpc.aio
import pytest

from pointsman_client.errors import AgentFailedError, ClientClosedError
from pointsman_client.pointsman_grpc.links import AgentLink, AgentLinks
from pointsman_client.pointsman_grpc.status import grpc_errors_of
from tests.kit.broker.redis.process import free_port


async def read_from(link: AgentLink) -> None:
    with link.errors():
        call = link.groups.KeepMembership()
        try:
            await call.read()
        finally:
            call.cancel()


async def test_a_reader_of_a_refused_stream_is_cancelled_at_any_moment() -> None:
    links = AgentLinks()
    try:
        link = links.to(f"127.0.0.1:{free_port()}")
        for number in range(300):
            reader = asyncio.create_task(read_from(link))
            for _ in range(number % 100):
                await asyncio.sleep(0)
            if reader.cancel():
                with contextlib.suppress(asyncio.CancelledError):
                    await reader
                assert reader.cancelled()
            else:
                assert isinstance(reader.exception(), AgentFailedError)
    finally:
        await links.close(timeout_seconds=5.0)


async def test_a_call_of_a_task_that_was_cancelled_before_it_ends_with_the_client() -> None:
    """Only a cancellation during the call is the caller's own."""

    async def clean_up() -> None:
        try:
            await asyncio.sleep(60.0)
        except asyncio.CancelledError:
            with grpc_errors_of("ns1:9876"):
                raise asyncio.CancelledError from None  # what gRPC raises when its channel is closed

    caller = asyncio.create_task(clean_up())
    await asyncio.sleep(0)
    caller.cancel()
    with pytest.raises(ClientClosedError):
        await caller


@pytest.mark.parametrize("error", [None, grpc.aio.UsageError("closed"), asyncio.InvalidStateError("finished")])
async def test_a_cancellation_that_a_call_swallowed_is_raised_after_it(error: Exception | None) -> None:
    async def swallow() -> None:
        with grpc_errors_of("ns1:9876"):
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(60.0)
            if error is not None:
                raise error

    caller = asyncio.create_task(swallow())
    await asyncio.sleep(0)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
