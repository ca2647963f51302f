"""The watch hub without sockets: for any sequence of events, its watchers see what is promised."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pointsman.daemon.rpc.calling_peer import Peer
from pointsman.daemon.rpc.handler_table import Ended, Write
from pointsman.daemon.rpc.listeners import LANE
from pointsman.daemon.subscriptions import follow
from pointsman.manual_clock import ManualClock
from pointsman.v1.route_service_pb2 import KnownRoute, Revision, WatchTopicRoutesRequest, WatchTopicRoutesResponse
from pointsman_namesrv import slices
from pointsman_namesrv.config import RoutesConfig
from pointsman_namesrv.core.lifecycle import NodeLifecycle
from pointsman_namesrv.core.liveness import LivenessRules
from pointsman_namesrv.core.model import BrokerIdentity, NodeState, QueueConfig, Registration
from pointsman_namesrv.core.name_server import NameServer
from pointsman_namesrv.core.node_refusals import LimitExceeded
from pointsman_namesrv.node_metrics import Metrics
from pointsman_namesrv.rpc import watch_hub
from pointsman_namesrv.rpc.route_responses import RouteResponses
from pointsman_namesrv.rpc.watch_hub import WatchHub
from tests.chaos.watch_history import GONE, Opened, Record, Seen, Synced, faults

BOOT = 5
TOPICS = ("t0", "t1", "t2")
STEP = 0.05
WARM_UP = 3_600.0


class World:
    """A core, a hub over it, and clients that read when the test allows it."""

    def __init__(
        self, *, max_watchers: int = 100, max_watched: int = 1_000, coalesce: float = STEP, warms: bool = False
    ) -> None:
        self.clock = ManualClock()
        self.metrics = Metrics()
        self.core = NameServer(rules=LivenessRules(), first_generation=1, started_at=0.0)
        self.answers = RouteResponses(self.core.routes, boot=BOOT, max_bytes=2_000, metrics=self.metrics)
        self.lifecycle = NodeLifecycle(started_at=self.clock.now, warm_up_seconds=WARM_UP)
        if not warms:
            self.end_warm_up()
        self.records: list[Record] = []
        self.clients: dict[str, Client] = {}
        self.hub = WatchHub(
            self.core.routes,
            self.answers,
            RoutesConfig(
                watch_coalesce_seconds=coalesce,
                max_watchers=max_watchers,
                max_watched_topics=max_watched,
                max_topics_per_watch=10,
            ),
            lifecycle=self.lifecycle,
            clock=self.clock,
            metrics=self.metrics,
            node="n",
        )
        self.running = asyncio.create_task(self.hub.run())

    def register(self, name: str, topics: dict[str, int], cluster: str = "c1", zone: str = "") -> None:
        queues = {topic: QueueConfig(count, count, 6) for topic, count in topics.items()}
        identity = BrokerIdentity(cluster, name, 0, f"{name}:1")
        self.core.register(Registration(identity=identity, topics=queues, zone=zone), now=self.clock.now)

    def evict(self, name: str) -> None:
        self.core.evict("c1", name, 0, now=self.clock.now, detail={})

    def end_warm_up(self) -> None:
        self.lifecycle.end_warm_up(now=self.clock.now + WARM_UP, still_provisional=0)

    def client(self, name: str) -> Client:
        return self.clients.setdefault(name, Client(name, self))

    def truth(self) -> dict[int, dict[str, str]]:
        held = set(self.core.routes.topic_names())
        return {BOOT: {t: self.answers.current(t).digest.hex() if t in held else GONE for t in TOPICS}}

    async def close(self) -> None:
        for client in self.clients.values():
            await client.close()
        self.running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.running


async def watch(hub: WatchHub, request: WatchTopicRoutesRequest, write: Write, *, peer: Peer) -> None:
    """Watch as a listener does whose streams are tasks."""
    await follow(await hub.watch(request, write, peer=peer), write)


class Client:
    """Connects again with what it knows; ``may_read`` blocks the server's writes to it, as flow control does."""

    def __init__(self, name: str, world: World) -> None:
        self.name = name
        self.world = world
        self.connection = 0
        self.latest: dict[str, Revision] = {}
        self.peer = name
        self.may_read = asyncio.Event()
        self.may_read.set()
        self.task: asyncio.Task[None] | None = None

    async def open(self, topics: tuple[str, ...]) -> None:
        await self.close()
        self.connection += 1
        known = [topic for topic in topics if topic in self.latest]
        self.world.records.append(
            Opened(self.name, self.connection, topics, tuple(known), self.world.lifecycle.state is NodeState.READY)
        )
        request = WatchTopicRoutesRequest(
            topics=[KnownRoute(topic=topic, revision=self.latest.get(topic)) for topic in topics]
        )
        self.task = asyncio.create_task(watch(self.world.hub, request, self.write, peer=Peer(self.name, self.peer)))
        await self.world.clock.advance(0)

    async def write(self, message: bytes) -> None:
        # As on a socket: what is being written when the reader stops is what it reads first.
        await self.may_read.wait()
        await asyncio.sleep(0)
        news = WatchTopicRoutesResponse.FromString(message)
        match news.WhichOneof("news"):
            case "synced":
                self.world.records.append(Synced(self.name, self.connection, news.synced.unchanged))
            case "route":
                self._saw(news.route.topic, news.route.revision)
            case "gone":
                self._saw(news.gone.topic, news.gone.revision)
            case "absent":
                for topic in news.absent.topics:
                    self._saw(topic, news.absent.revision)
            case other:
                raise AssertionError(f"an empty message: {other}")

    def poll(self) -> None:
        """Query every topic, as clients without a watch do; only the times of the responses are kept."""
        for topic in self.world.core.routes.topic_names():
            answer = self.world.answers.current(topic)
            self.latest[topic] = Revision(boot=BOOT, counter=answer.counter, digest=b"polled")

    def _saw(self, topic: str, revision: Revision) -> None:
        known = self.latest.get(topic)
        assert known is None or revision.counter >= known.counter, f"{topic} went back to {revision} from {known}"
        self.latest[topic] = revision
        digest = revision.digest.hex()
        self.world.records.append(Seen(self.name, self.connection, revision.boot, topic, revision.counter, digest))

    async def close(self) -> None:
        if self.task is not None:
            self.task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self.task
            self.task = None


