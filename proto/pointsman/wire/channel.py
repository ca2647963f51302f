"""Options of the channels that agents and clients open to a name server."""

from __future__ import annotations

from typing import Final

ChannelOptions = tuple[tuple[str, int | str], ...]

CHANNEL_OPTIONS: Final[ChannelOptions] = (
    # With gRPC's defaults a channel came back 30.6 s after a 75 s outage, with these in 1.0 s (design, section 9).
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    # A node is spoken to over a connection of its own: one that hangs must not be shared with a fresh start.
    ("grpc.use_local_subchannel_pool", 1),
    # Name servers stand in the brokers' own network; with http_proxy set, gRPC would send even 127.0.0.1 elsewhere.
    ("grpc.enable_http_proxy", 0),
)
"""For every channel."""

KEEPALIVE_OPTIONS: Final[ChannelOptions] = (
    # Finds a half-open connection. Agents do without: beats are their sign of life, and a paused agent is to be
    # judged by its silence alone.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
)
"""In addition, for clients."""
