"""Compares the routes and settings of other name servers with this one's, as ``pointsmanctl diff`` compares two."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import grpc

from pointsman.clock import Clock
from pointsman.v1 import admin_service_pb2 as wire
from pointsman.v1 import admin_service_pb2_grpc, route_service_pb2, route_service_pb2_grpc
from pointsman.wire.channel_opener import ChannelOpener
from pointsman.wire.channel_options import CHANNEL_OPTIONS, KEEPALIVE_OPTIONS
from pointsman.wire.json_document import Document, enum_name
from pointsman.wire.operator_texts import counted
from pointsman.wire.refusals import NotReady, Refusal
from pointsman.wire.wire_time import seconds_of
from pointsman_namesrv.config import PeersConfig
from pointsman_namesrv.core.model import Position
from pointsman_namesrv.core.name_server import NameServer
from pointsman_namesrv.core.replica_state import Phase
from pointsman_namesrv.node_metrics import Metrics
from pointsman_namesrv.rpc.inspection import Inspection

WAIT_FOR_EACH_SECOND = 20.0
"""Pause before the next comparison, as a multiple of the last one's time: digests use the loops of both servers."""
PEER_PAGE = 1_000
OWN_PAGE = 200
"""Own digests computed in one step: 3 ms of the loop."""
WHOLE_SECONDS = 120.0
"""Limit of one comparison; ``timeout_seconds`` limits each of its calls."""
MAX_PAGES = 10_000
MAX_SETTING_PAGES = 500
MOST_NAMED = 5
LONGEST_DETAIL = 200
SAME_WITHIN_SECONDS = 60.0
"""A change reaches the servers one after the other, and each measures the remaining time itself."""
EQUAL = {"EQUAL": 1.0, "SELF": 1.0, "DIFFERS": 0.0}
PROBLEM_AFTER = 2
"""Comparisons in a row before a problem is reported: after a change, name servers differ for some seconds."""

NOT_ROUTED = "NOT ROUTED"
SELF = "SELF"
UNKNOWN = "UNKNOWN"

Setting = tuple[str, float | None]


@dataclass(slots=True)
class PeerResult:
    """Result of the last comparison with one name server."""

    addr: str
    result: str = "NOT_COMPARED"
    """NOT_COMPARED, SELF, EQUAL, DIFFERS or UNREACHABLE."""
    node: str = ""
    node_state: str = ""
    topics: int = 0
    """Topics of both together."""
    differing: int = 0
    """Topics with different digests, or only on one of the two."""
    named: Sequence[str] = ()
    """The first of these topics, and settings that differ."""
    settings: int = 0
    """Operators' settings that differ."""
    detail: str = ""
    """Why it is unreachable."""
    checked_at: float | None = None
    in_a_row: int = 0
    """Consecutive comparisons with this result."""
    brokers: Mapping[Position, str] | None = None
    """Brokers that are not UP there, with their state; NOT_ROUTED: registered here, but not in the routes there.
    None: it does not serve routes."""
    unrouted: Sequence[Position] = ()
    """Brokers that are UP here, and not in the routes there."""
    is_unknown: bool = False
    """Whether the state of each broker there is UNKNOWN at the moment."""

    def to_document(self, *, now: float) -> Document:
        """Return the JSON document."""
        return {
            "addr": self.addr,
            "result": self.result,
            "node": self.node,
            "nodeState": self.node_state or None,
            "topics": self.topics,
            "differingTopics": self.differing,
            "differingSettings": self.settings,
            "differing": list(self.named),
            "detail": self.detail,
            "checkedSecondsAgo": None if self.checked_at is None else now - self.checked_at,
        }

    def problems(self) -> Iterator[str]:
        """Yield the problems, once they are more than a change in progress."""
        if self.in_a_row < PROBLEM_AFTER or self.checked_at is None:
            return
        if self.result == "UNREACHABLE":
            yield f"Name server {self.addr} is unreachable from here: {self.detail}."
        if self.result == "DIFFERS":
            what = f"{self.differing} of {counted(self.topics, 'topic')} and {counted(self.settings, 'setting')}"
            yield f"Name server {self.addr} differs in {what}: see pointsmanctl diff."
        if self.result == "DIFFERS" and self.unrouted:
            more = len(self.unrouted) - MOST_NAMED
            names = ", ".join(map(str, self.unrouted[:MOST_NAMED])) + (f" and {more} more" if more > 0 else "")
            yield f"Name server {self.addr} does not route brokers that are UP here: {names}."