brokers = st.tuples(
    st.just("register"), st.sampled_from("ab"), st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 2))
)
clients = st.tuples(st.just("open"), st.sampled_from("xyz"), st.lists(st.sampled_from(TOPICS), min_size=1, unique=True))
words = st.tuples(st.sampled_from(["close", "poll", "block", "read"]), st.sampled_from("xyz"), st.none())
times = st.tuples(st.sampled_from(["step", "ready"]), st.none(), st.none())


async def play(steps: list[tuple[str, Any, Any]], *, warms: bool) -> None:
    world = World(warms=warms)
    try:
        for word, who, what in steps:
            match word:
                case "register":
                    world.register(who, what)
                case "open":
                    await world.client(who).open(tuple(what))
                case "close":
                    await world.client(who).close()
                case "poll":
                    await world.client(who).close()
                    world.client(who).poll()
                case "block":
                    world.client(who).may_read.clear()
                case "read":
                    world.client(who).may_read.set()
                case "step":
                    await world.clock.advance(STEP)
                case "ready":
                    world.end_warm_up()
            world.hub.check_invariants()
        world.end_warm_up()
        for client in world.clients.values():
            client.may_read.set()
            if client.task is None:
                await client.open(TOPICS)
        await world.clock.advance(2 * STEP)
        assert faults(world.records, world.truth()) == []
    finally:
        await world.close()
    assert world.hub.count == 0
    world.hub.check_invariants()


