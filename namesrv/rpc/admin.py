"""AdminService: what operators ask one node, and what they change on it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from namesrv.core.administration import Administration
from namesrv.core.kv import entry_violations
from namesrv.core.model import GroupKey
from namesrv.core.name_server import NameServer
from namesrv.core.validation import name_violations, text_violations
from namesrv.history.recent import RecentEvents
from namesrv.rpc import admin_codec, codec
from namesrv.rpc.calls import RecordEvents
from namesrv.rpc.inspection import Inspection, Node
from namesrv.rpc.watch_hub import WatchHub
from pointsman.service.clock import Clock
from pointsman.v1 import admin_service_pb2 as wire
from pointsman.wire.violation import FieldViolation

LONGEST_GUARD_SECONDS = 86_400.0
LONGEST_MAINTENANCE_SECONDS = 7 * 86_400.0


class AdminServicer(Inspection):
    """Every call of the service: the changes here, the rest is :class:`Inspection`."""

    def __init__(
        self,
        core: NameServer,
        recent: RecentEvents,
        hub: WatchHub,
        *,
        record: RecordEvents,
        clock: Clock,
        node: Node,
    ) -> None:
        super().__init__(core, recent, hub, clock=clock, node=node)
        self._administration = Administration(core)
        self._record = record

    def set_write_perm(self, request: wire.SetWritePermRequest) -> wire.SetWritePermResponse:
        """Wipe or give back the write permission of a broker name."""
        codec.refuse_if_any(chain(_group_violations(request), admin_codec.by_violations(request.by)))
        key = GroupKey(request.cluster, request.broker_name)
        done = self._administration.set_write_perm(key, writable=request.writable, by=request.by)
        self._record(done.events)
        return wire.SetWritePermResponse(topic_count=done.topic_count, changed=done.changed)

    def delete_topic(self, request: wire.DeleteTopicRequest) -> wire.DeleteTopicResponse:
        """Delete a topic."""
        codec.refuse_if_any(
            chain(
                name_violations("topic", request.topic),
                admin_codec.optional_names(cluster=request.cluster),
                admin_codec.by_violations(request.by),
            )
        )
        done = self._administration.delete_topic(
            request.topic, cluster=request.cluster, force=request.force, by=request.by
        )
        self._record(done.events)
        return wire.DeleteTopicResponse(hidden_on=[f"{key.cluster}/{key.broker_name}" for key in done.hidden_on])

    def put_kv(self, request: wire.PutKvRequest) -> wire.PutKvResponse:
        """Set one key."""
        codec.refuse_if_any(
            chain(
                entry_violations(request.namespace, request.key, request.value), admin_codec.by_violations(request.by)
            )
        )
        done = self._administration.put_kv(request.namespace, request.key, request.value, by=request.by)
        self._record(done.events)
        return wire.PutKvResponse(changed=done.changed)

    def delete_kv(self, request: wire.DeleteKvRequest) -> wire.DeleteKvResponse:
        """Remove one key."""
        codec.refuse_if_any(
            chain(
                name_violations("namespace", request.namespace),
                name_violations("key", request.key),
                admin_codec.by_violations(request.by),
            )
        )
        done = self._administration.delete_kv(request.namespace, request.key, by=request.by)
        self._record(done.events)
        return wire.DeleteKvResponse()

    def set_guard(self, request: wire.SetGuardRequest) -> wire.SetGuardResponse:
        """Set how the guard of a cluster works."""
        lasts = request.HasField("duration")
        codec.refuse_if_any(
            chain(
                name_violations("cluster", request.cluster),
                admin_codec.guard_mode_violations(request.mode),
                admin_codec.duration_violations(request.duration, longest=LONGEST_GUARD_SECONDS) if lasts else (),
                admin_codec.by_violations(request.by),
            )
        )
        now = self._clock.monotonic()
        done = self._administration.set_guard(
            request.cluster,
            admin_codec.guard_mode(request.mode),
            seconds=admin_codec.seconds(request.duration) if lasts else None,
            by=request.by,
            now=now,
        )
        self._record(done.events)
        return wire.SetGuardResponse(guard=admin_codec.guard_status(done.guard, now=now))

    def set_maintenance(self, request: wire.SetMaintenanceRequest) -> wire.SetMaintenanceResponse:
        """Announce an absence, or end it."""
        lasts = request.HasField("duration")
        longest = LONGEST_MAINTENANCE_SECONDS
        codec.refuse_if_any(
            chain(
                name_violations("cluster", request.cluster),
                admin_codec.optional_names(broker_name=request.broker_name),
                admin_codec.duration_violations(request.duration, longest=longest) if lasts else (),
                text_violations("note", request.note),
                admin_codec.by_violations(request.by),
            )
        )
        done = self._administration.set_maintenance(
            GroupKey(request.cluster, request.broker_name),
            seconds=admin_codec.seconds(request.duration) if lasts else None,
            note=request.note,
            by=request.by,
            now=self._clock.monotonic(),
        )
        self._record(done.events)
        return wire.SetMaintenanceResponse(changed=done.changed)

    def set_drain(self, request: wire.SetDrainRequest) -> wire.SetDrainResponse:
        """Send this node's clients elsewhere, or take them again."""
        codec.refuse_if_any(admin_codec.by_violations(request.by))
        lifecycle = self._node.lifecycle
        if request.draining:
            self._record(lifecycle.drain(by=request.by))
        else:
            now, still_provisional = self._clock.monotonic(), self._core.provisional_count()
            self._record(lifecycle.undrain(by=request.by, now=now, still_provisional=still_provisional))
        return wire.SetDrainResponse(state=codec.node_state(lifecycle.state))

    def evict_broker(self, request: wire.EvictBrokerRequest) -> wire.EvictBrokerResponse:
        """Remove one registration."""
        codec.refuse_if_any(
            chain(
                _group_violations(request),
                admin_codec.broker_id_violations(request.broker_id),
                admin_codec.by_violations(request.by),
            )
        )
        done = self._administration.evict(
            request.cluster, request.broker_name, request.broker_id, by=request.by, now=self._clock.monotonic()
        )
        self._record(done.events)
        return wire.EvictBrokerResponse(identity=codec.to_identity(done.identity))


def _group_violations(request: wire.SetWritePermRequest | wire.EvictBrokerRequest) -> Iterator[FieldViolation]:
    yield from name_violations("cluster", request.cluster)
    yield from name_violations("broker_name", request.broker_name)
