"""A name server for users' tests, ``python -m pointsman_namesrv.testing``: real except for a clock that tests move.

See :mod:`pointsman.daemon.process.steered`. It stores nothing on disk, and is warm from the start, because no broker
registered before.
"""

from __future__ import annotations

import asyncio

from pointsman.daemon.process import steered
from pointsman.manual_clock import ManualClock
from pointsman_namesrv.app import NameServerApp
from pointsman_namesrv.config import HistoryConfig, MonitoringConfig, NameServerConfig, ServerConfig, SnapshotConfig

CONFIG = NameServerConfig(
    server=ServerConfig(listen="127.0.0.1:0", warm_up_seconds=0.0),
    monitoring=MonitoringConfig(listen="127.0.0.1:0"),
    history=HistoryConfig(enabled=False),
    snapshot=SnapshotConfig(enabled=False),
)


async def serve(clock: ManualClock, announce: steered.Announce) -> None:
    """Serve until the process ends."""
    app = NameServerApp(CONFIG, version="testing", clock=clock)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(app.run(asyncio.Event()))
        await app.started.wait()
        announce({"addr": app.addr})


if __name__ == "__main__":
    steered.run(serve)