# Its first state continues after a pause, because the client did not read for a long time.
@example([("block", "y", None), ("register", "a", {"t2": 1}), ("open", "y", ["t2"]), ("step", None, None)], True)
# A watch that is opened while the node warms, for less than a step.
@example([("open", "x", ["t0"]), ("step", None, None), ("open", "x", ["t0", "t1"])], True)
@given(st.lists(st.one_of(brokers, clients, words, times), min_size=3, max_size=40), st.booleans())
def test_every_history_of_watches_keeps_the_promises(steps: list[tuple[str, Any, Any]], warms: bool) -> None:
    asyncio.run(play(steps, warms=warms))


@pytest.fixture
def warms() -> bool:
    """Whether the node of the world is WARMING; a test that needs that sets it."""
    return False


@pytest.fixture
async def world(warms: bool) -> Any:
    """A world that is closed at the end."""
    made = World(max_watchers=2, warms=warms)
    yield made
    await made.close()


async def test_a_blocked_reader_holds_a_slot_a_topic_and_what_is_being_written_and_gets_the_latest(
    world: World,
) -> None:
    world.register("a", {"t0": 1, "t1": 1})
    reader = world.client("x")
    await reader.open(("t0", "t1"))
    reader.may_read.clear()
    for queues in range(2, 30):
        world.register("a", {"t0": queues, "t1": queues})
        await world.clock.advance(STEP)
    ((facts,), _) = world.hub.watchers("t0")
    assert facts.pending == 3
    assert facts.waiting_since == pytest.approx(world.clock.now - 27 * STEP)
    reader.may_read.set()
    await world.clock.advance(STEP)
    assert faults(world.records, {BOOT: world.truth()[BOOT]}) == []
    seen = [record for record in world.records if isinstance(record, Seen)]
    assert len(seen) == 5, "the first state, what was being written, and the latest"


@pytest.mark.parametrize("warms", [True])
async def test_a_route_that_a_warming_node_loses_before_it_was_read_is_not_sent_empty(world: World) -> None:
    world.register("a", {"t0": 1})
    reader = world.client("x")
    await reader.open(("t0",))
    reader.may_read.clear()
    for topics in ({"t0": 2}, {"t0": 3}, {}):
        world.register("a", topics)
        await world.clock.advance(STEP)
    reader.may_read.set()
    await world.clock.advance(STEP)
    world.register("a", {"t0": 4})
    await world.clock.advance(STEP)
    assert reader.task is not None
    assert not reader.task.done()
    assert faults(world.records, {BOOT: world.truth()[BOOT]}) == []


async def test_nothing_is_compared_while_there_are_no_watchers(world: World) -> None:
    world.register("a", {"t0": 1})
    reader = world.client("x")
    await reader.open(("t0",))
    await reader.close()
    await world.clock.advance(2 * STEP)
    assert world.clock._sleepers == []


async def test_one_watcher_too_many_is_refused_without_a_trace(world: World) -> None:
    for name in "xy":
        await world.client(name).open(("t0",))
    await world.client("z").open(("t0",))
    refused = world.client("z").task
    assert refused is not None
    with pytest.raises(LimitExceeded, match="at most 2 watchers"):
        await refused
    world.client("z").task = None
    assert world.hub.count == 2
    world.hub.check_invariants()


async def test_a_failed_write_ends_only_that_watch(world: World) -> None:
    world.register("a", {"t0": 1})
    await world.client("x").open(("t0",))

    async def fail(message: bytes) -> None:
        raise OSError(message)

    request = WatchTopicRoutesRequest(topics=[KnownRoute(topic="t0")])
    with pytest.raises(OSError, match="t0"):
        await watch(world.hub, request, fail, peer=Peer("y", "y"))
    assert world.hub.count == 1
    world.hub.check_invariants()


