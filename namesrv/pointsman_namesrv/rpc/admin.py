"""AdminService: queries and changes by operators on one node.

Changes that must survive a restart are on disk before they are acknowledged: the settings' keeper calls the functions
that it is given here, first the check, then the change with its events.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain
from typing import Any, TypedDict, TypeVar

from pointsman.clock import Clock
from pointsman.daemon.access.access import Author, Caller, author, check_group, check_writes
from pointsman.daemon.rpc.request_fields import by_violations
from pointsman.v1 import admin_service_pb2 as wire
from pointsman.wire.refusals import FieldViolation, refuse_if_any
from pointsman.wire.wire_time import seconds_of
from pointsman_namesrv.core.administration import (
    Administration,
    Change,
    GuardChange,
    PermChange,
    TopicDeletion,
    end_of,
)
from pointsman_namesrv.core.events import Event, RecordEvents
from pointsman_namesrv.core.kv import entry_violations
from pointsman_namesrv.core.model import GroupKey
from pointsman_namesrv.core.name_server import NameServer
from pointsman_namesrv.core.request_rules import name_violations, text_violations
from pointsman_namesrv.history.recent import RecentEvents
from pointsman_namesrv.rpc import admin_codec, broker_codec
from pointsman_namesrv.rpc.inspection import Inspection, Node
from pointsman_namesrv.rpc.live_queue_queries import LiveQueueQueries
from pointsman_namesrv.rpc.past_queries import PastQueries
from pointsman_namesrv.rpc.watch_hub import WatchHub
from pointsman_namesrv.settings.settings_keeper import Done, SettingsKeeper

LONGEST_GUARD_SECONDS = 86_400.0
LONGEST_MAINTENANCE_SECONDS = 7 * 86_400.0

ChangeT = TypeVar("ChangeT", PermChange, TopicDeletion, Change, GuardChange)


class AdminServicer(Inspection):
    """Every call of the service: the changes here, the queries in :class:`Inspection` and :class:`PastQueries`."""

    def __init__(
        self,
        core: NameServer,
        recent: RecentEvents,
        hub: WatchHub,
        *,
        live_queues: LiveQueueQueries,
        record: RecordEvents,
        clock: Clock,
        node: Node,
        settings: SettingsKeeper,
        administration: Administration,
        past: PastQueries,
        write_now: Callable[[], bool],
    ) -> None:
        """``write_now`` writes what ``record`` took to the disk, and returns whether that was possible; it blocks."""
        super().__init__(core, recent, hub, live_queues=live_queues, clock=clock, node=node)
        self._administration = administration
        self._record = record
        self._write_now = write_now
        self._settings = settings
        self.get_past_route = past.get_past_route
        self.get_past_broker = past.get_past_broker
        self.list_past_events = past.list_past_events
        self.list_changes = past.list_changes

    async def set_write_perm(
        self, request: wire.SetWritePermRequest, caller: Caller | None = None
    ) -> wire.SetWritePermResponse:
        """Wipe or restore the write permission of a broker name."""
        who = author(request.by, caller)
        refuse_if_any(chain(_group_violations(request), by_violations(request.by)))
        check_writes(caller, request.cluster, request.broker_name)
        key, admin = GroupKey(request.cluster, request.broker_name), self._administration
        done = await self._settings.change(
            lambda: admin.check_write_perm(key, writable=request.writable),
            lambda: self._recorded(admin.set_write_perm(key, writable=request.writable, by=who.name), who),
        )
        topic_count, changed = done.outcome.topic_count, done.outcome.changed
        return wire.SetWritePermResponse(topic_count=topic_count, changed=changed, **_durability(done))

    async def delete_topic(
        self, request: wire.DeleteTopicRequest, caller: Caller | None = None
    ) -> wire.DeleteTopicResponse:
        """Delete a topic."""
        who = author(request.by, caller)
        refuse_if_any(
            chain(
                name_violations("topic", request.topic),
                admin_codec.optional_names(cluster=request.cluster),
                by_violations(request.by),
            )
        )
        admin, topic, where, force = self._administration, request.topic, request.cluster, request.force
        done = await self._settings.change(
            lambda: admin.check_delete_topic(topic, cluster=where, force=force),
            lambda: self._recorded(
                admin.delete_topic(topic, cluster=where, force=force, by=who.name, now=self._clock.monotonic()),
                who,
            ),
        )
        return wire.DeleteTopicResponse(hidden_on=map(str, done.outcome.hidden_on), **_durability(done))

    async def put_kv(self, request: wire.PutKvRequest, caller: Caller | None = None) -> wire.PutKvResponse:
        """Set one key."""
        who = author(request.by, caller)
        refuse_if_any(chain(entry_violations(request.namespace, request.key, request.value), by_violations(request.by)))
        admin, entry = self._administration, (request.namespace, request.key, request.value)
        done = await self._settings.change(
            lambda: admin.check_put_kv(*entry),
            lambda: self._recorded(admin.put_kv(*entry, by=who.name), who),
        )
        return wire.PutKvResponse(changed=done.outcome.changed, **_durability(done))

    async def delete_kv(self, request: wire.DeleteKvRequest, caller: Caller | None = None) -> wire.DeleteKvResponse:
        """Remove one key."""
        who = author(request.by, caller)
        refuse_if_any(
            chain(
                name_violations("namespace", request.namespace),
                name_violations("key", request.key),
                by_violations(request.by),
            )
        )
        admin, name = self._administration, (request.namespace, request.key)
        done = await self._settings.change(
            lambda: admin.check_delete_kv(*name),
            lambda: self._recorded(admin.delete_kv(*name, by=who.name), who),
        )
        return wire.DeleteKvResponse(**_durability(done))

    async def set_guard(self, request: wire.SetGuardRequest, caller: Caller | None = None) -> wire.SetGuardResponse:
        """Set how the guard of a cluster works."""
        who = author(request.by, caller)
        lasts = request.HasField("duration")
        refuse_if_any(
            chain(
                name_violations("cluster", request.cluster),
                admin_codec.guard_mode_violations(request.mode),
                admin_codec.duration_violations(request.duration, longest=LONGEST_GUARD_SECONDS) if lasts else (),
                by_violations(request.by),
            )
        )
        admin, mode, asked_at = self._administration, admin_codec.guard_mode(request.mode), self._clock.monotonic()
        seconds = seconds_of(request.duration) if lasts else None

        def apply() -> GuardChange:
            now = self._clock.monotonic()
            return self._recorded(
                admin.set_guard(request.cluster, mode, seconds=seconds, by=who.name, now=now, since=asked_at), who
            )

        done = await self._settings.change(
            lambda: admin.check_guard(request.cluster, mode, until=end_of(seconds, since=asked_at)),
            apply,
            may_be_lost=True,
        )
        guard = admin_codec.guard_status(done.outcome.guard, now=self._clock.monotonic())
        return wire.SetGuardResponse(guard=guard, **_durability(done))

    async def set_maintenance(
        self, request: wire.SetMaintenanceRequest, caller: Caller | None = None
    ) -> wire.SetMaintenanceResponse:
        """Announce an absence, or end it."""
        who = author(request.by, caller)
        lasts = request.HasField("duration")
        longest = LONGEST_MAINTENANCE_SECONDS
        refuse_if_any(
            chain(
                name_violations("cluster", request.cluster),
                admin_codec.optional_names(broker_name=request.broker_name),
                admin_codec.duration_violations(request.duration, longest=longest) if lasts else (),
                text_violations("note", request.note),
                by_violations(request.by),
            )
        )
        admin, key, asked_at = (
            self._administration,
            GroupKey(request.cluster, request.broker_name),
            self._clock.monotonic(),
        )
        seconds = seconds_of(request.duration) if lasts else None
        note, by = request.note, who.name
        done = await self._settings.change(
            lambda: admin.check_maintenance(key, until=end_of(seconds, since=asked_at), note=note, by=by),
            lambda: self._recorded(admin.set_maintenance(key, seconds=seconds, note=note, by=by, now=asked_at), who),
            may_be_lost=True,
        )
        return wire.SetMaintenanceResponse(changed=done.outcome.changed, **_durability(done))

    def set_drain(self, request: wire.SetDrainRequest, caller: Caller | None = None) -> wire.SetDrainResponse:
        """Send this node's clients elsewhere, or accept them again."""
        who = author(request.by, caller)
        refuse_if_any(by_violations(request.by))
        lifecycle = self._node.lifecycle
        if request.draining:
            self._record(_signed(lifecycle.drain(by=who.name), who))
        else:
            now, still_provisional = self._clock.monotonic(), self._core.provisional_count()
            self._record(_signed(lifecycle.undrain(by=who.name, now=now, still_provisional=still_provisional), who))
        return wire.SetDrainResponse(state=broker_codec.node_state(lifecycle.state))

    def evict_broker(self, request: wire.EvictBrokerRequest, caller: Caller | None = None) -> wire.EvictBrokerResponse:
        """Remove one registration."""
        who = author(request.by, caller)
        refuse_if_any(
            chain(
                _group_violations(request),
                admin_codec.broker_id_violations(request.broker_id),
                by_violations(request.by),
            )
        )
        done = self._administration.evict(
            request.cluster, request.broker_name, request.broker_id, by=who.name, now=self._clock.monotonic()
        )
        self._record(_signed(done.events, who))
        return wire.EvictBrokerResponse(identity=broker_codec.to_identity(done.identity))

    async def record_change(
        self, request: wire.RecordChangeRequest, caller: Caller | None = None
    ) -> wire.RecordChangeResponse:
        """Record a change that an operator makes at brokers: it is on the disk before it is made.

        A client with grants for groups changes only these.
        """
        if request.group:
            check_group(caller, request.group)
        who = author(request.by, caller)
        change = admin_codec.broker_data_change(request)
        self._record(_signed((change.event(by=who.name),), who))
        is_written = await asyncio.to_thread(self._write_now)
        return wire.RecordChangeResponse(node=self._node.name, in_history=is_written and self._node.has_history())

    def _recorded(self, change: ChangeT, who: Author) -> ChangeT:
        """Record the events of a change in the step that makes it: its caller may have been cancelled."""
        self._record(_signed(change.events, who))
        return change


class _Durability(TypedDict):
    durable: bool
    warning: str


def _signed(events: tuple[Event, ...], who: Author) -> tuple[Event, ...]:
    """Add to each event the author that the request claims, where it differs from the authenticated one."""
    if not who.claimed:
        return events
    return tuple(
        replace(event, detail={**event.detail, "claimed_by": who.claimed}) if "by" in event.detail else event
        for event in events
    )


def _durability(done: Done[Any]) -> _Durability:
    return {"durable": done.is_saved, "warning": done.warning}


def _group_violations(request: wire.SetWritePermRequest | wire.EvictBrokerRequest) -> Iterator[FieldViolation]:
    yield from name_violations("cluster", request.cluster)
    yield from name_violations("broker_name", request.broker_name)
