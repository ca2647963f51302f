"""Consumer groups against the naive model, over any sequence of calls by clients and operators, and of time."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from pointsman_agent.core.group_membership import (
    Changes,
    ConsumeType,
    GroupSubscription,
    MembershipBeat,
    MembershipStatus,
    MessageModel,
    Subscription,
)
from pointsman_agent.core.group_rules import GroupLimitReached, GroupRules, NoticeRules
from pointsman_agent.core.groups import Groups
from pointsman_agent.core.queue_pins import PinnedQueue, QueuePin
from tests.property import naive_groups as naive

CLIENTS = ("a@1", "a@2", "b@1", "c@1", "d@1", "e@1")
WANTS = st.tuples(
    st.sampled_from(naive.GROUPS),
    st.sampled_from(["clustering", "clustering", "broadcasting"]),
    st.sampled_from([("t1",), ("t1", "t2")]),
)
TIMES = st.sampled_from([0.0, 0.5, 1.0, 2.0, 2.5, 5.0, 9.5, 10.0, 20.0, 30.0, 60.0, 120.0, 120.5])


def subscriptions(wants: Any) -> tuple[GroupSubscription, ...]:
    return tuple(
        GroupSubscription(group, ConsumeType.PUSH, MessageModel(model), tuple(Subscription(t, "*") for t in topics))
        for group, model, topics in wants
    )


def queue_of(number: int) -> PinnedQueue:
    return PinnedQueue("t1", "c1", "a", number)


class GroupsMachine(RuleBasedStateMachine):
    """Every rule makes one call of both; answers and everything visible must agree."""

    @initialize()
    def start(self) -> None:
        self.now = self.started = 1_000.0
        rules = GroupRules(
            expiry=naive.EXPIRY,
            scan_interval=naive.SCAN,
            stream_grace=naive.GRACE,
            warm_up=naive.WARM_UP,
            notices_of={
                **{name: NoticeRules(hold_down=seconds) for name, seconds in naive.HOLD_DOWNS.items()},
                **{name: NoticeRules(notify=False) for name in naive.SILENT_GROUPS},
            },
            max_clients=naive.MAX_STREAMS,
            max_groups=naive.MAX_GROUPS,
            max_subscriptions=naive.MAX_SUBSCRIPTIONS,
        )
        self.groups = Groups(rules, boot=7, now=self.now)
        self.calls: list[naive.Call] = []
        self.model = naive.Model(self.now)
        self.streams = 0
        self.stream_of: dict[str, list[int]] = {}
        self.last_beat: dict[tuple[str, int], MembershipBeat] = {}
        self.shown: dict[str, tuple[int, Any]] = {}

    def teardown(self) -> None:
        if hasattr(self, "groups"):
            self.groups.check_invariants()

    def expect(self, answer: Any, changes: Changes, **call: Any) -> None:
        self.calls.append({"now": self.now, **call})
        self.model, (expected, changed) = naive.replay(self.started, self.calls)
        assert answer == expected, call
        assert sorted(changes.groups) == changed, call

    @rule(
        who=st.sampled_from(CLIENTS),
        wants=st.lists(WANTS, max_size=3, unique_by=lambda each: each[0]),
        is_new_stream=st.booleans(),
        which=st.integers(0, 5),
    )
    def beat(self, who: str, wants: Any, is_new_stream: bool, which: int) -> None:
        streams = self.stream_of.setdefault(who, [])
        if is_new_stream or not streams:
            self.streams += 1
            streams.append(self.streams)
        self.send(who, streams[-1 - which % len(streams)], MembershipBeat(who, subscriptions(wants)), wants)

    @rule(which=st.integers(0, 20))
    def beat_again(self, which: int) -> None:
        """The same object, as a stream passes it on for equal bytes."""
        if self.last_beat:
            (who, stream), beat = list(self.last_beat.items())[which % len(self.last_beat)]
            wants = [
                (each.group, each.message_model.value, tuple(topic for topic, _ in each.subscriptions))
                for each in beat.groups
            ]
            self.send(who, stream, beat, wants)

    def send(self, who: str, stream: int, beat: MembershipBeat, wants: Any) -> None:
        self.last_beat[who, stream] = beat
        call = {"call": "beat", "id": who, "stream": stream, "in": wants}
        try:
            answer = self.groups.beat(beat, stream=stream, peer="h:1", now=self.now)
        except GroupLimitReached as reached:
            self.expect(("limit", reached.limit), Changes(), **call)
            return
        if answer.status is MembershipStatus.TAKEN_OVER:
            self.expect("taken over", answer.changes, **call)
        else:
            took = [(each.stream, each.answer.status is MembershipStatus.OK) for each in answer.took_over]
            held = ("held", took, list(answer.taken_over), list(answer.conflicting))
            self.expect(held, answer.changes, **call)

    @rule(who=st.sampled_from(CLIENTS), which=st.integers(0, 5), by_us=st.sampled_from([False, False, True]))
    def end(self, who: str, which: int, by_us: bool) -> None:
        streams = self.stream_of.get(who, [])
        if streams:
            stream = streams.pop(-1 - which % len(streams))
            self.last_beat.pop((who, stream), None)
            changes = self.groups.end_stream(who, stream=stream, by_us=by_us, now=self.now)
            self.expect(None, changes, call="end", id=who, stream=stream, by_us=by_us)

    @rule(who=st.sampled_from(CLIENTS), groups=st.lists(st.sampled_from(naive.GROUPS), max_size=2))
    def leave(self, who: str, groups: list[str]) -> None:
        changes = self.groups.leave(who, groups, now=self.now)
        left = sorted(group for removal in changes.removals for group in removal.groups)
        self.expect(left, changes, call="leave", id=who, groups=groups)

    @rule(
        group=st.sampled_from(naive.GROUPS),
        to=st.sets(st.sampled_from([*CLIENTS, "a", "z"]), min_size=1, max_size=2),
        seconds=TIMES.filter(bool),
    )
    def pin(self, group: str, to: set[str], seconds: float) -> None:
        call = {"call": "pin", "group": group, "targets": sorted(to), "seconds": seconds}
        try:
            changes = self.groups.pin(group, to, until=self.now + seconds, now=self.now)
        except GroupLimitReached as reached:
            self.expect(("limit", reached.limit), Changes(), **call)
        else:
            self.expect(None, changes, **call)

    @rule(group=st.sampled_from(naive.GROUPS))
    def unpin(self, group: str) -> None:
        self.expect(None, self.groups.unpin(group, now=self.now), call="unpin", group=group)

    @rule(
        group=st.sampled_from(naive.GROUPS),
        queue=st.integers(0, 2),
        to=st.sampled_from(CLIENTS),
        seconds=TIMES.filter(bool),
    )
    def pin_queue(self, group: str, queue: int, to: str, seconds: float) -> None:
        pins = self.groups.queue_pins.with_pin(group, QueuePin(queue_of(queue), to, self.now + seconds))
        changes = self.groups.put_queue_pins(pins, now=self.now)
        self.expect(None, changes, call="pin_queue", group=group, queue=queue, target=to, seconds=seconds)

    @rule(group=st.sampled_from(naive.GROUPS), queue=st.sampled_from([None, 0, 1]))
    def unpin_queues(self, group: str, queue: int | None) -> None:
        pins = self.groups.queue_pins.without(group, queue_of(queue) if queue is not None else None)
        changes = self.groups.put_queue_pins(pins, now=self.now)
        self.expect(None, changes, call="unpin_queues", group=group, queue=queue)

    @rule(seconds=TIMES)
    def time_passes(self, seconds: float) -> None:
        """As the service does it: at each due time, and at the end."""
        until = self.now + seconds
        while (due := self.groups.next_due()) < until:
            self.now = max(self.now, due)
            before = due
            self.advance()
            assert self.groups.next_due() > before
        self.now = until
        self.advance()

    @rule(seconds=TIMES)
    def pause(self, seconds: float) -> None:
        """The agent is paused: nothing due was done during it, and the pause is credited first."""
        self.now += seconds
        self.groups.credit_pause(seconds, now=self.now)
        self.expect(None, Changes(), call="credit_pause", seconds=seconds)
        self.advance()

    def advance(self) -> None:
        changes = self.groups.advance(now=self.now)
        self.expect(sorted((r.client_id, r.cause.value) for r in changes.removals), changes, call="advance")

    @invariant()
    def they_agree(self) -> None:
        if not hasattr(self, "groups"):
            return
        groups, model = self.groups, self.model
        groups.check_invariants()
        assert groups.state.value == model.state
        assert groups.next_due() <= model.due()
        assert groups.client_count == len({each["id"] for each in model.streams})
        assert groups.names() == sorted({group for group, _ in model.joins})
        for name in naive.GROUPS:
            held = groups.membership(name)
            seen = (
                list(held.client_ids),
                list(held.pinned_client_ids),
                held.pinned_until,
                held.message_model.value if held.message_model else None,
                [(each.queue.queue_id, each.target, each.until) for each in held.queue_pins],
            )
            assert seen == model.view(name)
            members = groups.members(name)
            assert [each.client_id for each in members] == sorted(model.true_members(name))
            assert [each.client_id for each in members if each.is_conflicting] == model.conflicting(name)
            self.within_a_boot_later_is_higher(name, held.counter, (held.state, seen))

    def within_a_boot_later_is_higher(self, name: str, counter: int, content: Any) -> None:
        """A counter never has two contents, and is never lower than the one before."""
        last = self.shown.get(name)
        if last is not None:
            assert counter >= last[0]
            assert counter > last[0] or content == last[1]
        self.shown[name] = (counter, content)


TestGroups = GroupsMachine.TestCase


def test_two_members_of_different_models_expire_in_one_scan() -> None:
    """A bug that the state machine found: the core settled the group once for each of the two."""
    machine = GroupsMachine()
    machine.start()
    machine.time_passes(0.5)
    machine.beat("a@1", [("slow", "clustering", ("t1",))], is_new_stream=True, which=0)
    machine.beat("a@2", [("slow", "broadcasting", ("t1",))], is_new_stream=True, which=0)
    for seconds in (120.0, 9.5):
        machine.time_passes(seconds)
        machine.they_agree()
    machine.teardown()
