"""The pages and ``/v1`` of an observer: those of a name server, of the fleet as all observed ones list it together."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import overload

from pointsman.clock import Clock
from pointsman.wire.json_document import Document
from pointsman.wire.operator_texts import duration_text
from pointsman.wire.refusals import Refusal
from pointsman_namesrv.core.live_queues import LiveQueueReports
from pointsman_namesrv.core.model import Position
from pointsman_namesrv.history.past_worker_link import PastWorkerLink
from pointsman_namesrv.history.startup_memory import EarlierRuns
from pointsman_namesrv.node_metrics import Metrics
from pointsman_namesrv.observe.listings import Listings
from pointsman_namesrv.observe.observed_node import CACHE_BYTES, WATCHERS, ObservedNode
from pointsman_namesrv.observe.whole_fleet import WholeFleet
from pointsman_namesrv.rpc.inspection import Inspection, Node
from pointsman_namesrv.rpc.live_queue_queries import LiveQueueQueries
from pointsman_namesrv.rpc.past_queries import PastQuestions
from pointsman_namesrv.rpc.route_responses import RouteResponses
from pointsman_namesrv.rpc.routes import RouteServicer
from pointsman_namesrv.rpc.watch_hub import WatchHub
from pointsman_namesrv.web import fleet_documents, page_documents, status_document
from pointsman_namesrv.web.fleet_documents import Fleet
from pointsman_namesrv.web.loop_documents import LoopDocuments, Pause, Query
from pointsman_namesrv.web.page_documents import PageSources
from pointsman_namesrv.web.past_source import PastSource
from pointsman_namesrv.web.peer_comparison import PeerResult

WATCHED, UNREACHABLE, MISSING = "WATCHED", "UNREACHABLE", "MISSING"


@dataclass(slots=True)
class ObservedPeer(PeerResult):
    """One observed name server beside the others: a column of the pages."""

    away_seconds: float | None = None
    """How long it has not been watched; None: it is."""
    listed: int | None = None
    """Brokers that it lists; None: unknown."""
    missing: Sequence[str] = ()
    """Descriptions of brokers that others list."""
    missing_count: int = 0

    def to_document(self, *, now: float) -> Document:
        """Return the JSON document; what only a comparison of two name servers of ours shows is null."""
        unknown = dict.fromkeys(("topics", "differingTopics", "differingSettings", "differing"))
        return {
            **super(ObservedPeer, self).to_document(now=now),
            **unknown,
            "brokers": self.listed,
            "missingBrokers": None if self.listed is None else self.missing_count,
            "notWatchedSeconds": self.away_seconds,
        }

    def problems(self) -> Iterator[str]:
        """Yield what is wrong there."""
        if self.away_seconds is not None:
            yield (
                f"Name server {self.addr} has not been watched for {duration_text(self.away_seconds)}: {self.detail}. "
                "The state of its brokers is unknown."
            )
        for text in self.missing:
            yield f"Missing at name server {self.addr}: {text}."


class ObservedPeers(Sequence[PeerResult]):
    """All observed name servers as they are when they are read."""

    def __init__(self, nodes: Mapping[str, ObservedNode], listings: Listings, *, clock: Clock) -> None:
        self._nodes = nodes
        self._listings = listings
        self._clock = clock

    def __len__(self) -> int:
        return len(self._nodes)

    @overload
    def __getitem__(self, index: int) -> PeerResult: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[PeerResult]: ...
    def __getitem__(self, index: int | slice) -> PeerResult | Sequence[PeerResult]:
        """Return one, or some."""
        nodes = list(self._nodes.values())
        if isinstance(index, slice):
            return [self._peer(node) for node in nodes[index]]
        return self._peer(nodes[index])

    def _peer(self, node: ObservedNode) -> PeerResult:
        now, server = self._clock.monotonic(), node.server
        away, listing = server.away(now=now), self._listings.by_addr[server.addr]
        if away is not None:
            seconds, problem = away
            return ObservedPeer(
                server.addr,
                UNREACHABLE,
                detail=problem,
                node=server.addr,
                checked_at=now,
                brokers={},
                is_unknown=True,
                away_seconds=seconds,
            )
        states: Mapping[Position, str] = dict.fromkeys(listing.missing, MISSING)
        return ObservedPeer(
            server.addr,
            WATCHED,
            node=server.addr,
            checked_at=now,
            brokers=states,
            listed=len(listing.brokers or ()),
            missing=self._listings.missing_at(server.addr, now=now),
            missing_count=len(listing.missing),
        )


OF_TOPICS = frozenset({"routes", "page topics", "page topic"})


def observer_documents(
    sources: PageSources, nodes: Mapping[str, ObservedNode], refuse_unless_walked: Callable[[], None]
) -> LoopDocuments:
    """Return the documents of an observer of these name servers. Must run in its event loop.

    ``refuse_unless_walked`` raises NotReady while no topics are known.
    """
    whole = sources.fleet
    status = partial(
        status_document.status, version=sources.version, peers=sources.peers, report_url=sources.report_url
    )
    builds: dict[str, Callable[[Query, Pause], Awaitable[object]]] = {
        "status": partial(status, whole),
        "brokers": partial(_of_each, nodes, fleet_documents.brokers),
        "clusters": partial(fleet_documents.clusters, whole),
        "routes": partial(fleet_documents.route, whole),
        "events": partial(_of_each, nodes, fleet_documents.events),
        **{kind: partial(collect, sources) for kind, collect in page_documents.BUILDS.items()},
    }

    async def build(query: Query, pause: Pause) -> object:
        if query.kind in OF_TOPICS:
            refuse_unless_walked()
        try:
            return await builds[query.kind](query, pause)
        except Refusal as refusal:
            raise whole.as_known_now(refusal) from None

    return LoopDocuments(build, clock=whole.clock, slow=page_documents.SLOW)


async def _of_each(
    watched: Mapping[str, ObservedNode],
    document: Callable[[Fleet, Query, Pause], Awaitable[object]],
    query: Query,
    pause: Pause,
) -> object:
    """Return the documents of all name servers as one, as ``pointsmanctl`` does; one that is not watched is an error.

    Raises the refusal of the first if none has a document.
    """
    nodes: list[object] = []
    refusals: list[Refusal] = []
    fleets = [node.fleet for node in watched.values()]
    for fleet in fleets:
        try:
            found = await document(fleet, query, pause)
        except Refusal as refusal:
            refusals.append(refusal)
            error = {"code": refusal.code, "message": str(refusal), "hint": ""}
            nodes.append({"addr": fleet.addr, "error": error})
        else:
            assert isinstance(found, dict)  # noqa: S101  # a document
            nodes += found["nodes"]
    if refusals and len(refusals) == len(fleets):
        raise refusals[0]
    return {"nodes": nodes}


class ObserverPages:
    """Everything that the pages of an observer are made of. Must be made in the event loop."""

    def __init__(
        self,
        whole: WholeFleet,
        nodes: Mapping[str, ObservedNode],
        listings: Listings,
        past: PastWorkerLink,
        *,
        name: str,
        observe_addr: str,
        version: str,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        """``observe_addr``: for commands; empty: gRPC is off."""
        self._whole = whole
        self._nodes = nodes
        started_at, boot = clock.monotonic(), secrets.randbits(64)
        unix_offset = clock.utc_now().timestamp() - started_at
        routes, lifecycle = whole.brokers.routes, whole.lifecycle
        responses = RouteResponses(routes, boot=boot, max_bytes=CACHE_BYTES, metrics=metrics, unix_offset=unix_offset)
        # Clients watch at one name server; of all together there are no watches.
        hub = WatchHub(routes, responses, WATCHERS, lifecycle=lifecycle, clock=clock, metrics=metrics, node=name)
        live = LiveQueueQueries(whole.brokers, LiveQueueReports(), clock=clock, metrics=metrics, node=name)
        node = Node(
            name=name,
            version=version,
            boot=boot,
            started_at=started_at,
            configuration=lambda: "",
            has_history=lambda: True,
            lifecycle=lifecycle,
            sizes=dict,
            problems=lambda: (),
            earlier_runs=self._earlier_runs,
        )
        fleet = Fleet(
            core=whole.brokers,
            recent=whole.recent,
            admin=Inspection(whole.brokers, whole.recent, hub, live_queues=live, clock=clock, node=node),
            routes=RouteServicer(whole.brokers, responses, hub, lifecycle=lifecycle, clock=clock, metrics=metrics),
            lifecycle=lifecycle,
            clock=clock,
            addr=name,
            node=name,
        )
        sources = PageSources(
            fleet=fleet,
            live=live,
            hub=hub,
            stream_count=lambda: 0,
            rocketmq=None,
            version=version,
            peers=ObservedPeers(nodes, listings, clock=clock),
            report_url="",
            broker_url="",
            runbook_url="",
            observes=tuple(nodes),
            observer_servers=(observe_addr,) if observe_addr else (),
        )
        self.documents = observer_documents(sources, nodes, self._refuse_unless_walked)
        self.past = PastSource(past.ask, PastQuestions(clock), sources.node)

    def _earlier_runs(self) -> EarlierRuns:
        states = {node.memory.state for node in self._nodes.values()}
        worst = (EarlierRuns.READING, EarlierRuns.FAILED, EarlierRuns.READ)
        return next((state for state in worst if state in states), EarlierRuns.OFF)

    def _refuse_unless_walked(self) -> None:
        """Raise NotReady while the topics of no name server are known."""
        servers = [node.server for node in self._nodes.values()]
        if servers and all(server.topics_walked_at is None for server in servers):
            raise servers[0].topics_refusal()
