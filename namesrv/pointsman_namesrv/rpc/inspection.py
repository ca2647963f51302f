"""AdminService: the read-only calls."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pointsman.clock import Clock
from pointsman.daemon.rpc.request_fields import size_of_page
from pointsman.v1 import admin_service_pb2 as wire
from pointsman.wire.refusals import FieldViolation, InvalidRequest, refuse_if_any, shown
from pointsman_namesrv.core.broker_tables import BrokerTables
from pointsman_namesrv.core.guard import GuardMode
from pointsman_namesrv.core.lifecycle import NodeLifecycle
from pointsman_namesrv.core.model import BrokerIdentity
from pointsman_namesrv.core.node_refusals import ClusterNotFound
from pointsman_namesrv.core.request_rules import name_violations
from pointsman_namesrv.core.saved_settings import settings_of
from pointsman_namesrv.history.recent import RecentEvents
from pointsman_namesrv.history.startup_memory import EarlierRuns
from pointsman_namesrv.rpc import admin_codec, broker_codec
from pointsman_namesrv.rpc.live_queue_queries import LiveQueueQueries, Pause
from pointsman_namesrv.rpc.route_codec import route_response
from pointsman_namesrv.rpc.watch_hub import WatchHub
from pointsman_namesrv.slices import Slices

DEFAULT_BROKERS = 500
MAX_BROKERS = 1_000
MAX_PAGE_BYTES = 2 * 1024 * 1024
"""Upper bound for one broker or event in a message of at most 4 MiB."""

DEFAULT_SETTINGS = 1_000
MAX_SETTINGS = 5_000
DEFAULT_SCORES = 100
MAX_SCORES = 1_000
DEFAULT_DIGESTS = 5_000
MAX_DIGESTS = 10_000
QUEUES_LIKE_A_GROUP = 50
"""Logical queues of a static topic that take as long as a replica group."""
DIGEST_WORK = 1_000
"""Topics and replica groups of one page of digests. Each takes about 13 us of the loop, a page 13 ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """State of this node outside the core."""

    name: str
    version: str
    boot: int
    started_at: float
    """Monotonic seconds."""
    configuration: Callable[[], str]
    """The current configuration as TOML, without secrets; a reload changes it."""
    has_history: Callable[[], bool]
    """Whether changes by operators are recorded."""
    lifecycle: NodeLifecycle
    sizes: Callable[[], Mapping[str, int]]
    """Sizes outside the core; the core's are added."""
    problems: Callable[[], Sequence[str]]
    """Problems of the node itself, for operators."""
    earlier_runs: Callable[[], EarlierRuns]
    """What is known of events before this start."""


