"""What carries gRPC in the daemons that tests start: ``TEST_LISTENER=lane pytest ...`` runs any test on the lane."""

from __future__ import annotations

import os

from pointsman.daemon.rpc.listeners import GRPCIO

VARIABLE = "TEST_LISTENER"


def chosen_listener() -> str:
    """Return the environment's listener."""
    return os.environ.get(VARIABLE, GRPCIO)
