"""The services for the broker's clients: groups, locks, offsets, and the agent itself."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry

from pointsman.clock import Clock
from pointsman.daemon.access.access import Access
from pointsman.daemon.rpc.rpc_server import Service
from pointsman.names import join_addr, split_addr
from pointsman.wire.channel_opener import ChannelOpener
from pointsman_agent.config import AgentConfig, GroupsSection
from pointsman_agent.core.group_membership import GroupState
from pointsman_agent.core.group_progress import ProgressMeter
from pointsman_agent.core.group_rules import GroupRules, NoticeRules
from pointsman_agent.core.measured_queue_stats import QueueMeter
from pointsman_agent.core.offsets import Offsets
from pointsman_agent.core.queue_locks import QueueLocks
from pointsman_agent.core.replica_offsets import ReplicaOffsets
from pointsman_agent.core.topic_set import TopicSet
from pointsman_agent.groups.group_queues import GroupQueues
from pointsman_agent.groups.group_servicer import ConsumerGroups
from pointsman_agent.groups.member_lists import MemberListFile, MemberListKeeper, MemberListStore
from pointsman_agent.groups.queue_pin_keeper import QueuePinFile, QueuePinStore
from pointsman_agent.offsets.expiry import OffsetExpiry
from pointsman_agent.offsets.file_store import FileStore
from pointsman_agent.offsets.flusher import Flusher, OffsetMetrics
from pointsman_agent.offsets.offset_hand_over import HandOver, HandOverMetrics
from pointsman_agent.offsets.servicer import OffsetServicer
from pointsman_agent.offsets.stored_offsets import OffsetStore
from pointsman_agent.queue_locks.queue_lock_servicer import QueueLockServicer, register_lock_metrics
from pointsman_agent.queue_stats.ends import QueueEnds
from pointsman_agent.rpc.agent_server import AgentServer

if TYPE_CHECKING:
    from pointsman.daemon.tls.server_certificates import ServerCertificates

STORE_SECONDS = 1.0
"""Deadline of one exchange with Redis."""
LAST_WRITE_SECONDS = 3.0
WILDCARDS = frozenset({"0.0.0.0", "::"})  # noqa: S104  # only compared with

log = logging.getLogger(__name__)


class ClientServices:
    """Bound by :meth:`bind`, serving from :meth:`start` to :meth:`stop`; :meth:`run` runs during that time."""

    def __init__(
        self,
        config: AgentConfig,
        *,
        topics: Callable[[], TopicSet],
        ends: QueueEnds,
        is_master: Callable[[], bool],
        master_agent: Callable[[], str],
        opener: ChannelOpener,
        clock: Clock,
        registry: CollectorRegistry,
    ) -> None:
        """``master_agent`` returns the address of the agent of a slave's master; empty if there is none."""
        self._config = config
        self.locks, self.offsets = QueueLocks(), Offsets()
        self.meter, self.progress = QueueMeter(), ProgressMeter()
        """Fed by the collector of queue statistics."""
        self.groups = ConsumerGroups(
            _rules(config.groups),
            clock=clock,
            boot=secrets.randbits(64),
            max_watchers=config.groups.max_watchers,
            queues=GroupQueues(
                self.offsets.of_group,
                commit_times=self.offsets.commit_times,
                ends=ends,
                meter=self.meter,
                progress=self.progress,
                clock=clock,
            ),
            lock_owner=lambda client_id: self.locks.owner_of(client_id, now=clock.monotonic()),
            pin_store=_build_pin_store(config, is_master=is_master, clock=clock),
        )
        self.flusher = Flusher(
            self.offsets,
            _build_store(config, is_master=is_master, clock=clock),
            interval=config.offsets.flush_interval_seconds,
            clock=clock,
            metrics=OffsetMetrics(registry),
        )
        self.member_lists = MemberListKeeper(
            self.groups,
            _build_member_lists(config, is_master=is_master, clock=clock),
            groups_with_offsets=self._groups_with_offsets,
            clock=clock,
        )
        self._pending_flusher: Flusher | None = None
        replica = ReplicaOffsets(self.offsets)
        if config.may_be_slave:
            replica = ReplicaOffsets(
                self.offsets, Offsets(), is_master=is_master, keeps_copy=not config.keeps_offsets_in_redis
            )
            self._pending_flusher = Flusher(
                replica.pending,
                FileStore(config.pending_offsets_path, clock=clock),
                interval=config.offsets.flush_interval_seconds,
                clock=clock,
                metrics=OffsetMetrics(CollectorRegistry()),  # not exported: they are counted as pending
            )
        self._flushers = [each for each in (self.flusher, self._pending_flusher) if each is not None]
        self._hand_over = HandOver(
            replica,
            is_loaded=self._is_loaded,
            is_master=is_master,
            master_agent=master_agent,
            broker=(config.broker.cluster, config.broker.name),
            opener=opener,
            clock=clock,
            metrics=HandOverMetrics(registry),
        )
        self._expiry = OffsetExpiry(
            self.offsets,
            is_loaded=self._is_loaded,
            is_master=is_master,
            members=self.groups.core.names,
            ends=ends,
            clock=clock,
            registry=registry,
        )
        self._services = [
            self.groups.service(),
            QueueLockServicer(self.locks, topics=topics, owners=self.groups.owners, clock=clock).service(),
            OffsetServicer(
                replica,
                flushers=self._flushers,
                topics=topics,
                ends=ends,
                clock=clock,
                is_broadcasting=self.groups.is_broadcasting,
                on_reset=self.groups.notify_reset,
                member_count=self.groups.known_member_count,
            ).service(),
        ]
        self._access = Access(
            config.access,
            clock=clock,
            prefix="pointsman_agent",
            registry=registry,
            own=(config.broker.cluster, config.broker.name),
        )
        self._server = AgentServer(
            longest_silence=config.groups.expiry_seconds,
            clock=clock,
            registry=registry,
            access=self._access,
            listener=config.rpc.listener,
        )
        registry.register(self.groups.collector())
        register_lock_metrics(self.locks, registry)

    def bind(self, certificates: ServerCertificates | None) -> str:
        """Bind the listen address, and return the one at which clients reach it. Raises CannotListen.

        That is ``broker.agent_addr``. If it is empty, the listen address, with the broker's host in place of a
        wildcard.
        """
        port = self._server.bind(self._config.rpc.listen, certificates)
        if self._config.broker.agent_addr:
            return self._config.broker.agent_addr
        host, _ = split_addr(self._config.rpc.listen)
        if host in WILDCARDS:
            host, _ = split_addr(self._config.broker.addr)
        return join_addr(host, port)

    async def start(self, more: Sequence[Service] = ()) -> None:
        """Serve, with the services ``more`` in addition."""
        await self._server.start([*self._services, *more])

    async def run(self) -> None:
        """Run the background tasks of the services until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.flusher.run())
            tasks.create_task(self.groups.restore_queue_pins())
            tasks.create_task(self._keep_members())
            tasks.create_task(self._expiry.run())
            tasks.create_task(self._access.follow())
            if self._pending_flusher is not None:
                tasks.create_task(self._pending_flusher.run())
                tasks.create_task(self._hand_over.run())
            tasks.create_task(self._server.watch_over())

    async def stop(self) -> None:
        """Refuse new calls, and let running ones finish."""
        await self._server.stop(self._config.rpc.grace_seconds)

    async def finish(self) -> None:
        """Write offsets and member lists to their stores, after :meth:`run` was cancelled."""
        flushed = (flusher.finish(LAST_WRITE_SECONDS) for flusher in self._flushers)
        await asyncio.gather(*flushed, self.member_lists.finish(), self.groups.close())

    def member_counts(self) -> Mapping[str, int] | None:
        """Return the number of members of each group; None while they may not have sent a heartbeat yet."""
        core = self.groups.core
        return core.member_counts() if core.state is GroupState.READY else None

    async def _keep_members(self) -> None:
        await self.groups.queue_pins_tried.wait()
        await self.member_lists.run()

    def _is_loaded(self) -> bool:
        return all(flusher.is_loaded for flusher in self._flushers)

    @property
    def offsets_problem(self) -> str:
        """Why the last write or read of offsets failed; empty if it succeeded."""
        return next((flusher.problem for flusher in self._flushers if flusher.problem), "")

    async def stop_groups(self) -> None:
        """End the streams of consumers, and refuse new ones."""
        await self.groups.drain()

    async def serve_groups(self) -> None:
        """Accept consumers again."""
        self.groups.resume()

    def _groups_with_offsets(self) -> frozenset[str] | None:
        return frozenset(group for group, *_ in self.offsets.commits()) if self.flusher.is_loaded else None


def _rules(section: GroupsSection) -> GroupRules:
    return GroupRules(
        expiry=section.expiry_seconds,
        scan_interval=section.scan_interval_seconds,
        stream_grace=section.stream_grace_seconds,
        warm_up=section.warm_up_seconds,
        notices=NoticeRules(notify=section.notify, hold_down=section.hold_down_seconds),
        notices_of={row.name: NoticeRules(notify=row.notify, hold_down=row.hold_down_seconds) for row in section.group},
        max_clients=section.max_clients,
        max_groups=section.max_groups,
        max_subscriptions=section.max_subscriptions,
        max_subscriptions_per_client=section.max_subscriptions_per_client,
    )


def _build_member_lists(config: AgentConfig, *, is_master: Callable[[], bool], clock: Clock) -> MemberListStore:
    """Build the store of the member lists, next to that of the offsets."""
    if not config.keeps_offsets_in_redis:
        path = Path(config.offsets.path)
        return MemberListFile(path.with_name(path.name + ".members"), clock=clock)
    from pointsman_agent.groups.redis_member_lists import RedisMemberLists  # noqa: PLC0415  # needs the extra `redis`

    target, username, password = config.redis_login
    return RedisMemberLists(
        target, clock=clock, timeout=STORE_SECONDS, username=username, password=password, is_master=is_master
    )


def _build_pin_store(config: AgentConfig, *, is_master: Callable[[], bool], clock: Clock) -> QueuePinStore:
    """Build the store of pinned queues, next to that of the offsets."""
    if not config.keeps_offsets_in_redis:
        path = Path(config.offsets.path)
        return QueuePinFile(path.with_name(path.name + ".pins"), clock=clock)
    from pointsman_agent.groups.redis_queue_pins import RedisQueuePins  # noqa: PLC0415  # needs the extra `redis`

    target, username, password = config.redis_login
    return RedisQueuePins(
        target, clock=clock, timeout=STORE_SECONDS, username=username, password=password, is_master=is_master
    )


def _build_store(config: AgentConfig, *, is_master: Callable[[], bool], clock: Clock) -> OffsetStore:
    """Build the store of offsets. Raises StoreNotInstalledError."""
    if not config.keeps_offsets_in_redis:
        return FileStore(Path(config.offsets.path), clock=clock)
    from pointsman_agent.offsets.redis_store import RedisStore  # noqa: PLC0415  # needs the extra `redis`

    target, username, password = config.redis_login
    return RedisStore(
        target, clock=clock, timeout=STORE_SECONDS, username=username, password=password, is_master=is_master
    )
