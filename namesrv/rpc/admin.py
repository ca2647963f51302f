"""AdminService: what operators ask one node."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from namesrv.core.errors import InvalidRequest
from namesrv.core.model import BrokerIdentity
from namesrv.core.name_server import NameServer
from namesrv.core.validation import name_violations, shown
from namesrv.history.recorder import Recorder
from namesrv.rpc import codec
from pointsman.service.clock import Clock
from pointsman.v1 import admin_service_pb2 as wire
from pointsman.wire.violation import FieldViolation

DEFAULT_PAGE_SIZE = 500
MAX_PAGE_SIZE = 1_000
MAX_PAGE_BYTES = 2 * 1024 * 1024
"""One broker more is below gRPC's 4 MiB, whatever labels it has."""


class AdminServicer:
    """Answers from the core's tables and the recorder's recent events."""

    def __init__(self, core: NameServer, recorder: Recorder, *, clock: Clock, node: str) -> None:
        self._core = core
        self._recorder = recorder
        self._clock = clock
        self._node = node

    def list_brokers(self, request: wire.ListBrokersRequest) -> wire.ListBrokersResponse:
        """One page of replicas with their liveness."""
        codec.refuse_if_any(_optional_names(cluster=request.cluster, broker_name=request.broker_name))
        if request.page_size > MAX_PAGE_SIZE:
            problem = f"must be from 0 to {MAX_PAGE_SIZE}, not {request.page_size}"
            raise InvalidRequest([FieldViolation("page_size", problem)])
        now, utc_now = self._clock.monotonic(), self._clock.utc_now()
        members = self._core.replicas(cluster=request.cluster, broker_name=request.broker_name)
        rest = itertools.dropwhile(lambda member: not _comes_after(request.page_token, member[1].identity), members)
        answer, size = wire.ListBrokersResponse(node=self._node), 0
        for group, replica in rest:
            if len(answer.brokers) == (request.page_size or DEFAULT_PAGE_SIZE) or size > MAX_PAGE_BYTES:
                last = answer.brokers[-1].identity
                answer.next_page_token = f"{last.cluster}/{last.broker_name}/{last.broker_id}"
                break
            status = codec.broker_status(group, replica, now=now, utc_now=utc_now)
            size += status.ByteSize()
            answer.brokers.append(status)
        return answer

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


def _comes_after(token: str, identity: BrokerIdentity) -> bool:
    """Whether a broker stands after the one that ended the last page. Raises InvalidRequest for a token of no page."""
    if not token:
        return True
    cluster, slash, rest = token.partition("/")
    name, second_slash, broker_id = rest.partition("/")
    if not (slash and second_slash and broker_id.isascii() and broker_id.isdigit() and len(broker_id) <= 10):
        raise InvalidRequest([FieldViolation("page_token", f"is no token of a page: {shown(token)}")])
    return identity[:3] > (cluster, name, int(broker_id))


def _optional_names(**names: str) -> Iterator[FieldViolation]:
    for field, name in names.items():
        if name:
            yield from name_violations(field, name)
