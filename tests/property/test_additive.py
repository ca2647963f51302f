"""Brokers on RocketMQ's wire and agents, in any order: the tables stay consistent and match each broker's frames."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from pointsman_namesrv.core.additive import AdditiveRegistrations, Claim
from pointsman_namesrv.core.administration import Administration
from pointsman_namesrv.core.guard import GuardRules
from pointsman_namesrv.core.liveness import LivenessRules
from pointsman_namesrv.core.model import BrokerIdentity, DataVersion, QueueConfig, Registration
from pointsman_namesrv.core.name_server import NameServer
from pointsman_namesrv.core.node_refusals import (
    FirstOfOneTopic,
    HeldByAgent,
    IdentityHeld,
    NotUnregistered,
    TopicNotFound,
)
from pointsman_namesrv.core.request_rules import IntervalBounds
from pointsman_namesrv.core.static_topics import QueueMapping

NAMES, TOPICS = ("a", "b.example"), ("t1", "t2", "t3", "t4")
WHO = st.builds(
    BrokerIdentity,
    st.just("c1"),
    st.sampled_from(NAMES),
    st.integers(0, 1),
    st.sampled_from(["10.0.0.1:1", "10.0.0.2:1"]),
)
TABLE = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 3), max_size=4)
STREAM = st.integers(-3, -1)
STATIC = st.just(dict[str, int]()) | st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 3), max_size=2)


class Brokers(RuleBasedStateMachine):
    """Checked after each step: the invariants, and a model of the frames of each broker without an agent."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1_000.0
        self.boots = 0
        self.core = NameServer(
            rules=LivenessRules(), first_generation=1, started_at=0.0, guard_rules=GuardRules(enabled=False)
        )
        self.word = AdditiveRegistrations(self.core, bounds=IntervalBounds(), max_topics=100)
        self.counters: dict[BrokerIdentity, int] = {}
        self.sent: dict[BrokerIdentity, dict[str, int]] = {}
        self.mapped: dict[BrokerIdentity, dict[str, int]] = {}
        """The epoch of the mapping of each static topic."""

    @rule(who=WHO, table=TABLE, stream=STREAM, changed=st.booleans(), static=STATIC)
    def register(
        self, who: BrokerIdentity, table: dict[str, int], stream: int, changed: bool, static: dict[str, int]
    ) -> None:
        counter = self.counters[who] = self.counters.get(who, 0) + changed
        before = self.core.registration_of(who)
        incoming = self.word.begin(who)
        incoming.add({topic: (queues, queues, 6, 0, 1) for topic, queues in table.items()})
        mappings = {
            topic: QueueMapping(who.broker_name, "__global__", 2, epoch, False, ((0, 0),))
            for topic, epoch in static.items()
        }
        incoming.add_mappings(mappings, [])
        claim = Claim(identity=who, data_version=DataVersion(0, counter, counter))
        deleted = self.core.overrides.hidden_under(who.group_key, claim.data_version)
        try:
            self.word.register(claim, incoming, stream=stream, now=self.now)
        except FirstOfOneTopic:
            assert len(table) == 1
            assert before is None
            return
        except (HeldByAgent, IdentityHeld):
            assert before is None
            return
        held = self.core.registration_of(who)
        assert held is not None
        if held.from_broker is None:
            assert held is before
            return
        added = {} if before is None else {name: queues.read_queue_nums for name, queues in before.topics.items()}
        sent = self.sent[who] = added | {topic: queues for topic, queues in table.items() if topic not in deleted}
        known = {} if before is None else {name: each.epoch for name, each in before.static_topics.mappings.items()}
        self.mapped[who] = {topic: epoch for topic, epoch in (known | static).items() if topic in sent}

    @rule(who=WHO)
    def agent_registers(self, who: BrokerIdentity) -> None:
        registration = Registration(identity=who, topics={"agents": QueueConfig(1, 1, 6)})
        self.core.register(registration, now=self.now)

    @rule(who=WHO, stream=STREAM)
    def beat(self, who: BrokerIdentity, stream: int) -> None:
        before = len(list(self.core.members()))
        self.word.beat(who.group_key, who.addr, None, stream=stream, now=self.now)
        assert len(list(self.core.members())) == before

    @rule(who=WHO, stream=STREAM)
    def leave(self, who: BrokerIdentity, stream: int) -> None:
        with suppress(NotUnregistered):
            self.word.unregister(who.group_key, who.addr, who.broker_id, stream=stream, now=self.now)

    @rule(who=WHO, stream=STREAM, by_us=st.booleans())
    def end_stream(self, who: BrokerIdentity, stream: int, by_us: bool) -> None:
        self.word.end_stream(who, stream=stream, now=self.now, by_us=by_us)

    @rule(topic=st.sampled_from((*TOPICS, "agents")))
    def delete_topic(self, topic: str) -> None:
        try:
            Administration(self.core).delete_topic(topic, cluster="", force=True, by="ann", now=self.now)
        except TopicNotFound:
            return
        assert not self.core.routes.holders(topic)
        for table in (*self.sent.values(), *self.mapped.values()):
            table.pop(topic, None)

    @rule(name=st.sampled_from(NAMES), topic=st.sampled_from(TOPICS))
    def add_topic(self, name: str, topic: str) -> None:
        if self.word.add_topic(name, topic, QueueConfig(9, 9, 6), now=self.now):
            group = next(group for key, group in self.core.routes.groups.items() if key.broker_name == name)
            replica = group.contributor()
            assert replica is not None
            self.sent[replica.identity][topic] = 9

    @rule(name=st.sampled_from(NAMES), writable=st.booleans())
    def wipe(self, name: str, writable: bool) -> None:
        for key in [key for key in self.core.routes.groups if key.broker_name == name]:
            self.core.routes.set_writable(key, writable)

    @rule(seconds=st.sampled_from([1.0, 20.0, 70.0, 200.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.core.sweep(now=self.now)

    @rule(who=WHO)
    def restart_from_snapshot(self, who: BrokerIdentity) -> None:
        registration = self.core.registration_of(who)
        if registration is not None:
            self.core.evict(*who.position, now=self.now, detail={})
            self.boots += 1
            self.core.restore(replace(registration), 2**40 + self.boots, now=self.now)
            for topic in self.core.overrides.tombstones.get(who.group_key, {}):
                self.sent.get(who, {}).pop(topic, None)
                self.mapped.get(who, {}).pop(topic, None)

    @invariant()
    def tables_are_whole(self) -> None:
        self.core.check_invariants()

    @invariant()
    def each_broker_has_what_it_said(self) -> None:
        for _, replica in self.core.members():
            if replica.registration.from_broker is not None:
                held = {topic: queues.read_queue_nums for topic, queues in replica.registration.topics.items()}
                assert held == self.sent[replica.identity]
                mappings = replica.registration.static_topics.mappings
                assert {topic: each.epoch for topic, each in mappings.items()} == self.mapped[replica.identity]

    @invariant()
    def routes_have_the_mappings_of_their_groups(self) -> None:
        for topic in self.core.routes.topic_names():
            route = self.core.routes.route(topic)
            found = {}
            for key, _ in route.queues:
                contributor = self.core.routes.groups[key].contributor()
                if contributor is not None and topic in contributor.registration.static_topics.mappings:
                    found[key] = contributor.registration.static_topics.mappings[topic]
            assert dict(route.static_mappings) == found


TestBrokers = Brokers.TestCase
TestBrokers.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
