"""The core against the naive model, over any history of registrations, beats, breaks, leaves, time and restarts."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, multiple, rule

from namesrv.core.errors import IdentityHeld, TopicNotFound
from namesrv.core.events import Event, Reason
from namesrv.core.group import MemberView
from namesrv.core.liveness import LivenessRules
from namesrv.core.model import BrokerIdentity, DataVersion, Health, ProbeVerdict, QueueConfig, Registration
from namesrv.core.name_server import NameServer
from tests.property.naive_model import GRACE, HAND_OVER, Call, replay

WHO = st.tuples(
    st.sampled_from(["c1", "c2"]),
    st.sampled_from(["a", "b"]),
    st.sampled_from([0, 0, 1, 2]),
    st.sampled_from(["h1:1", "h2:1", "h3:1"]),
)
TOPICS = st.dictionaries(
    st.sampled_from(["t1", "t2", "t3"]), st.tuples(st.integers(0, 8), st.sampled_from([2, 4, 6])), max_size=3
)
VERSION = st.tuples(st.integers(0, 2), st.just(0), st.integers(1, 2))
PROBE = st.sampled_from(["UNKNOWN", "UNKNOWN", "PASSING", "FAILING"])
PACE = st.sampled_from([(30.0, 120.0), (30.0, 120.0), (1.0, 4.0), (10.0, 300.0)])
TIMES = st.sampled_from([0.5, 1.0, 4.0, 10.0, 10.5, 15.0, 30.0, 45.0, 45.5, 60.0, 60.5, 75.0, 75.5, 120.0, 120.5])


def shown(events: tuple[Event, ...]) -> list[Any]:
    return [(e.kind.value, tuple(e.broker.identity), e.reason and e.reason.value) for e in events if e.broker]


def told(view: MemberView) -> tuple[int, str, str, str]:
    return (view.min_broker_id, view.min_broker_addr, view.master_addr, view.ha_addr)


class NameServerMachine(RuleBasedStateMachine):
    """Every rule makes one call of both; answers and everything visible must agree."""

    held = Bundle("held")
    """Who registered once, with which generation and version: fresh or stale by now."""

    @initialize(first=st.integers(1, 5))
    def start(self, first: int) -> None:
        self.now = 1_000.0
        self.begin(first)

    def begin(self, first: int) -> None:
        rules = LivenessRules(stream_grace=GRACE, hand_over=HAND_OVER)
        self.core = NameServer(rules=rules, first_generation=first, started_at=self.now)
        self.calls: list[Call] = [{"now": self.now, "first_generation": first}]

    def expect(self, answer: Any, **call: Any) -> None:
        self.calls.append({"now": self.now, **call})
        model, answers = replay(self.calls)
        assert answer == answers[-1]
        self.model = model

    @rule(
        target=held,
        who=WHO,
        topics=TOPICS,
        version=VERSION,
        probe=PROBE,
        pace=PACE,
        acting=st.sampled_from([True, True, False]),
        incarnation=st.sampled_from(["", "i1", "i2"]),
    )
    def register(self, **facts: Any) -> Any:
        return self.claim(**facts)

    @rule(target=held, known=held, topics=TOPICS, probe=PROBE, broker_id=st.sampled_from([None, 0, 1]))
    def register_again(self, known: Any, topics: Any, probe: str, broker_id: int | None) -> Any:
        """The same address again: unchanged, changed, or in another role."""
        who = known["who"] if broker_id is None else (*known["who"][:2], broker_id, known["who"][3])
        return self.claim(**{**known, "who": who, "topics": topics, "probe": probe})

    def claim(
        self, *, who: Any, topics: Any, version: Any, probe: str, pace: Any, acting: bool, incarnation: str, **_: Any
    ) -> Any:
        ha = f"{who[3]}1"
        registration = Registration(
            identity=BrokerIdentity(*who),
            topics={topic: QueueConfig(queues, queues, perm) for topic, (queues, perm) in topics.items()},
            data_version=DataVersion(*version),
            heartbeat_interval=pace[0],
            expiry=pace[1],
            acting_master=acting,
            incarnation=incarnation,
            health=Health(ProbeVerdict(probe)),
            ha_addr=ha,
        )
        try:
            registered = self.core.register(registration, now=self.now)
            answer: Any = ("registered", registered.generation, told(registered.view), shown(registered.events))
        except IdentityHeld as error:
            answer = ("held by", error.holder_addr)
        self.expect(
            answer,
            call="register",
            who=who,
            topics=topics,
            version=version,
            probe=probe,
            interval=pace[0],
            expiry=pace[1],
            acting=acting,
            incarnation=incarnation,
            ha=ha,
        )
        if answer[0] != "registered":
            return multiple()
        facts = {"who": who, "topics": topics, "version": version, "probe": probe, "pace": pace}
        return {**facts, "acting": acting, "incarnation": incarnation, "generation": answer[1]}

    @rule(
        known=held,
        version=st.none() | VERSION,
        probe=PROBE,
        stream=st.sampled_from([None, 1, 1, 2]),
        hand_over=st.sampled_from([False, False, False, True]),
    )
    def beat(self, known: Any, version: Any, probe: str, stream: int | None, hand_over: bool) -> None:
        version = version or known["version"]
        answer = self.core.beat(
            BrokerIdentity(*known["who"]),
            known["generation"],
            data_version=DataVersion(*version),
            health=Health(ProbeVerdict(probe)),
            now=self.now,
            stream=stream,
            hand_over=hand_over,
        )
        self.expect(
            (answer.status.value, answer.holder_addr, told(answer.view), shown(answer.events)),
            call="beat",
            who=known["who"],
            generation=known["generation"],
            version=version,
            probe=probe,
            stream=stream,
            hand_over=hand_over,
        )

    @rule(known=held, stream=st.sampled_from([1, 1, 2]))
    def end_stream(self, known: Any, stream: int) -> None:
        events = self.core.end_stream(BrokerIdentity(*known["who"]), known["generation"], stream=stream, now=self.now)
        self.expect(shown(events), call="end_stream", who=known["who"], generation=known["generation"], stream=stream)

    @rule(data=st.data(), stream=st.integers(1, 3), seconds=TIMES)
    def break_a_living_stream(self, data: st.DataObject, stream: int, seconds: float) -> None:
        """A stream of a broker that is registered now ends some time after its last beat."""
        known = self.living(data)
        if known is not None:
            self.beat(known, version=None, probe="UNKNOWN", stream=stream, hand_over=False)
            self.pass_time_unswept(seconds)
            self.end_stream(known, stream)

    @rule(data=st.data())
    def hand_over(self, data: st.DataObject) -> None:
        known = self.living(data)
        if known is not None:
            self.beat(known, version=None, probe="UNKNOWN", stream=None, hand_over=True)

    def living(self, data: st.DataObject) -> Any:
        living = [(tuple(r.identity), r.generation, r.registration.data_version) for _, r in self.core.replicas()]
        if not living:
            return None
        who, generation, version = data.draw(st.sampled_from(living))
        return {"who": who, "generation": generation, "version": tuple(version)}

    @rule(known=held)
    def unregister(self, known: Any) -> None:
        answer = self.core.unregister(
            BrokerIdentity(*known["who"]), known["generation"], reason=Reason.SHUTDOWN, now=self.now
        )
        self.expect(
            (answer.status.value, answer.holder_addr, shown(answer.events)),
            call="unregister",
            who=known["who"],
            generation=known["generation"],
        )

    @rule(seconds=TIMES)
    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.expect(sorted(shown(self.core.sweep(now=self.now))), call="sweep")

    @rule(seconds=TIMES)
    def pass_time_unswept(self, seconds: float) -> None:
        self.now += seconds

    @rule(first=st.integers(100, 105))
    def restart(self, first: int) -> None:
        """A restarted server knows nobody; what agents still hold is of another boot."""
        self.begin(first)
        self.model, _ = replay(self.calls)

    @invariant()
    def everything_visible_agrees(self) -> None:
        if len(getattr(self, "calls", ())) < 2:
            return
        self.core.check_invariants()
        brokers = [(tuple(r.identity), r.state.value, r.generation) for _, r in self.core.replicas()]
        assert brokers == self.model.brokers()
        expected = self.model.routes()
        assert self.core.topic_names() == sorted(expected)
        for topic, route in expected.items():
            assert self.route(topic) == route

    def route(self, topic: str) -> Any:
        route = self.core.routes.route(topic)
        return [
            (
                tuple(key),
                (queues.read_queue_nums, queues.perm),
                [(r.identity.broker_id, r.identity.addr, r.state.value) for r in group.routed()],
            )
            for (key, queues), group in zip(route.queues, route.groups, strict=True)
        ]

    @invariant()
    def a_visible_change_moves_the_revision(self) -> None:
        """And the same counter means the same route, for as long as this boot lives."""
        if not hasattr(self, "core"):
            return
        if getattr(self, "seen_of", None) is not self.core:
            self.seen_of = self.core
            self.seen: dict[Any, Any] = {}
        for topic in ("t1", "t2", "t3"):
            try:
                route = self.route(topic)
            except TopicNotFound:
                continue
            counter = self.core.routes.counter(topic)
            assert self.seen.setdefault((topic, counter), route) == route


TestNameServer = NameServerMachine.TestCase
TestNameServer.settings = settings(stateful_step_count=50)