class Inspection:
    """Responses from the core's tables, the recent events and the watch hub."""

    def __init__(
        self,
        core: BrokerTables,
        recent: RecentEvents,
        hub: WatchHub,
        *,
        live_queues: LiveQueueQueries,
        clock: Clock,
        node: Node,
    ) -> None:
        self._core = core
        self._recent = recent
        self._hub = hub
        self._live_queues = live_queues
        self._clock = clock
        self._node = node

    # --- brokers ----------------------------------------------------------------------------------------------

    def list_brokers(self, request: wire.ListBrokersRequest) -> wire.ListBrokersResponse:
        """Return one page of replicas with their liveness. Raises ClusterNotFound."""
        refuse_if_any(admin_codec.optional_names(cluster=request.cluster, broker_name=request.broker_name))
        self._refuse_unless_remembered(request.cluster)
        page_size = size_of_page("page_size", request.page_size, default=DEFAULT_BROKERS, most=MAX_BROKERS)
        now, utc_now = self._clock.monotonic(), self._clock.utc_now()
        members = self._core.replicas(cluster=request.cluster, broker_name=request.broker_name)
        rest = itertools.dropwhile(lambda member: not _comes_after(request.page_token, member[1].identity), members)
        response, size = wire.ListBrokersResponse(node=self._node.name), 0
        for group, replica in rest:
            if len(response.brokers) == page_size or size > MAX_PAGE_BYTES:
                last = response.brokers[-1].identity
                response.next_page_token = f"{last.cluster}/{last.broker_name}/{last.broker_id}"
                break
            status = admin_codec.broker_status(self._core, group, replica, now=now, utc_now=utc_now)
            size += status.ByteSize()
            response.brokers.append(status)
        return response

    def list_broker_events(self, request: wire.ListBrokerEventsRequest) -> wire.ListBrokerEventsResponse:
        """Return the last events of a broker name, as many as fit into one message."""
        refuse_if_any(
            itertools.chain(
                admin_codec.optional_names(cluster=request.cluster),
                name_violations("broker_name", request.broker_name),
            )
        )
        records = self._recent.of(request.broker_name, cluster=request.cluster)[-request.limit :]
        events: list[wire.BrokerEvent] = []
        size = 0
        for record in reversed(records):
            if size > MAX_PAGE_BYTES:
                break
            events.append(admin_codec.broker_event(record))
            size += events[-1].ByteSize()
        return wire.ListBrokerEventsResponse(
            events=reversed(events), node=self._node.name, earlier_runs=self.earlier_runs()
        )

    def list_flapping(self, request: wire.ListFlappingRequest) -> wire.ListFlappingResponse:
        """Return brokers by penalty. Raises ClusterNotFound."""
        refuse_if_any(admin_codec.optional_names(cluster=request.cluster))
        self._refuse_unless_remembered(request.cluster)
        limit = size_of_page("limit", request.limit, default=DEFAULT_SCORES, most=MAX_SCORES)
        now = self._clock.monotonic()
        scores = self._core.penalties.top(now=now, cluster=request.cluster, limit=limit)
        return wire.ListFlappingResponse(
            scores=[admin_codec.flap_score(score, now=now) for score in scores],
            node=self._node.name,
            earlier_runs=self.earlier_runs(),
        )

    def earlier_runs(self) -> wire.EarlierRuns.ValueType:
        """Return what is known of events before this start."""
        return admin_codec.to_earlier_runs(self._node.earlier_runs())

    def _refuse_unless_remembered(self, cluster: str) -> None:
        """Raise ClusterNotFound, except for a cluster without brokers that still has a penalty."""
        if not cluster or cluster in self._clusters():
            return
        if not self._core.penalties.top(now=self._clock.monotonic(), cluster=cluster, limit=1):
            raise ClusterNotFound(cluster)

    def _clusters(self) -> set[str]:
        return {*self._core.guard.clusters(), *(key.cluster for key in self._core.routes.groups)}

    async def list_live_queues(
        self, request: wire.ListLiveQueuesRequest, pause: Pause | None = None
    ) -> wire.ListLiveQueuesResponse:
        """Return what agents measured last. Raises ClusterNotFound."""
        return await self._live_queues.answer(request, pause or Slices(self._clock).pause)

    # --- routes -----------------------------------------------------------------------------------------------

    def list_watchers(self, request: wire.ListWatchersRequest) -> wire.ListWatchersResponse:
        """Return the watchers of a topic."""
        refuse_if_any(name_violations("topic", request.topic))
        now = self._clock.monotonic()
        watchers, total = self._hub.watchers(request.topic)
        return wire.ListWatchersResponse(
            watchers=[admin_codec.watcher(facts, now=now) for facts in watchers], total=total, node=self._node.name
        )

    def list_route_digests(self, request: wire.ListRouteDigestsRequest) -> wire.ListRouteDigestsResponse:
        """Return one page of digests. It ends early rather than hold the loop, and does not use the response cache."""
        page_size = size_of_page("page_size", request.page_size, default=DEFAULT_DIGESTS, most=MAX_DIGESTS)
        if request.page_token:
            refuse_if_any(name_violations("page_token", request.page_token))
        response = wire.ListRouteDigestsResponse(
            node=self._node.name, state=broker_codec.node_state(self._node.lifecycle.state)
        )
        names = self._core.routes.known_names()
        begin = bisect.bisect_right(names, request.page_token) if request.page_token else 0
        work = 0
        for topic in itertools.islice(names, begin, None):
            if len(response.digests) == page_size or work >= DIGEST_WORK:
                response.next_page_token = response.digests[-1].topic
                break
            route = self._core.routes.current(topic)
            work += 1 + len(route.groups)
            work += sum(len(mapping.queue_ids) for _, mapping in route.static_mappings) // QUEUES_LIKE_A_GROUP
            digest = route_response(route, boot=self._node.boot).digest
            response.digests.append(wire.RouteDigest(topic=topic, digest=digest))
        return response

    # --- the node ---------------------------------------------------------------------------------------------

    def list_settings(self, request: wire.ListSettingsRequest) -> wire.ListSettingsResponse:
        """Return one page of operators' settings."""
        page_size = size_of_page("page_size", request.page_size, default=DEFAULT_SETTINGS, most=MAX_SETTINGS)
        last, now = admin_codec.setting_token(request.page_token), self._clock.monotonic()
        response, size = wire.ListSettingsResponse(node=self._node.name), 0
        found = settings_of(self._core)
        for key in sorted(key for key in found if last is None or key > last):
            setting = found[key]
            if setting.until is not None and setting.until <= now:
                continue
            if len(response.settings) == page_size or size > MAX_PAGE_BYTES:
                response.next_page_token = admin_codec.to_setting_token(response.settings[-1])
                break
            encoded = admin_codec.setting(key, setting, now=now)
            size += encoded.ByteSize()
            response.settings.append(encoded)
        return response

    def uptime(self) -> float:
        """Return the seconds since the start of this process."""
        return self._clock.monotonic() - self._node.started_at

    def get_node_info(self, _request: wire.GetNodeInfoRequest) -> wire.GetNodeInfoResponse:
        """Return the state of the node."""
        now, node = self._clock.monotonic(), self._node
        clusters = sorted(self._clusters())
        guards, guards_left_out = self._guards(now=now)
        return wire.GetNodeInfoResponse(
            node=node.name,
            version=node.version,
            state=broker_codec.node_state(node.lifecycle.state),
            boot=node.boot,
            uptime=broker_codec.duration(now - node.started_at),
            sizes={**self._core_sizes(clusters), **node.sizes()},
            provisional_brokers=self._core.provisional_count(),
            guards=guards,
            guards_left_out=guards_left_out,
            configuration=node.configuration(),
            complaints=node.problems(),
            earlier_runs=self.earlier_runs(),
            observed=not self._core.hears_brokers,
        )

    def _guards(self, *, now: float) -> tuple[list[wire.GuardStatus], int]:
        """Return the guards that matter, as many as fit into one message, and the number of others.

        A cluster without brokers counts only while an operator's setting or the time after its release keeps its guard
        on.
        """
        if not self._core.hears_brokers:
            return [], 0
        guard = self._core.guard
        with_brokers = {key.cluster for key in self._core.routes.groups}
        found = [guard.status(cluster) for cluster in sorted(self._clusters())]
        special = [each for each in found if each.active or each.mode is not GuardMode.AUTO]
        plain = [
            each for each in found if each.cluster in with_brokers and not each.active and each.mode is GuardMode.AUTO
        ]
        guards: list[wire.GuardStatus] = []
        size = 0
        for status in (*special, *plain):
            if size > MAX_PAGE_BYTES:
                break
            guards.append(admin_codec.guard_status(status, now=now))
            size += guards[-1].ByteSize()
        return sorted(guards, key=lambda each: each.cluster), len(special) + len(plain) - len(guards)

    def _core_sizes(self, clusters: Sequence[str]) -> dict[str, int]:
        core = self._core
        return {
            "clusters": len(clusters),
            "broker_names": len(core.routes.groups),
            "brokers": sum(1 for _ in core.members()),
            "topics": core.routes.topic_count(),
            "kv_entries": len(core.kv),
            "maintenance_windows": len(core.maintenance.windows()),
            "wiped_broker_names": len(core.overrides.wipes),
            "hidden_topics": sum(len(topics) for topics in core.overrides.tombstones.values()),
            "remembered_brokers": len(core.departed),
            "remembered_topics": core.departed.topics,
            "remembered_brokers_dropped": core.departed.dropped,
            "flap_penalties": len(core.penalties),
        }

    def list_kv(self, request: wire.ListKvRequest) -> wire.ListKvResponse:
        """Return the KV configuration, which is bounded to fit into one message."""
        refuse_if_any(admin_codec.optional_names(namespace=request.namespace))
        entries = self._core.kv.entries(request.namespace)
        return wire.ListKvResponse(entries=map(admin_codec.kv_entry, entries), node=self._node.name)

    def list_maintenance(self, _request: wire.ListMaintenanceRequest) -> wire.ListMaintenanceResponse:
        """Return the open windows, which are bounded as well."""
        now = self._clock.monotonic()
        return wire.ListMaintenanceResponse(
            windows=[
                admin_codec.maintenance_window(window, now=now)
                for window in self._core.maintenance.windows()
                if window.until > now
            ],
            node=self._node.name,
        )


def _comes_after(token: str, identity: BrokerIdentity) -> bool:
    """Return whether a broker comes after the last one of the previous page. Raises InvalidRequest for a bad token."""
    if not token:
        return True
    cluster, slash, rest = token.partition("/")
    name, second_slash, broker_id = rest.partition("/")
    if not (slash and second_slash and broker_id.isascii() and broker_id.isdigit() and len(broker_id) <= 10):
        raise InvalidRequest([FieldViolation("page_token", f"invalid page_token: {shown(token)}")])
    return identity[:3] > (cluster, name, int(broker_id))
