"""A process that writes one snapshot after the other until it is killed: ``python -m ... FOLDER FIRST_STEP``.

It prints each step once it is written. Broker b4 exists in even steps only.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pointsman_namesrv.snapshot.snapshot_store import Snapshot
from tests.fakes.held_brokers import held, snapshot, store

MOST_STEPS = 100_000


def at_step(step: int) -> Snapshot:
    return snapshot(*(held(number, step, topics=200) for number in range(5) if number != 4 or step % 2 == 0))


def main(folder: Path, first_step: int) -> None:
    writing = store(folder)
    if writing.load().refused:
        sys.exit("the last kill left something damaged")
    for step in range(first_step, first_step + MOST_STEPS):
        if not writing.write(at_step(step)).whole:
            sys.exit("the disk refused")
        print(step, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
