"""Names of the listeners, apart from them: who reads the configuration needs no gRPC."""

from __future__ import annotations

GRPCIO = "grpcio"
LANE = "lane"
LISTENERS = (GRPCIO, LANE)
"""Who carries the calls: grpcio's own server, or ours (``pointsman.daemon.lane``)."""
