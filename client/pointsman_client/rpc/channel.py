"""Channels of the running event loop: how they are opened, and how they are closed in time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

import grpc.aio

from pointsman.wire.channel_options import CHANNEL_OPTIONS, KEEPALIVE_OPTIONS

OpenChannel = Callable[[str], grpc.aio.Channel]
"""Opens a channel to an address without waiting for the connection."""


def open_channel(addr: str) -> grpc.aio.Channel:
    """Open a channel of the running event loop."""
    return grpc.aio.insecure_channel(addr, options=CHANNEL_OPTIONS + KEEPALIVE_OPTIONS)


async def close_channels(channels: Iterable[grpc.aio.Channel], *, timeout_seconds: float) -> None:
    """End all calls on them and close them; what takes longer is left to the garbage collector."""
    closings = [asyncio.create_task(channel.close(), name="pointsman-channel-close") for channel in channels]
    if closings:
        _, late = await asyncio.wait(closings, timeout=timeout_seconds)
        for closing in late:
            closing.cancel()
