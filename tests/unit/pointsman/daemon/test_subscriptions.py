"""Subscriptions in a task, for a listener that needs one for each stream."""

from __future__ import annotations

import asyncio

import pytest

from pointsman.daemon.subscriptions import Subscription, follow
from tests.kit.latest_value import LatestValue


async def test_each_value_is_written_and_of_those_set_during_a_write_the_last_one() -> None:
    subscription, written, go = LatestValue(), list[bytes](), asyncio.Event()
    subscription.value = b"before"

    async def write(response: bytes) -> None:
        await go.wait()
        written.append(response)

    task = asyncio.create_task(follow(subscription, write))
    await asyncio.sleep(0)
    for value in (b"1", b"2", b"3"):
        subscription.set(value)
    go.set()
    await asyncio.sleep(0.01)
    assert written == [b"before", b"3"]
    subscription.set(b"4")
    await asyncio.sleep(0.01)
    assert written == [b"before", b"3", b"4"]
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert subscription.is_closed


@pytest.mark.parametrize("is_writing", [True, False])
async def test_a_subscription_ends_its_stream_also_in_a_write(*, is_writing: bool) -> None:
    subscription = LatestValue()
    if is_writing:
        subscription.value = b"1"

    async def write(_: bytes) -> None:
        await asyncio.Event().wait()

    task = asyncio.create_task(follow(subscription, write))
    await asyncio.sleep(0)
    assert subscription.stream is not None
    subscription.stream.end(LookupError("over"))
    with pytest.raises(LookupError, match="over"):
        await task
    assert subscription.is_closed


async def test_an_error_closes_it() -> None:
    subscription = LatestValue()
    subscription.error = ValueError("a bug")

    async def write(_: bytes) -> None:
        raise AssertionError

    with pytest.raises(ValueError, match="a bug"):
        await follow(subscription, write)
    assert subscription.is_closed
    assert isinstance(subscription, Subscription)
