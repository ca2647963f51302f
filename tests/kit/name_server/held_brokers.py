"""Registrations as a server holds them, all of whose content follows from a step: what was written when can be seen."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from pointsman_namesrv.core.model import BrokerIdentity, DataVersion, Health, QueueConfig, Registration
from pointsman_namesrv.core.request_rules import IntervalBounds
from pointsman_namesrv.snapshot.snapshot_store import HeldBroker, Snapshot, SnapshotStore


def held(number: int, step: int = 0, *, topics: int = 3, health: Health = Health()) -> HeldBroker:
    """Broker ``b<number>`` as it is at a step."""
    registration = Registration(
        identity=BrokerIdentity("c1", f"b{number}", 0, f"10.0.0.{number}:10911"),
        topics={f"topic-{step}-{i}": QueueConfig(step % 100, step % 100, 6) for i in range(topics)},
        data_version=DataVersion(0, 0, step),
        incarnation=f"run-{step}",
        labels={"step": str(step)},
    )
    return registration, 1_000 * number + step, health


def snapshot(*brokers: HeldBroker) -> Snapshot:
    return Snapshot(list(brokers))


def brokers_in(folder: Path) -> list[str]:
    """Names of the brokers in the snapshot of a folder, in use or not; none where it was copied during a write."""
    with tempfile.TemporaryDirectory() as copies:
        copy = store(Path(shutil.copytree(folder, Path(copies) / "state", dirs_exist_ok=True)))
        loaded = copy.load()
        copy.close()
    return sorted(registration.identity.broker_name for registration, _ in loaded.brokers)


def store(folder: Path, *, max_topics: int = 1_000, bounds: IntervalBounds | None = None) -> SnapshotStore:
    return SnapshotStore(folder, bounds=bounds or IntervalBounds(), max_topics=max_topics)
