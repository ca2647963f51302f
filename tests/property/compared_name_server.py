"""A name server and its oracle: the calls to both, and what must agree after any call."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pointsman_namesrv.core import route_table
from pointsman_namesrv.core.events import Event, EventKind
from pointsman_namesrv.core.group import MemberView
from pointsman_namesrv.core.guard import GuardRules
from pointsman_namesrv.core.lifecycle import NodeLifecycle
from pointsman_namesrv.core.liveness import LivenessRules
from pointsman_namesrv.core.model import (
    DataVersion,
    Evidence,
    Health,
    Position,
    ProbeVerdict,
    QueueConfig,
)
from pointsman_namesrv.core.name_server import NameServer
from pointsman_namesrv.core.node_refusals import TopicNotFound
from pointsman_namesrv.core.staging import Staging
from tests.property.naive_model import GRACE, HAND_OVER, Oracle

CLUSTERS = ("c1", "c2")
WARM_UP = 60.0
TOPIC_NAMES = ("t1", "t2", "t3", "t4", "t5")
SWAP_SIZE = route_table.TOPICS_PER_STEP

NOT_COMPARED = {EventKind.TOPICS, EventKind.HEARTBEATS}


def shown(events: Iterable[Event]) -> list[Any]:
    """Return events in the oracle's form, sorted: the order of two clusters has no meaning."""
    return sorted((shown_event(event) for event in events if event.kind not in NOT_COMPARED), key=repr)


def shown_event(event: Event) -> Any:
    about = event.broker.identity if event.broker else event.group
    head = (event.kind.value, about and tuple(about), event.reason and event.reason.value)
    if event.broker:
        state = event.broker.state
        return (*head, state.phase.value, state.planned, event.broker.state_for)
    if "lost" in event.detail:
        counts = (event.detail[word] for word in ("lost", "baseline", "up"))
        return (*head, *counts, event.detail.get("active_seconds", 0.0))
    return head


def in_order(answer: Any) -> Any:
    """Return an answer of the oracle with its events sorted."""
    if isinstance(answer, tuple) and answer and isinstance(answer[-1], list):
        return (*answer[:-1], sorted(answer[-1], key=repr))
    return sorted(answer, key=repr) if isinstance(answer, list) else answer


def shown_view(view: MemberView) -> tuple[int, str, str, str]:
    return (view.min_broker_id, view.min_broker_addr, view.master_addr, view.ha_addr)


def health_of(probe: str, ever_passed: bool | None) -> Health:
    if probe == "REFUSED":
        return Health(ProbeVerdict.FAILING, evidence=Evidence.STRONG, ever_passed=ever_passed)
    return Health(ProbeVerdict(probe), ever_passed=ever_passed)


def health_facts(health: Health) -> dict[str, Any]:
    return {"probe": health.verdict.value, "evidence": health.evidence.value, "ever_passed": health.ever_passed}


def queue_configs(topics: Any) -> dict[str, QueueConfig]:
    return {topic: QueueConfig(queues, queues, perm) for topic, (queues, perm) in topics.items()}


