"""A process that records until a test kills it: ``python -m tests.integration.history_writer FOLDER BOOT``.

After each batch of rows that reached the disk it prints the total number of rows.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from pointsman.clock import SystemClock
from pointsman_namesrv.config import HistoryConfig
from pointsman_namesrv.history import history_files, recorder, recorder_assembly
from pointsman_namesrv.node_metrics import Metrics
from tests.kit.name_server.events import QUEUES, broker_event, topics_event

history_files.MAX_FILE_BYTES = 50_000
recorder.SYNC_SECONDS = 0.001


def main(folder: Path, boot_id: str) -> None:
    """Run until killed."""
    metrics = Metrics()
    config = HistoryConfig(directory=str(folder), queue_rows=200)
    writing = recorder_assembly.recorder(config, node="n:1", boot_id=boot_id, clock=SystemClock(), metrics=metrics)
    writing.start()
    printed = 0.0
    while True:
        if not writing._waiting.rows:
            writing.record([broker_event(), topics_event({f"t{n}": QUEUES for n in range(600)}), broker_event()])
        threading.Event().wait(0.0005)
        written = metrics.registry.get_sample_value("pointsman_namesrv_history_rows_total") or 0.0
        if written > printed:
            printed = written
            print(int(printed), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
