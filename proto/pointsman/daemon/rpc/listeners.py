"""Names of the listeners, apart from them: who reads the configuration needs no gRPC."""

from __future__ import annotations

GRPCIO = "grpcio"
LANE = "lane"
LISTENERS = (LANE, GRPCIO)
"""Who carries the calls: our own server (``pointsman.daemon.lane``), or grpcio's."""
DEFAULT_LISTENER = LANE
