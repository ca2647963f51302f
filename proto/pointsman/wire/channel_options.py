"""Options of the channels of agents and clients, and of the servers that they connect to."""

from __future__ import annotations

from typing import Final

ChannelOptions = tuple[tuple[str, int | str], ...]

CHANNEL_OPTIONS: Final[ChannelOptions] = (
    # With gRPC's defaults a channel came back 30.6 s after a 75 s outage, with these in 1.0 s (design, section 9).
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    # Each channel has its own connection to a node: a restarted client must not share one that hangs.
    ("grpc.use_local_subchannel_pool", 1),
    # Name servers are in the brokers' own network; with http_proxy set, gRPC would send even 127.0.0.1 elsewhere.
    ("grpc.enable_http_proxy", 0),
)
"""For every channel."""

KEEPALIVE_OPTIONS: Final[ChannelOptions] = (
    # Detects half-open connections. Agents do not use it: their heartbeats do, and a paused agent must be judged by its
    # silence alone.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
)
"""In addition, for clients."""

SERVER_OPTIONS: Final[tuple[tuple[str, int], ...]] = (
    # With the defaults, 517 of 3,000 clients that reconnect at the same time are refused; with these none (design,
    # section 9).
    # Calls that are accepted do not wait there, so these bound a herd and not the open watches.
    ("grpc.server.max_pending_requests", 20_000),
    ("grpc.server.max_pending_requests_hard_limit", 30_000),
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    # Detects half-open connections, together with the limit of a ping (below).
    ("grpc.keepalive_time_ms", 120_000),
    ("grpc.max_concurrent_streams", 1_000),
    # A connection without a call; an open stream is a call, so keep-alive streams and watches keep theirs.
    ("grpc.max_connection_idle_ms", 300_000),
    # Limit for a connection that sends no request; gRPC's default is 120 s.
    ("grpc.server_handshake_timeout_ms", 10_000),
    # Otherwise two daemons could share a port unnoticed.
    ("grpc.so_reuseport", 0),
)
"""For every server; each sets the limit of a ping itself."""
