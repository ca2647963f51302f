"""Builds a history from its settings."""

from __future__ import annotations

from pathlib import Path

from pointsman.clock import Clock
from pointsman_namesrv.config import HistoryConfig
from pointsman_namesrv.history.closed_files import ClosedFilesTask
from pointsman_namesrv.history.history_files import HistoryFiles
from pointsman_namesrv.history.recent import RecentEvents
from pointsman_namesrv.history.recorder import Recorder
from pointsman_namesrv.history.retention import Retention
from pointsman_namesrv.history.shipping import Shipper
from pointsman_namesrv.node_metrics import Metrics


def recorder(
    config: HistoryConfig,
    *,
    node: str,
    boot_id: str,
    clock: Clock,
    metrics: Metrics,
    recent: RecentEvents | None = None,
    run: int = 0,
) -> Recorder:
    """Join recorder, files, retention and shipping. Opens nothing before it is started.

    ``recent`` and ``run``: see :class:`~pointsman_namesrv.history.recorder.Recorder`.
    """
    files, closed_files = None, None
    if config.enabled:
        files = HistoryFiles(Path(config.directory), node=node, boot_id=boot_id)
        closed_files = _closed_files(config, files, clock, metrics)
    return Recorder(
        files,
        node=node,
        boot_id=boot_id,
        clock=clock,
        metrics=metrics,
        queue_rows=config.queue_rows,
        queue_bytes=config.queue_bytes,
        closed_files=closed_files,
        recent=recent,
        run=run,
    )


def check_folder(config: HistoryConfig, *, node: str) -> None:
    """Create the folder, and check that no other process writes this node's history. Raises OSError, as HistoryInUse.

    The folder is not locked afterwards: this is for a program that begins to record later.
    """
    files = HistoryFiles(Path(config.directory), node=node, boot_id="")
    files.prepare()
    files.release()


def _closed_files(config: HistoryConfig, files: HistoryFiles, clock: Clock, metrics: Metrics) -> ClosedFilesTask:
    shipper = None
    if config.ship:
        shipper = Shipper(
            files, command=config.ship, timeout_seconds=config.ship_timeout_seconds, clock=clock, metrics=metrics
        )
    retention = Retention(
        files.raw,
        days=config.retain_days,
        max_bytes=config.retain_bytes,
        metrics=metrics,
        waits=shipper.waits if shipper is not None else lambda _: False,
    )
    return ClosedFilesTask(files, retention=retention, shipper=shipper, clock=clock)
