"""The options of the gRPC server."""

from __future__ import annotations

from pointsman_namesrv.core.liveness import LATE_AFTER_INTERVALS
from pointsman_namesrv.rpc.node_server import node_options


def test_the_transport_closes_a_silent_agents_connection_only_when_its_silence_counts_anyway() -> None:
    options = dict(node_options(300.0, 7))
    assert options["grpc.http2.ping_timeout_ms"] >= LATE_AFTER_INTERVALS * 300.0 * 1000
    assert "grpc.max_connection_age_ms" not in options
    assert options["grpc.max_allowed_incoming_connections"] == 7
