"""A real name server in this process, on free ports, with any clock and its history in a folder of the test's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from pointsman.clock import Clock
from pointsman.daemon.access.access_settings import AccessSettings
from pointsman.daemon.tls.tls_settings import TlsConfig
from pointsman_namesrv.app import NameServerApp
from pointsman_namesrv.config import (
    AddressServerConfig,
    HistoryConfig,
    LivenessConfig,
    MonitoringConfig,
    NameServerConfig,
    PeersConfig,
    RemotingConfig,
    RoutesConfig,
    ServerConfig,
    SnapshotConfig,
)
from tests.kit.chosen_listener import chosen_listener


@asynccontextmanager
async def running_name_server(
    *,
    clock: Clock | None = None,
    history: Path | None = None,
    listen: str = "127.0.0.1:0",
    node: str = "",
    peers: PeersConfig | None = None,
    liveness: LivenessConfig | None = None,
    snapshot: Path | None = None,
    remoting: RemotingConfig | None = None,
    routes: RoutesConfig | None = None,
    tls: TlsConfig | None = None,
    monitoring: MonitoringConfig | None = None,
    address_server: AddressServerConfig | None = None,
    access: AccessSettings | None = None,
    warm_up_seconds: float = 0.0,
    listener: str | None = None,
) -> AsyncIterator[NameServerApp]:
    """Serve for the length of the block; ``addr`` is its address. Invariants are checked at the end.

    ``listener``: by default the one that the environment chooses.
    """
    config = NameServerConfig(
        server=ServerConfig(
            listen=listen,
            node=node,
            stop_grace_seconds=1.0,
            warm_up_seconds=warm_up_seconds,
            listener=listener or chosen_listener(),
        ),
        monitoring=monitoring or MonitoringConfig(listen="127.0.0.1:0"),
        address_server=address_server or AddressServerConfig(),
        tls=tls or TlsConfig(),
        access=access or AccessSettings(),
        peers=peers or PeersConfig(),
        liveness=liveness or LivenessConfig(),
        remoting=remoting or RemotingConfig(),
        routes=routes or RoutesConfig(),
        history=HistoryConfig(enabled=history is not None, directory=str(history or "unused")),
        snapshot=SnapshotConfig(enabled=snapshot is not None, directory=str(snapshot or "unused")),
    )
    app = NameServerApp(config, version="0.0.0-test", clock=clock)
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(app.run(stop))
        started = tasks.create_task(app.started.wait())
        await asyncio.wait({running, started}, return_when=asyncio.FIRST_COMPLETED)
        started.cancel()
        try:
            if not running.done():
                yield app
        finally:
            stop.set()
    app.core.check_invariants()
    app.responses.check_invariants()
    app.parts.hub.check_invariants()
