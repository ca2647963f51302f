"""AdminService: what operators ask one node."""

from __future__ import annotations

from collections.abc import Iterator

from namesrv.core.name_server import NameServer
from namesrv.core.validation import name_violations
from namesrv.history.recorder import Recorder
from namesrv.rpc import codec
from pointsman.service.clock import Clock
from pointsman.v1 import admin_service_pb2 as wire
from pointsman.wire.violation import FieldViolation


class AdminServicer:
    """Answers from the core's tables and the recorder's recent events."""

    def __init__(self, core: NameServer, recorder: Recorder, *, clock: Clock, node: str) -> None:
        self._core = core
        self._recorder = recorder
        self._clock = clock
        self._node = node

    def list_brokers(self, request: wire.ListBrokersRequest) -> wire.ListBrokersResponse:
        """Every replica with its liveness."""
        codec.refuse_if_any(_optional_names(cluster=request.cluster, broker_name=request.broker_name))
        now, utc_now = self._clock.monotonic(), self._clock.utc_now()
        members = self._core.replicas(cluster=request.cluster, broker_name=request.broker_name)
        return wire.ListBrokersResponse(
            brokers=[codec.broker_status(group, replica, now=now, utc_now=utc_now) for group, replica in members],
            node=self._node,
        )

    def list_broker_events(self, request: wire.ListBrokerEventsRequest) -> wire.ListBrokerEventsResponse:
        """The last events of a broker name."""
        codec.refuse_if_any(_optional_names(cluster=request.cluster))
        codec.refuse_if_any(name_violations("broker_name", request.broker_name))
        records = self._recorder.recent.of(request.broker_name, cluster=request.cluster)
        return wire.ListBrokerEventsResponse(
            events=[
                codec.broker_event(record.event, event_at=record.event_at, seq=record.seq)
                for record in records[-request.limit :]
            ],
            node=self._node,
        )


def _optional_names(**names: str) -> Iterator[FieldViolation]:
    for field, name in names.items():
        if name:
            yield from name_violations(field, name)
