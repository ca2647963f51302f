"""Facts of pages, as the event loop hands them over."""

from __future__ import annotations

from datetime import UTC, datetime

from pointsman_namesrv.core.flap_penalties import FlapScore
from pointsman_namesrv.core.model import BrokerIdentity, Health, QueueConfig, Registration
from pointsman_namesrv.core.replica_state import UP, ReplicaState
from pointsman_namesrv.web.page_data import BrokerRow, EventsData, LiveData, NodeFacts

NODE = NodeFacts(
    node="ns1",
    addr="ns1:9876",
    version="1",
    state="READY",
    uptime=3_600.0,
    at=datetime(2026, 11, 28, 12, tzinfo=UTC),
    report_url="",
    broker_url="https://grafana/{cluster}/{broker}",
    runbook_url="",
    is_reading=False,
    servers=("ns1:9876",),
)
NO_EVENTS = EventsData(NODE, {}, NODE.started_at)
NOTHING_MEASURED = LiveData(node=NODE, topics={}, groups=[], queues=[], lags=[], broker_count=0, measured_count=0)
FOUR_QUEUES = QueueConfig(4, 4, 6)


def broker_row(
    name: str = "a",
    broker_id: int = 0,
    *,
    cluster: str = "c1",
    state: ReplicaState = UP,
    silence: float | None = 1.0,
    zone: str = "",
    owner: str = "",
    version: str = "",
    score: FlapScore | None = None,
    write_wiped: bool = False,
    in_window: bool = False,
) -> BrokerRow:
    """The row of one replica; ``silence`` None: it was lost."""
    registration = Registration(
        identity=BrokerIdentity(cluster, name, broker_id, f"{name}-{broker_id}:1"),
        topics={"orders": FOUR_QUEUES},
        zone=zone,
        broker_version=version,
        labels={"owner": owner} if owner else {},
    )
    return BrokerRow(
        registration,
        state,
        5.0,
        silence,
        Health(),
        score,
        write_wiped=write_wiped,
        in_window=in_window,
        has_stream=True,
    )
