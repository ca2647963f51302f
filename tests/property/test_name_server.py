"""The core against the oracle, over any sequence of calls by brokers and operators, of time and of restarts.

Large topic sets are simulated by small ones: the index moves few topics per step, so most swaps are incomplete while
other calls come in.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, initialize, multiple, precondition, rule

from pointsman.wire.refusals import Refusal
from pointsman_namesrv.core import route_table
from pointsman_namesrv.core.guard import GuardMode
from pointsman_namesrv.core.model import (
    BrokerIdentity,
    DataVersion,
    GroupKey,
    Reason,
    Registration,
)
from pointsman_namesrv.core.node_refusals import IdentityHeld, TopicNotFound
from pointsman_namesrv.core.staging import StagedTopics, Staging
from pointsman_namesrv.snapshot.keeper import health_to_keep
from tests.kit.name_server.queue_stats import NOTHING_MEASURED
from tests.property.compared_name_server import (
    CLUSTERS,
    SWAP_SIZE,
    TOPIC_NAMES,
    ComparedNameServer,
    health_facts,
    health_of,
    queue_configs,
    shown,
    shown_view,
)
from tests.property.name_server_values import (
    AFTER_A_FAULT,
    AT_A_BOUND,
    AT_ONE_ADDRESS,
    EVER_PASSED,
    KEY,
    KNOWN_FAULTS,
    NAMES,
    ONE_TOPIC,
    PACE,
    PROBE,
    TIMES,
    TOPICS,
    VERSION,
    WHO,
    home,
)


class NameServerMachine(ComparedNameServer):
    """Every rule makes one call of both; results and everything visible must agree."""

    held = Bundle("held")
    """Who registered once, with which generation and version: fresh or stale by now."""

    @initialize(
        first=st.integers(1, 5),
        swap_size=st.sampled_from([1, 2, SWAP_SIZE]),
        at_least=st.sampled_from([1, 2, 3]),
        limit=st.sampled_from([100.0, 600.0]),
        enabled=st.sampled_from([True, True, True, False]),
    )
    def start(self, first: int, swap_size: int, at_least: int, limit: float, enabled: bool) -> None:
        route_table.TOPICS_PER_STEP = swap_size
        self.now = 1_000.0
        self.guard_rules: Any = {"share": 0.5, "at_least": at_least, "limit": limit, "enabled": enabled}
        self.boots = 0
        self.begin(first)

    # --- brokers ----------------------------------------------------------------------------------------------

    @rule(
        target=held,
        who=WHO,
        topics=TOPICS,
        version=VERSION,
        probe=PROBE,
        pace=PACE,
        acting=st.sampled_from([True, True, False]),
        incarnation=st.sampled_from(["", "i1", "i2"]),
        zone=st.sampled_from(["", "z1", "z2"]),
        ever_passed=EVER_PASSED,
    )
    def register(self, **facts: Any) -> Any:
        return self.claim(**facts)

    @rule(target=held, known=held, topics=TOPICS, probe=PROBE, broker_id=st.sampled_from([None, 0, 1]))
    def register_again(self, known: Any, topics: Any, probe: str, broker_id: int | None) -> Any:
        """The same address again: unchanged, changed, or in another role."""
        who = known["who"] if broker_id is None else (*known["who"][:2], broker_id, known["who"][3])
        return self.claim(**{**known, "who": who, "topics": topics, "probe": probe})

    @rule(
        target=held, known=held, probe=st.sampled_from([None, None, "FAILING", "REFUSED"]), version=st.none() | VERSION
    )
    def register_the_same_again(self, known: Any, probe: str | None, version: Any) -> Any:
        return self.claim(**{**known, "probe": probe or known["probe"], "version": version or known["version"]})

    @rule(target=held, known=held, incarnation=st.sampled_from(["i1", "i2", "i3"]))
    def restart_a_broker(self, known: Any, incarnation: str) -> Any:
        return self.claim(**{**known, "incarnation": incarnation})

    @rule(
        before=st.sampled_from(["", "i1"]),
        after=st.sampled_from(["", "i1", "i2"]),
        probe=PROBE,
        left=st.sampled_from([None, None, "SHUTDOWN", "DRAIN"]),
        later=PROBE,
    )
    def wipe_and_restart_a_broker(self, before: str, after: str, probe: str, left: str | None, later: str) -> None:
        """A master is wiped, and returns as the same process or as the next, with or without a failed probe."""
        known = {**ONE_TOPIC, "who": ("c1", "a", 0, "h1:1"), "version": (2, 0, 2), "incarnation": before}
        master = self.claim(**known)
        self.set_writable(("c1", "a"), False)
        self.beat(master, probe=probe)
        if left is not None:
            self.unregister(master, reason=left)
        self.beat(self.claim(**{**known, "incarnation": after}), probe=later)

    @rule(version=VERSION)
    def claim_a_held_place(self, version: Any) -> None:
        """Another address claims what a master holds that is UP, with a lower state version or the same."""
        self.claim(**ONE_TOPIC, who=("c1", "a", 0, "h1:1"), version=(2, 0, 2))
        self.claim(**ONE_TOPIC, who=("c1", "a", 0, "h3:1"), version=version)

    @rule(target=held, names=st.permutations(NAMES), pace=PACE, probe=PROBE)
    def register_a_fleet(self, names: Any, pace: Any, probe: str) -> Any:
        """Enough brokers in one cluster for the guard to apply."""
        fleet = [(name, broker_id) for name in names for broker_id in (0, 1)]
        plain = {"topics": {"t1": (4, 6)}, "version": (0, 0, 1), "probe": probe, "pace": pace}
        known = [
            self.claim(**{**ONE_TOPIC, **plain, "who": ("c1", name, broker_id, home("c1", name, broker_id + 1))})
            for name, broker_id in fleet
        ]
        return multiple(*(one for one in known if isinstance(one, dict)))

    @rule(who=WHO, known=held, topics=TOPICS)
    def begin_to_arrive(self, who: Any, known: Any, topics: Any) -> None:
        """The first chunk of a registration is compared with what is registered now, not at its commit."""
        facts = {**known, "who": who, "topics": topics}
        staging, rest = Staging(self.core.held_topics(BrokerIdentity(*who))), list(topics)
        self.arriving.append((facts, staging, rest))
        self.add_chunk(staging, facts, rest[: len(rest) // 2])
        del rest[: len(rest) // 2]

    @precondition(lambda self: self.arriving)
    @rule(target=held)
    def arrive(self) -> Any:
        facts, staging, rest = self.arriving.pop(0)
        self.add_chunk(staging, facts, rest)
        return self.claim(**facts, topics_seen=staging.finish())

    @staticmethod
    def add_chunk(staging: Staging, facts: Any, names: list[str]) -> None:
        staging.add(queue_configs({name: facts["topics"][name] for name in names}))

    def claim(
        self,
        *,
        who: Any,
        topics: Any,
        version: Any,
        probe: str,
        pace: Any,
        acting: bool,
        incarnation: str,
        zone: str,
        ever_passed: bool | None,
        topics_seen: StagedTopics | None = None,
        **_: Any,
    ) -> Any:
        ha, health = f"{who[3]}1", health_of(probe, ever_passed)
        registration = Registration(
            identity=BrokerIdentity(*who),
            topics=queue_configs(topics),
            data_version=DataVersion(*version),
            heartbeat_interval=pace[0],
            expiry=pace[1],
            acting_master=acting,
            incarnation=incarnation,
            health=health,
            ha_addr=ha,
            zone=zone,
        )
        try:
            registered = self.core.register(registration, now=self.now, topics=topics_seen)
            answer: Any = (
                "registered",
                registered.generation,
                shown_view(registered.view),
                self.take(registered.events),
            )
        except IdentityHeld as error:
            answer = ("held by", error.holder_addr)
        facts = {"who": who, "topics": topics, "version": version, "acting": acting}
        facts |= {"incarnation": incarnation, "zone": zone, "ever_passed": ever_passed}
        declared = {"interval": pace[0], "expiry": pace[1], "ha": ha, "warming": not self.lifecycle.is_warmed_up}
        self.expect(answer, call="register", **{**facts, **declared, **health_facts(health)})
        known = {**facts, "probe": probe, "pace": pace, "generation": answer[1]}
        return known if answer[0] == "registered" else multiple()

    @rule(
        known=held,
        version=st.none() | VERSION,
        probe=PROBE,
        stream=st.sampled_from([None, 1, 1, 2]),
        hand_over=st.sampled_from([False, False, False, True]),
        ever_passed=EVER_PASSED,
    )
    def beat(
        self,
        known: Any,
        version: Any = None,
        probe: str = "PASSING",
        stream: int | None = None,
        hand_over: bool = False,
        ever_passed: bool | None = None,
    ) -> None:
        version, health = version or known["version"], health_of(probe, ever_passed)
        answer = self.core.beat(
            BrokerIdentity(*known["who"]),
            known["generation"],
            data_version=DataVersion(*version),
            health=health,
            now=self.now,
            stream=stream,
            hand_over=hand_over,
        )
        self.expect(
            (answer.status.value, answer.holder_addr, shown_view(answer.view), self.take(answer.events)),
            call="beat",
            who=known["who"],
            generation=known["generation"],
            version=version,
            stream=stream,
            hand_over=hand_over,
            **health_facts(health),
        )

    @rule(known=held, stream=st.sampled_from([1, 1, 2]), by_us=st.sampled_from([False, False, True]))
    def end_stream(self, known: Any, stream: int, by_us: bool) -> None:
        who, generation = known["who"], known["generation"]
        events = self.core.end_stream(BrokerIdentity(*who), generation, stream=stream, now=self.now, by_us=by_us)
        facts = {"who": who, "generation": generation, "stream": stream, "by_us": by_us}
        self.expect(self.take(events), call="end_stream", **facts)

    @rule(data=st.data(), stream=st.integers(1, 3), seconds=TIMES)
    def break_a_living_stream(self, data: st.DataObject, stream: int, seconds: float) -> None:
        """A stream of a registered broker ends some time after its last heartbeat."""
        known = self.living(data)
        if known is not None:
            self.beat(known, probe="UNKNOWN", stream=stream)
            self.pass_time_unswept(seconds)
            self.end_stream(known, stream, by_us=False)

    @rule(
        data=st.data(),
        seconds=st.sampled_from([0.5, 1.0, 10.5]),
        order=st.permutations([1, 2]),
        long_after_the_start=st.booleans(),
    )
    def overlap_two_streams(
        self, data: st.DataObject, seconds: float, order: list[int], long_after_the_start: bool
    ) -> None:
        """A reconnecting agent: the old stream ends after the new one's first heartbeat, or before."""
        known = self.living(data)
        if known is not None:
            for _ in range(2 * long_after_the_start):
                self.beat(known)
                self.pass_time(0.75 * known["expiry"])
            for stream in (1, 2):
                self.beat(known, stream=stream)
            for stream in order:
                self.end_stream(known, stream, by_us=False)
                self.pass_time(seconds)

    @rule(data=st.data(), probe=PROBE, hand_over=st.booleans())
    def beat_of_a_living_one(self, data: st.DataObject, probe: str, hand_over: bool) -> None:
        known = self.living(data)
        if known is not None:
            self.beat(known, probe=probe, hand_over=hand_over)

    @rule(data=st.data(), announced=TIMES, seconds=TIMES, expires=st.booleans())
    def fail_in_a_window(self, data: st.DataObject, announced: float, seconds: float, expires: bool) -> None:
        """A broker's last report is that it fails, in a maintenance window that may cover its complete expiry."""
        known = self.living(data)
        if known is not None:
            if expires:
                announced, seconds = known["expiry"], known["expiry"] + 0.5
            self.open_window(known["who"][0], known["who"][1], announced)
            self.beat(known, probe="FAILING")
            self.pass_time(seconds)

    @rule(data=st.data(), announced=st.booleans())
    def fall_silent(self, data: st.DataObject, announced: bool) -> None:
        """A broker is silent for exactly its expiry, which keeps it, and then for longer, with sweeps."""
        known = self.living(data)
        if known is not None:
            expiry = known["expiry"]
            if announced:
                self.open_window(known["who"][0], known["who"][1], expiry + 10.0)
            self.beat(known)
            for seconds in (expiry, 0.5, 0.5):
                self.pass_time(seconds)

    @rule(data=st.data(), seconds=st.sampled_from([4.5, 60.0, 60.5]))
    def hand_over_and_stay_away(self, data: st.DataObject, seconds: float) -> None:
        """An agent hands over, and no successor sends a heartbeat."""
        known = self.living(data)
        if known is not None:
            self.beat(known, hand_over=True)
            self.pass_time(seconds)

    @rule(share=st.sampled_from([1, 2, 3, 9]), probe=st.sampled_from(["PASSING", "PASSING", "FAILING"]))
    def beats_of_many(self, share: int, probe: str) -> None:
        """Every second, third ... live broker; the others are disconnected."""
        for known in self.all_living()[::share]:
            self.beat(known, probe=probe)

    @rule()
    def all_streams_break(self) -> None:
        for known in self.all_living():
            self.beat(known, probe="UNKNOWN", stream=1)
        for known in self.all_living():
            self.end_stream(known, 1, by_us=False)

    def all_living(self) -> list[Any]:
        return [
            {
                "who": tuple(r.identity),
                "generation": r.generation,
                "version": tuple(r.registration.data_version),
                "expiry": r.registration.expiry,
                "interval": r.registration.heartbeat_interval,
                "topics": sorted(r.registration.topics),
            }
            for _, r in self.core.replicas()
        ]

    def living(self, data: st.DataObject) -> Any:
        living = self.all_living()
        return data.draw(st.sampled_from(living)) if living else None

    @rule(known=held, reason=st.sampled_from(["SHUTDOWN", "DRAIN", "REMOVED_FROM_CONFIG"]))
    def unregister(self, known: Any, reason: str = "SHUTDOWN") -> None:
        who, generation = known["who"], known["generation"]
        left = self.core.unregister(BrokerIdentity(*who), generation, reason=Reason(reason), now=self.now)
        answer = (left.status.value, left.holder_addr, self.take(left.events))
        self.expect(answer, call="unregister", who=who, generation=generation, reason=reason)

    @rule(known=held)
    def report_queue_stats(self, known: Any) -> None:
        who, generation = known["who"], known["generation"]
        taken = self.core.report_queue_stats(BrokerIdentity(*who), generation, NOTHING_MEASURED, now=self.now)
        answer = (taken.status.value, taken.holder_addr, self.take(taken.events))
        self.expect(answer, call="report_queue_stats", who=who, generation=generation)

    @rule(data=st.data(), known=held, changed=TOPICS, version=VERSION, fresh=st.sampled_from([True, True, False]))
    def update_topics(self, data: st.DataObject, known: Any, changed: Any, version: Any, fresh: bool) -> None:
        living = self.living(data) if fresh else None
        known = living or known
        names = [name for name in TOPIC_NAMES if name not in changed]
        held = self.core.registration_of(BrokerIdentity(*known["who"]))
        if living and held:
            names = [name for name in names if name in held.topics]
        removed = data.draw(st.lists(st.sampled_from(names), unique=True, max_size=2)) if names else []
        self.send_delta(known, changed, removed, version)

    @rule(data=st.data(), version=VERSION)
    def remove_a_topic(self, data: st.DataObject, version: Any) -> None:
        """A delta of a live broker that only removes topics."""
        known = self.living(data)
        if known is not None:
            self.send_delta(known, {}, known["topics"][:1], version)

    def send_delta(self, known: Any, changed: Any, removed: list[str], version: Any) -> None:
        facts = {"who": known["who"], "generation": known["generation"], "version": version, "removed": removed}
        try:
            updated = self.core.update_topics(
                BrokerIdentity(*known["who"]),
                known["generation"],
                base=DataVersion(*known["version"]),
                data_version=DataVersion(*version),
                changed=queue_configs(changed),
                removed=removed,
                max_topics=99,
                now=self.now,
            )
            assert not self.take(updated.events)
            answer: Any = updated.topic_count
        except Refusal as error:
            answer = error.code
        self.expect(answer, call="update", base=known["version"], changed=changed, **facts)

    # --- operators --------------------------------------------------------------------------------------------

    @rule(data=st.data())
    def evict(self, data: st.DataObject) -> None:
        known = self.living(data)
        lost = [tuple(broker.registration.identity) for broker in self.core.departed.all()]
        who = known["who"] if known else ("c1", "a", 0, "h1:1")
        who = data.draw(st.sampled_from([who, *lost]))
        try:
            _, events = self.core.evict(*who[:3], now=self.now, detail={})
            answer: Any = self.take(events)
        except Refusal as error:
            answer = error.code
        self.expect(answer, call="evict", who=who)

    @rule(key=KEY, writable=st.booleans())
    def set_writable(self, key: Any, writable: bool) -> None:
        try:
            answer: Any = self.core.routes.set_writable(GroupKey(*key), writable)
        except Refusal as error:
            answer = error.code
        self.expect(answer, call="set_writable", key=key, writable=writable)

    @rule(topic=st.sampled_from(TOPIC_NAMES), cluster=st.sampled_from(["", "", "c1"]))
    def delete_topic(self, topic: str, cluster: str) -> None:
        try:
            answer: Any = [tuple(key) for key in self.core.routes.hide_topic(topic, cluster, with_absent=False)]
        except TopicNotFound as error:
            answer = error.code
        self.expect(answer, call="hide_topic", topic=topic, cluster=cluster)

    @rule(catches_up=st.booleans())
    def delete_a_topic_and_lose_its_master(self, catches_up: bool) -> None:
        """The next in line has another version of the topics, without a deletion, or the master's own."""
        slave = self.claim(**ONE_TOPIC, who=("c1", "a", 1, "h2:1"), version=(2, 0, 1))
        master = self.claim(**ONE_TOPIC, who=("c1", "a", 0, "h1:1"), version=(2, 0, 2))
        if isinstance(slave, dict) and isinstance(master, dict):
            self.delete_topic("t1", "c1")
            self.unregister(master)
            if catches_up:
                self.claim(**{**slave, "version": (2, 0, 2)})

    @rule(returns=st.booleans())
    def delete_a_topic_and_change_it_unseen(self, returns: bool) -> None:
        """Another version comes from a failing master; it recovers, and may register the old one again."""
        master = self.claim(**ONE_TOPIC, who=("c1", "a", 0, "h1:1"), version=(2, 0, 2))
        if isinstance(master, dict):
            self.delete_topic("t1", "c1")
            self.beat(master, probe="FAILING")
            other = self.claim(**{**master, "version": (2, 0, 1), "probe": "FAILING"})
            self.beat(other)
            if returns:
                self.claim(**master)

    @rule(topic=st.sampled_from(TOPIC_NAMES), conf=st.sampled_from(["", "a:4", "a:4;b:4"]))
    def configure_order_topic(self, topic: str, conf: str) -> None:
        self.core.routes.set_order_topic(topic, conf)
        self.expect(None, call="order_topic", topic=topic, conf=conf)

    @rule(cluster=st.sampled_from(CLUSTERS), name=st.sampled_from(["", *NAMES]), seconds=TIMES)
    def open_window(self, cluster: str, name: str, seconds: float) -> None:
        until = self.now + seconds
        self.core.maintenance.open(GroupKey(cluster, name), until=until)
        self.expect(None, call="open_window", key=(cluster, name), until=until)

    @rule(cluster=st.sampled_from(CLUSTERS), name=st.sampled_from(["", *NAMES]))
    def close_window(self, cluster: str, name: str) -> None:
        closed = self.core.maintenance.close(GroupKey(cluster, name))
        self.expect(closed, call="close_window", key=(cluster, name))

    @rule(
        cluster=st.sampled_from(["c1", "c1", "c2"]),
        mode=st.sampled_from([*GuardMode, GuardMode.AUTO]),
        seconds=st.none() | TIMES,
    )
    def set_guard(self, cluster: str, mode: GuardMode, seconds: float | None) -> None:
        until = None if seconds is None else self.now + seconds
        events = self.core.guard.set_mode(cluster, mode, until=until, now=self.now)
        self.expect(shown(events), call="set_guard", cluster=cluster, mode=mode.value, until=until)

    @rule(seconds=st.sampled_from([75.5, 120.5]), mode=st.sampled_from([GuardMode.OFF, GuardMode.HOLD]))
    def cut_all_off_and_decide(self, seconds: float, mode: GuardMode) -> None:
        """No heartbeat arrives, the guard turns on, and an operator decides."""
        self.beats_of_many(1, "PASSING")
        for _ in range(2):
            self.pass_time(seconds)
        self.set_guard("c1", mode, None)
        self.pass_time(0.5)

    @rule(
        size=st.integers(1, 4),
        lost=st.integers(1, 4),
        restarts=st.sampled_from([False, False, True]),
        mode=st.sampled_from([*GuardMode, GuardMode.AUTO, GuardMode.AUTO]),
        fault=st.sampled_from(["silence", "FAILING", "FAILING", "REFUSED"]),
        steps=AFTER_A_FAULT,
    )
    def lose_brokers_for_one_cause(
        self, size: int, lost: int, restarts: bool, mode: GuardMode, fault: str, steps: Any
    ) -> None:
        """Brokers that were alive for longer than a window are lost; then some return, leave or fail in another way."""
        names = [(name, broker_id) for name in NAMES for broker_id in (0, 1)][:size]
        for name, broker_id in names:
            self.claim(**ONE_TOPIC, who=("c1", name, broker_id, home("c1", name, broker_id + 1)), version=(2, 0, 2))
        for _ in range(2):
            self.pass_time(60.0)
            self.beats_of_many(1, "PASSING")
        if restarts:
            self.warm_restart(100, warming=False)
        self.set_guard("c1", mode, None)
        up = [known for known in self.all_living() if known["who"][0] == "c1"]
        out = [up.pop() for _ in range(min(lost, len(up)))]
        fail = self.unregister if fault == "leave" else partial(self.beat, probe=fault)
        for known in out if fault != "silence" else []:
            fail(known)
        for seconds, action in steps:
            if action == "pause":
                self.pause_server(seconds, credited=1.0)
                continue
            self.now += seconds
            for known in [] if restarts else up:
                self.beat(known)
            if action == "restart":
                self.warm_restart(100, warming=False)
            elif action == "AUTO":
                self.set_guard("c1", GuardMode.AUTO, None)
            elif out and action == "leave":
                self.unregister(out.pop())
            elif out and action != "wait":
                self.beat(out[0], probe=action)
            self.sweep()

    @rule(fault=KNOWN_FAULTS, lost=st.sampled_from([3, 3, 4, 1]))
    def lose_brokers_as_known(self, fault: Any, lost: int) -> None:
        mode, kind, steps = fault
        self.lose_brokers_for_one_cause(4, lost, restarts=False, mode=mode, fault=kind, steps=steps)

    @rule(case=st.sampled_from(AT_A_BOUND))
    def lose_brokers_at_a_bound(self, case: dict[str, Any]) -> None:
        self.lose_brokers_for_one_cause(**{"restarts": False, "mode": GuardMode.AUTO, "fault": "FAILING", **case})

    @rule(
        steps=AT_ONE_ADDRESS,
        incarnations=st.sampled_from([("i1", "i2"), ("i1", "i1"), ("", "i2"), ("", "")]),
        seconds=st.sampled_from([30.0, 45.0, 75.5]),
    )
    def share_an_address(self, steps: Any, incarnations: tuple[str, str], seconds: float) -> None:
        """Two broker names have one address; then each is heard or not, over a restart or not."""
        two = [
            self.claim(**{**ONE_TOPIC, "incarnation": own}, who=("c1", name, 0, "h1:1"), version=(2, 0, 2))
            for name, own in zip(NAMES, incarnations, strict=True)
        ]
        for step in steps:
            if step == "restart":
                self.warm_restart(100, warming=False)
                continue
            self.now += seconds
            for known in two:
                if isinstance(known, dict) and known["who"][1] in step:
                    self.beat(known, hand_over=step.endswith("hands over"))
            self.sweep()

    @rule(restarts=st.booleans())
    def register_brokers_that_were_never_alive(self, restarts: bool) -> None:
        for name in NAMES:
            never_alive = {**ONE_TOPIC, "probe": "FAILING", "ever_passed": False}
            self.claim(**never_alive, who=("c1", name, 0, home("c1", name, 1)), version=(2, 0, 2))
        self.pass_time(0.5)
        if restarts:
            self.warm_restart(100, warming=False)
        self.pass_time(0.5)

    # --- time and the server -----------------------------------------------------------------------------------

    @rule(seconds=TIMES)
    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.sweep()

    def sweep(self) -> None:
        self.expect(self.take(self.core.sweep(now=self.now)), call="sweep")

    @rule(seconds=TIMES)
    def pass_time_unswept(self, seconds: float) -> None:
        self.now += seconds

    @rule(seconds=TIMES, share=st.sampled_from([0, 0, 2]), probe=st.sampled_from(["PASSING", "PASSING", "FAILING"]))
    def pass_time_with_beats(self, seconds: float, share: int, probe: str) -> None:
        """Heartbeats arrive during this time: from no broker, or from every second one."""
        for _ in range(4):
            self.now += seconds / 4
            if share:
                self.beats_of_many(share, probe)
            self.sweep()

    @rule(seconds=TIMES, credited=st.sampled_from([0.5, 1.0]))
    def pause_server(self, seconds: float, credited: float) -> None:
        """This process is paused, and measures nearly all of it."""
        self.now += seconds
        events = self.core.credit_pause(seconds * credited, now=self.now)
        self.expect(shown(events), call="credit_pause", seconds=seconds * credited)

    @rule(data=st.data(), seconds=TIMES, later=TIMES)
    def pause_after_a_stream_broke(self, data: st.DataObject, seconds: float, later: float) -> None:
        """This process was paused for all the time since the stream broke."""
        self.break_a_living_stream(data, stream=1, seconds=0.5)
        self.pause_server(seconds, credited=1.0)
        self.pass_time(later)

    @rule(first=st.integers(100, 105), warming=st.booleans())
    def restart(self, first: int, warming: bool) -> None:
        """A server that restarted without a snapshot has no broker; generations that agents hold are of another run."""
        self.begin(first, warming=warming)

    @rule(first=st.integers(100, 105), warming=st.booleans())
    def warm_restart(self, first: int, warming: bool) -> None:
        """A server with a snapshot has all brokers, and their generations."""
        before, orders, self.boots = self.core, self.oracle.orders, self.boots + 1
        restored = []
        for _, replica in before.replicas():
            health = health_to_keep(replica)
            kept = (health.verdict.value, health.evidence.value, health.ever_passed)
            assert kept == self.oracle.kept(tuple(replica.identity.position))
            restored.append((replace(replica.registration, health=health), replica.generation))
        self.begin(first + 1_000 * self.boots, warming=warming)
        for registration, generation in restored:
            self.core.restore(registration, generation, now=self.now)
            self.history[registration.identity.position] = (registration.data_version, dict(registration.topics))
            self.expect(None, call="restore", generation=generation, **self.as_restored(registration))
        for broker in before.departed.all():
            self.core.absences.restore(broker, now=self.now)
            state = tuple(broker.state)
            self.expect(None, call="restore_lost", who=tuple(broker.registration.identity), state=state)
        self.core.routes.restore_overrides(before.overrides.wipes, before.overrides.tombstones)
        tombstones = [
            (tuple(key), topic, tuple(version))
            for key, topics in before.overrides.tombstones.items()
            for topic, version in topics.items()
        ]
        self.expect(None, call="restore_overrides", wipes=dict(before.overrides.wipes), tombstones=tombstones)
        for topic, conf in orders.items():
            self.configure_order_topic(topic, conf)

    @staticmethod
    def as_restored(registration: Registration) -> dict[str, Any]:
        return {
            "who": tuple(registration.identity),
            "topics": {topic: (queues[0], queues[2]) for topic, queues in registration.topics.items()},
            "version": tuple(registration.data_version),
            "interval": registration.heartbeat_interval,
            "expiry": registration.expiry,
            "acting": registration.acting_master,
            "incarnation": registration.incarnation,
            "ha": registration.ha_addr,
            "zone": registration.zone,
            **health_facts(registration.health),
        }

    @rule(at_most=st.integers(1, 3))
    def settle(self, at_most: int) -> None:
        """The index moves by a few topics; no call shows it."""
        self.core.routes.settle(at_most)

    @rule()
    def check(self) -> None:
        """Check the core's own invariants; this settles the index too."""
        self.core.check_invariants()


TestNameServer = NameServerMachine.TestCase
