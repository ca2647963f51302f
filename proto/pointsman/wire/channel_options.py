"""Options of the channels that agents and clients open, and of the servers that they open them to."""

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

SERVER_OPTIONS: Final[tuple[tuple[str, int], ...]] = (
    # With the defaults, 517 of 3,000 clients that reconnect at once are refused; with these none (design, section 9).
    # Calls that are accepted do not wait there, so these bound a herd and not the open watches.
    ("grpc.server.max_pending_requests", 20_000),
    ("grpc.server.max_pending_requests_hard_limit", 30_000),
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    # Finds half-open connections, together with the time that a ping may take (below).
    ("grpc.keepalive_time_ms", 120_000),
    ("grpc.max_concurrent_streams", 1_000),
    # A connection without a call; an open stream is a call, so keep-alive streams and watches keep theirs.
    ("grpc.max_connection_idle_ms", 300_000),
    # Of a connection that does not say what it wants; gRPC's default is 120 s.
    ("grpc.server_handshake_timeout_ms", 10_000),
    # Two daemons must not share a port unnoticed.
    ("grpc.so_reuseport", 0),
)
"""For every server; how long a ping may take is its own affair."""