async def test_a_long_walk_yields_and_then_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (slices, watch_hub):
        monkeypatch.setattr(module, "SLICE_SECONDS", -1.0)
    monkeypatch.setattr(watch_hub, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(watch_hub, "MAX_WAKES", 1)
    world = World()
    world.register("a", dict.fromkeys(TOPICS, 1))
    for name in "xyz":
        await world.client(name).open(TOPICS)
    world.register("a", dict.fromkeys(TOPICS, 2))
    await world.clock.advance(STEP)
    await world.clock.advance(STEP)
    assert faults(world.records, world.truth()) == []
    await world.close()


async def test_a_change_after_a_walk_of_many_seconds_is_found_after_a_second(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    wake = WatchHub._wake

    async def wake_late(hub: WatchHub) -> None:
        await world.clock.sleep(20)
        await wake(hub)

    monkeypatch.setattr(WatchHub, "_wake", wake_late)
    world.register("a", {"t0": 1})
    reader = world.client("x")
    await reader.open(("t0",))
    for queues in (2, 3):
        world.register("a", {"t0": queues})
        await world.clock.advance(watch_hub.LONGEST_PAUSE_SECONDS)
        await world.clock.advance(20)
        assert reader.latest["t0"].digest.hex() == world.truth()[BOOT]["t0"]


async def test_drain_ends_readers_that_wait_and_readers_that_are_stuck(world: World) -> None:
    world.register("a", {"t0": 1})
    waiting, stuck = world.client("x"), world.client("y")
    await waiting.open(("t0",))
    stuck.may_read.clear()
    await stuck.open(("t0",))
    await world.hub.drain()
    for client in (waiting, stuck):
        assert client.task is not None
        with pytest.raises(Ended):
            await client.task
        client.task = None
    assert world.hub.count == 0


@pytest.mark.parametrize("ends", ["client", "server"])
async def test_a_watch_that_has_ended_leaves_no_garbage_cycles(world: World, ends: str) -> None:
    world.register("a", {"t0": 1})
    client = world.client("x")
    gc.collect()
    gc.disable()
    try:
        await client.open(("t0", "t1"))
        world.register("a", {"t0": 2})
        await world.clock.advance(STEP)
        if ends == "server":
            await world.hub.drain()
            assert client.task is not None
            with pytest.raises(Ended):
                await client.task
            client.task = None
        await client.close()
        await asyncio.sleep(0)  # the loop still has the end of the task
        assert not [each for each in gc.get_objects() if isinstance(each, watch_hub.Watcher)]
    finally:
        gc.enable()


# --- bounds ---------------------------------------------------------------------------------------------------


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The topics that a hub checked, in order."""
    seen = list[str]()
    look = WatchHub._check

    def counting(hub: WatchHub, watched: watch_hub._Watched) -> bool:
        seen.append(watched.topic)
        return look(hub, watched)

    monkeypatch.setattr(WatchHub, "_check", counting)
    return seen


async def test_a_change_checks_only_the_topics_that_it_touches(world: World, looks: list[str]) -> None:
    world.register("a", {"t0": 1, "t1": 1})
    world.register("b", {"t2": 1})
    await world.client("x").open((*TOPICS, *(f"absent-{number}" for number in range(7))))
    await world.client("y").open(TOPICS)

    for changed, change in (
        (["t1"], lambda: world.register("a", {"t0": 1, "t1": 2})),
        (["absent-3"], lambda: world.register("a", {"t0": 1, "t1": 2, "absent-3": 1, "unwatched": 1})),
        (["t2"], lambda: world.core.routes.hide_topic("t2")),
        (["t2"], lambda: world.core.routes.set_order_topic("t2", "b:1")),
        (["t0", "t1", "absent-3"], lambda: world.register("a", {"t0": 1, "t1": 2, "absent-3": 1}, zone="z")),
        ([], lambda: world.register("c", {"unwatched": 1})),
        (["t0", "t1", "absent-3"], lambda: world.evict("a")),
    ):
        await world.clock.advance(STEP)
        looks.clear()
        change()
        await world.clock.advance(STEP)
        assert sorted(looks) == sorted(changed)
    await world.clock.advance(STEP)
    world.records[:] = [r for r in world.records if not isinstance(r, Seen) or not r.topic.startswith("absent")]
    latest = {(r.client, r.topic): r.digest for r in world.records if isinstance(r, Seen)}
    assert all(latest[who, topic] == digest for who in "xy" for topic, digest in world.truth()[BOOT].items())


async def test_absent_topics_of_a_first_state_arrive_in_one_message(world: World) -> None:
    world.register("a", {"t0": 1})
    messages = list[WatchTopicRoutesResponse]()

    async def write(message: bytes) -> None:
        messages.append(WatchTopicRoutesResponse.FromString(message))

    names = ["n1", "t0", "n2", "n3"]
    request = WatchTopicRoutesRequest(topics=[KnownRoute(topic=name) for name in names])
    watching = asyncio.create_task(watch(world.hub, request, write, peer=Peer("x", "x")))
    await world.clock.advance(STEP)
    assert [message.WhichOneof("news") for message in messages] == ["route", "absent", "synced"]
    absent = messages[1].absent
    assert list(absent.topics) == ["n1", "n2", "n3"]
    assert (absent.revision.boot, absent.revision.counter) == (BOOT, world.core.routes.change)
    watching.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await watching


async def test_a_topic_that_appears_while_absent_ones_are_sent_is_sent_after_them(world: World) -> None:
    reader = world.client("x")
    reader.may_read.clear()
    await reader.open(TOPICS)
    world.register("a", {"t1": 1})
    await world.clock.advance(STEP)
    reader.may_read.set()
    await world.clock.advance(STEP)
    assert faults(world.records, world.truth()) == []
    assert reader.latest["t1"].digest != b""


async def test_at_the_bound_of_watched_topics_the_largest_watcher_yields_to_smaller_ones() -> None:
    world = World(max_watched=20)
    world.register("a", dict.fromkeys(TOPICS, 1))
    names = tuple(f"n{number}" for number in range(9))
    for client in ("g0", "g1"):
        world.client(client).peer = "greedy"
        await world.client(client).open(names)
    world.client("g2").peer = "greedy"
    await world.client("g2").open(TOPICS)
    assert await refusal(world, "g2") == "topics: this name server allows at most 20 watched_topics, not 21"

    await world.client("honest").open(TOPICS)
    assert "at most 20 watched_topics; this watch was ended" in await refusal(world, "g1")
    assert world.hub.watched_count == 12
    assert world.hub.count == 2
    assert sorted(world.client("honest").latest) == list(TOPICS)
    world.hub.check_invariants()
    await world.close()
    assert (world.hub.count, world.hub.watched_count) == (0, 0)


async def test_at_the_bound_of_watchers_a_watcher_that_does_not_read_is_ended_too() -> None:
    world = World(max_watchers=2)
    world.register("a", {"t0": 1})
    for client in ("g0", "g1"):
        world.client(client).peer = "greedy"
        world.client(client).may_read.clear()
        await world.client(client).open(("t0",))
    await world.client("honest").open(("t0",))
    assert "at most 2 watchers; this watch was ended" in await refusal(world, "g1")
    assert world.client("honest").latest["t0"].digest
    await world.close()


async def refusal(world: World, name: str) -> str:
    """Why a client's watch ended."""
    client = world.client(name)
    assert client.task is not None
    (error,) = await asyncio.gather(client.task, return_exceptions=True)
    client.task = None
    assert isinstance(error, LimitExceeded | Ended)
    return str(error)


WIDE = {f"{'n' * 100}{number}": {"t0": 4, "t1": 4} for number in range(40)}
"""Brokers that make routes larger than what is written without a bound."""


async def test_unread_large_changes_are_dropped_for_a_peer_that_reads() -> None:
    world = World()
    size = _register_wide(world)
    world.hub._bounds["unread_watch_bytes"].bound = 3 * size
    for number in range(3):
        stalled = world.client(f"stalled{number}")
        stalled.peer = "one connection"
        stalled.may_read.clear()
        await stalled.open(("t0",))
    reading = world.client("reading")
    await reading.open(("t0",))
    assert f"at most {3 * size} unread_watch_bytes; this watch was ended" in await refusal(world, "stalled2")
    assert "t0" in reading.latest
    assert world.hub._bounds["unread_watch_bytes"].total == 2 * size
    await world.close()
    world.hub.check_invariants()


async def test_a_watch_waits_for_the_others_of_its_connection_to_read_and_is_ended_after_ten_seconds() -> None:
    world = World()
    world.hub._bounds["unread_watch_bytes"].bound = _register_wide(world) * 3 // 2
    stalled, patient = world.client("stalled"), world.client("patient")
    for client in (stalled, patient):
        client.peer = "one connection"
    stalled.may_read.clear()
    await stalled.open(("t0",))
    await patient.open(("t1",))
    await world.clock.advance(9)
    assert "t1" not in patient.latest
    stalled.may_read.set()
    await world.clock.advance(1)
    assert "t1" in patient.latest

    stalled.may_read.clear()
    world.register("more t0", {"t0": 4})
    await world.clock.advance(1)
    world.register("more t1", {"t1": 4})
    await world.clock.advance(11)
    assert "have not read them for 10 s" in await refusal(world, "patient")
    await world.close()
    world.hub.check_invariants()


async def test_small_changes_are_written_even_with_unread_ones() -> None:
    world = World()
    world.hub._bounds["unread_watch_bytes"].bound = 0
    world.register("a", {"t0": 4})
    client = world.client("a")
    await client.open(("t0",))
    assert "t0" in client.latest
    await world.close()


def _register_wide(world: World) -> int:
    for name, topics in WIDE.items():
        world.register(name, topics)
    size = len(world.answers.current("t0").route)
    assert size > watch_hub.SMALL_MESSAGE_BYTES
    return size


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_the_default_bounds_hold_their_documented_numbers() -> None:
    routes = RoutesConfig().on(LANE)
    world = World(max_watchers=routes.max_watchers, max_watched=routes.max_watched_topics)
    world.hub._max_topics = routes.max_topics_per_watch
    watches = routes.max_watched_topics // routes.max_topics_per_watch
    for number in range(watches):
        client = world.client(str(number))
        client.peer = f"greedy-{number % 40}"
        await client.open(tuple(f"{number}-{name}" for name in range(routes.max_topics_per_watch)))
    assert world.hub.watched_count == routes.max_watched_topics
    await world.client("greedy").open(tuple(f"more-{name}" for name in range(routes.max_topics_per_watch)))
    assert world.hub.watched_count == routes.max_watched_topics
    assert world.hub.count == watches
    (ended,) = [name for name, client in world.clients.items() if client.task is not None and client.task.done()]
    assert f"at most {routes.max_watched_topics} watched_topics" in await refusal(world, ended)
    await world.close()


async def test_a_topic_may_be_watched_by_many_clients(world: World) -> None:
    hub = world.hub
    hub._bounds["watchers"].bound = 100
    world.register("a", {"t0": 1}, zone="z3")
    seen = dict[str, list[str]]()

    async def open_at(zone: str, number: int) -> asyncio.Task[None]:
        async def write(message: bytes) -> None:
            news = WatchTopicRoutesResponse.FromString(message)
            seen.setdefault(zone, []).append(str(news.WhichOneof("news")))

        request = WatchTopicRoutesRequest(topics=[KnownRoute(topic="t0")], zone=zone)
        peer = Peer(f"{zone}-{number}", f"{zone}-{number}")
        task = asyncio.create_task(watch(hub, request, write, peer=peer))
        await world.clock.advance(0)
        return task

    tasks = [await open_at(f"z{zone}", number) for zone in range(2 * watch_hub.FEW) for number in range(6)]
    hub.check_invariants()
    world.register("a", {"t0": 2}, zone="z3")
    await world.clock.advance(STEP)
    assert {zone: news.count("route") for zone, news in seen.items()} == {
        f"z{zone}": 12 if zone == 3 else 6 for zone in range(2 * watch_hub.FEW)
    }
    for task in tasks:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        hub.check_invariants()
    assert len(hub._watched) == 0
