"""The agent's gRPC server."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from pointsman.clock import Clock
from pointsman.daemon.access.access import Access
from pointsman.daemon.rpc.call_tallies import CallMetrics
from pointsman.daemon.rpc.handler_table import HandlerTable
from pointsman.daemon.rpc.listeners import DEFAULT_LISTENER
from pointsman.daemon.rpc.rpc_server import RpcServer, server_options
from pointsman_agent.rpc.agent_refusals import LimitExceeded, stopping


class AgentServer(RpcServer):
    """Serves until it stops.

    ``longest_silence``: seconds without a heartbeat after which a client is removed.
    """

    def __init__(
        self,
        *,
        longest_silence: float,
        clock: Clock,
        registry: CollectorRegistry,
        access: Access | None = None,
        listener: str = DEFAULT_LISTENER,
    ) -> None:
        self.metrics = CallMetrics("pointsman_agent", registry)
        table = HandlerTable(clock=clock, metrics=self.metrics, access=access)
        super().__init__(
            table,
            options=server_options(longest_silence),
            limit_exceeded=LimitExceeded,
            stopping=stopping(),
            access=access,
            listener=listener,
        )