class ComparedNameServer(RuleBasedStateMachine):
    """The core and the oracle, with one clock. Results of calls and everything visible must be equal."""

    now: float
    guard_rules: Any

    def begin(self, first: int, *, warming: bool = False) -> None:
        self.lifecycle = NodeLifecycle(started_at=self.now, warm_up_seconds=WARM_UP)
        if not warming:
            self.be_ready()
        self.core = NameServer(
            rules=LivenessRules(stream_grace=GRACE, hand_over=HAND_OVER),
            guard_rules=GuardRules(**self.guard_rules),
            first_generation=first,
            started_at=self.now,
            lifecycle=self.lifecycle,
        )
        self.oracle = Oracle(now=self.now, first_generation=first, **self.guard_rules)
        self.arriving: list[tuple[Any, Staging, list[str]]] = []
        self.windows: dict[Any, float] = {}
        self.history: dict[Position, tuple[DataVersion, dict[str, QueueConfig]]] = {}
        self.routes_at: dict[Any, Any] = {}
        self.last_counter: dict[str, int] = {}
        self.absent_at: dict[Any, int] = {}

    @precondition(lambda self: not self.lifecycle.is_warmed_up)
    @rule()
    def be_ready(self) -> None:
        self.lifecycle.end_warm_up(now=self.now + WARM_UP, still_provisional=0)

    def teardown(self) -> None:
        if hasattr(self, "core"):
            self.core.check_invariants()
        route_table.TOPICS_PER_STEP = SWAP_SIZE

    def expect(self, answer: Any, **call: Any) -> None:
        given, expected = in_order(answer), in_order(self.oracle.answer({"now": self.now, **call}))
        assert given == expected, f"{call['call']}: {given} is not {expected}"

    def take(self, events: Iterable[Event]) -> list[Any]:
        """Follow the topic sets as a reader of the history does: a delta starts from the version recorded before."""
        before = dict(self.history)
        for event in events:
            if event.broker is None:
                continue
            position = event.broker.identity.position
            _, topics = self.history.get(position, (None, {}))
            if event.topics is not None:
                if event.topics.base is None:
                    topics = {}
                else:
                    assert event.topics.base == before[position][0]
                    assert not event.topics.changed.keys() & set(event.topics.removed)
                    assert set(event.topics.removed) <= topics.keys()
                kept = {topic: queues for topic, queues in topics.items() if topic not in event.topics.removed}
                topics = {**kept, **event.topics.changed}
            assert event.broker.data_version is not None
            self.history[position] = (event.broker.data_version, topics)
        return shown(events)

    # --- what must agree --------------------------------------------------------------------------------------

    @invariant()
    def everything_visible_agrees(self) -> None:
        if not hasattr(self, "core"):
            return
        if route_table.TOPICS_PER_STEP == SWAP_SIZE:
            self.core.check_invariants()
        brokers = [
            (
                tuple(r.identity),
                (r.state.phase.value, r.state.reason and r.state.reason.value, r.state.planned),
                r.generation,
            )
            for _, r in self.core.replicas()
        ]
        assert brokers == self.oracle.brokers()
        assert sorted(self.core.addresses.shared) == self.oracle.shared_addrs()
        for cluster in CLUSTERS:
            status = self.core.guard.status(cluster)
            is_overdue = cluster in self.core.guard.overdue()
            seen = (status.mode.value, status.active, status.lost, status.baseline, status.up, is_overdue)
            assert seen == self.oracle.guard_seen(cluster)
        for cluster in ("", *CLUSTERS):
            expected = self.oracle.routes(cluster)
            assert self.core.routes.topic_names(cluster) == sorted(expected)
            for topic, route in expected.items():
                assert self.route(topic, cluster) == [route, self.oracle.orders.get(topic, "")]
        for topic, route in self.oracle.routes(zone="z1").items():
            assert self.route(topic, zone="z1") == [route, self.oracle.orders.get(topic, "")]

    def route(self, topic: str, cluster: str = "", zone: str = "") -> Any:
        route = self.core.routes.route(topic, cluster=cluster, zone=zone)
        groups = [
            (
                tuple(key),
                (queues.read_queue_nums, queues.perm),
                [(r.identity.broker_id, r.identity.addr, r.state.phase.value) for r in group.routed()],
            )
            for (key, queues), group in zip(route.queues, route.groups, strict=True)
        ]
        return [groups, route.order_topic_conf]

    @invariant()
    def a_visible_change_moves_the_revision(self) -> None:
        """Within a boot, the same counter also means the same route."""
        if not hasattr(self, "core"):
            return
        routes = self.core.routes
        for topic in TOPIC_NAMES:
            counter = routes.counter(topic)
            if counter is not None:
                assert counter >= self.last_counter.get(topic, 0)
                assert counter <= routes.change
                self.last_counter[topic] = counter
            for cluster in ("", *CLUSTERS):
                try:
                    route = self.route(topic, cluster)
                    assert routes.route(topic, cluster=cluster).counter == counter
                except TopicNotFound:
                    self.absent_at[topic, cluster] = routes.change
                    continue
                assert counter is not None
                assert counter > self.absent_at.pop((topic, cluster), -1)
                assert self.routes_at.setdefault((topic, cluster, counter), route) == route

    @invariant()
    def the_history_has_each_topic_set(self) -> None:
        if not hasattr(self, "core"):
            return
        for _, replica in self.core.replicas():
            assert self.history[replica.identity.position][1] == replica.registration.topics
