"""What carries gRPC in the daemons that tests start: ``TEST_LISTENER=grpcio pytest ...`` runs any test on that one."""

from __future__ import annotations

import os

from pointsman.daemon.rpc.listeners import DEFAULT_LISTENER

VARIABLE = "TEST_LISTENER"


def chosen_listener() -> str:
    """Return the environment's listener."""
    return os.environ.get(VARIABLE, DEFAULT_LISTENER)