@dataclass(slots=True)
class _Difference:
    topics: int = 0
    differing: int = 0
    settings: int = 0
    named: list[str] = field(default_factory=list)

    def name(self, what: str) -> None:
        if len(self.named) < MOST_NAMED:
            self.named.append(what)


class PeerComparison:
    """Compares with the name servers of ``[peers]``, one after the other, while :meth:`run` runs."""

    def __init__(
        self,
        config: PeersConfig,
        own: Inspection,
        *,
        core: NameServer,
        boot: int,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._config = config
        self._own = own
        self._core = core
        self._boot = boot
        self._clock = clock
        self._opener = ChannelOpener(config.credentials)
        self._metrics = metrics
        self.results = [PeerResult(addr) for addr in config.name_servers]

    async def run(self) -> None:
        """Compare until cancelled, with the credentials' current files. Returns if there are no peers."""
        if self.results:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._opener.follow(self._clock, on_reload=lambda _: None))
                tasks.create_task(self._keep_comparing())

    async def _keep_comparing(self) -> None:
        while True:
            began = self._clock.monotonic()
            for index, before in enumerate(self.results):
                now = await self._check(before.addr)
                now.in_a_row = before.in_a_row + 1 if now.result == before.result else 1
                now.checked_at = self._clock.monotonic()
                self.results[index] = now
                self._metrics.peer_equal.labels(now.addr).set(EQUAL.get(now.result, math.nan))
            took = self._clock.monotonic() - began
            await self._clock.sleep(max(self._config.poll_seconds, WAIT_FOR_EACH_SECOND * took))

    async def _check(self, addr: str) -> PeerResult:
        try:
            async with (
                asyncio.timeout(WHOLE_SECONDS),
                self._opener.open(addr, (*CHANNEL_OPTIONS, *KEEPALIVE_OPTIONS)) as channel,
            ):
                found = await self._compare(addr, admin_service_pb2_grpc.AdminServiceStub(channel))
                if found.result != SELF:
                    await self._add_brokers(found, route_service_pb2_grpc.RouteServiceStub(channel))
                return found
        except TimeoutError:
            detail = f"the comparison took longer than {WHOLE_SECONDS:g} s"
        except grpc.aio.AioRpcError as error:
            # The last of gRPC's chain of causes: "Connection refused".
            cause = (error.details() or "").rpartition(": ")[2]
            detail = f"{error.code().name}: {cause}"[:LONGEST_DETAIL]
        except Refusal as error:  # raised here, for a page of the peer
            detail = f"its pages of digests cannot be read: {error}"[:LONGEST_DETAIL]
        return PeerResult(addr, "UNREACHABLE", detail=detail)

    async def _compare(self, addr: str, peer: admin_service_pb2_grpc.AdminServiceAsyncStub) -> PeerResult:
        info = await peer.GetNodeInfo(wire.GetNodeInfoRequest(), timeout=self._config.timeout_seconds)
        node, state = info.node[:LONGEST_DETAIL], enum_name(info, "state")
        if info.boot == self._boot:
            return PeerResult(addr, SELF, node, state)
        found = _Difference()
        await self._compare_settings(peer, found)
        await self._compare_digests(peer, found)
        is_equal = not (found.differing or found.settings)
        return PeerResult(
            addr,
            "EQUAL" if is_equal else "DIFFERS",
            node,
            state,
            topics=found.topics,
            differing=found.differing,
            settings=found.settings,
            named=found.named,
        )

    async def _add_brokers(self, found: PeerResult, peer: route_service_pb2_grpc.RouteServiceAsyncStub) -> None:
        """Note the brokers whose state is not UP there."""
        request = route_service_pb2.GetClusterInfoRequest()
        try:
            info = await peer.GetClusterInfo(request, timeout=self._config.timeout_seconds)
        except grpc.aio.AioRpcError:
            return  # it is DRAINING, or has more brokers than a message holds
        states = dict[Position, str]()
        for cluster in info.clusters:
            for data in cluster.broker_datas:
                for replica in data.replicas:
                    position = Position(data.cluster, data.broker_name, replica.broker_id)
                    states[position] = enum_name(replica, "state")
            await self._clock.sleep(0)
        differing, unrouted = dict[Position, str](), list[Position]()
        for number, (_, own) in enumerate(list(self._core.members())):
            position = own.identity.position
            state = states.get(position, NOT_ROUTED)
            if state != Phase.UP.value:
                differing[position] = state
            if state == NOT_ROUTED and own.state.phase is Phase.UP:
                unrouted.append(position)
            if number % OWN_PAGE == 0:
                await self._clock.sleep(0)
        found.brokers, found.unrouted = differing, sorted(unrouted)

    async def _compare_digests(self, peer: admin_service_pb2_grpc.AdminServiceAsyncStub, found: _Difference) -> None:
        """Compare page by page, so that only one page of each is in memory."""
        last = ""
        for _ in range(MAX_PAGES):
            request = wire.ListRouteDigestsRequest(page_size=PEER_PAGE, page_token=last)
            page = await peer.ListRouteDigests(request, timeout=self._config.timeout_seconds)
            theirs = {each.topic: each.digest for each in page.digests}
            ours = await self._own_digests(last, page.next_page_token)
            found.topics += len(ours.keys() | theirs.keys())
            for topic in sorted(ours.keys() | theirs.keys()):
                if ours.get(topic) != theirs.get(topic):
                    found.differing += 1
                    found.name(topic[:LONGEST_DETAIL])
            if not page.next_page_token:
                return
            if page.next_page_token <= last:
                break
            last = page.next_page_token
        raise NotReady("there are too many pages")

    async def _own_digests(self, after: str, end: str) -> Mapping[str, bytes]:
        """Return digests of the topics after one, up to another; an empty ``end``: to the last."""
        found: dict[str, bytes] = {}
        token = after
        while True:
            page = self._own.list_route_digests(wire.ListRouteDigestsRequest(page_size=OWN_PAGE, page_token=token))
            for each in page.digests:
                if end and each.topic > end:
                    return found
                found[each.topic] = each.digest
            token = page.next_page_token
            if not token:
                return found
            await self._clock.sleep(0)

    async def _compare_settings(self, peer: admin_service_pb2_grpc.AdminServiceAsyncStub, found: _Difference) -> None:
        ours, theirs = dict[tuple[str, ...], Setting](), dict[tuple[str, ...], Setting]()
        for settings, of_peer in ((ours, False), (theirs, True)):
            token = ""
            for _ in range(MAX_SETTING_PAGES):
                request = wire.ListSettingsRequest(page_token=token)
                if of_peer:
                    page = await peer.ListSettings(request, timeout=self._config.timeout_seconds)
                else:
                    page = self._own.list_settings(request)
                for each in page.settings:
                    left = seconds_of(each.remaining) if each.HasField("remaining") else None
                    settings[(each.kind, *each.name)] = each.value, left
                if not (token := page.next_page_token):
                    break
        for key in sorted(ours.keys() | theirs.keys()):
            if not _is_same(ours.get(key), theirs.get(key)):
                found.settings += 1
                found.name(" ".join((key[0].lower().replace("_", " "), *key[1:]))[:LONGEST_DETAIL])


def _is_same(one: Setting | None, other: Setting | None) -> bool:
    if one is None or other is None or one[0] != other[0]:
        return False
    if one[1] is None or other[1] is None:
        return one[1] is other[1]
    return abs(one[1] - other[1]) <= SAME_WITHIN_SECONDS
