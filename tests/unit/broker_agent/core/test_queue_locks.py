"""Queue locks: which client gets one, when it changes owner, and invariants for any sequence of calls."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from pointsman.wire.refusals import FieldViolation
from pointsman_agent.core.queue import BrokerQueues, QueueKey
from pointsman_agent.core.queue_locks import HeldLock, QueueLocks, TooManyLocks
from pointsman_agent.core.topic_set import TopicConfig, TopicSet

Q0, Q1, Q2 = QueueKey("orders", 0), QueueKey("orders", 1), QueueKey("orders", 2)


@pytest.fixture
def locks() -> Iterator[QueueLocks]:
    """Five at most, 60 s each."""
    held = QueueLocks(max_locks=5)
    yield held
    held.check_invariants()


def test_a_free_queue_is_granted_and_a_taken_one_is_not(locks: QueueLocks) -> None:
    assert locks.lock("g", "c1", [Q0, Q1], now=0.0) == [Q0, Q1]
    assert locks.lock("g", "c2", [Q2, Q1], now=1.0) == [Q2]


def test_groups_lock_the_same_queue_each_for_itself(locks: QueueLocks) -> None:
    assert locks.lock("g", "c1", [Q0], now=0.0) == [Q0]
    assert locks.lock("h", "c2", [Q0], now=0.0) == [Q0]


@pytest.mark.parametrize(
    ("silence", "granted"),
    [
        pytest.param(59.9, False, id="within-its-life"),
        pytest.param(60.0, False, id="exactly-at-its-end"),
        pytest.param(60.001, True, id="just-past-its-end"),
    ],
)
def test_a_lock_changes_hands_only_past_its_lifetime(locks: QueueLocks, silence: float, granted: bool) -> None:
    locks.lock("g", "c1", [Q0], now=1_000.0)
    assert bool(locks.lock("g", "c2", [Q0], now=1_000.0 + silence)) is granted


def test_a_renewal_restarts_the_lifetime(locks: QueueLocks) -> None:
    locks.lock("g", "c1", [Q0], now=0.0)
    assert locks.lock("g", "c1", [Q0], now=50.0) == [Q0]
    assert locks.lock("g", "c2", [Q0], now=100.0) == []


def test_a_late_owner_keeps_a_lock_that_no_other_client_requested(locks: QueueLocks) -> None:
    locks.lock("g", "c1", [Q0], now=0.0)
    assert locks.lock("g", "c1", [Q0], now=500.0) == [Q0]
    assert locks.lock("g", "c2", [Q0], now=501.0) == []


def test_only_the_owner_unlocks_expired_or_not(locks: QueueLocks) -> None:
    locks.lock("g", "c1", [Q0, Q1], now=0.0)
    assert locks.unlock("g", "c2", [Q0, Q1]) == []
    assert locks.lock("g", "c2", [Q0], now=1.0) == []
    assert locks.unlock("g", "c1", [Q2, Q1, Q0]) == [Q1, Q0]
    assert locks.lock("g", "c2", [Q0], now=2.0) == [Q0]


def test_a_former_owner_cannot_unlock_a_lock_with_a_new_owner(locks: QueueLocks) -> None:
    locks.lock("g", "c1", [Q0], now=0.0)
    locks.lock("g", "c2", [Q0], now=61.0)
    assert locks.unlock("g", "c1", [Q0]) == []
    assert len(locks) == 1


def test_a_client_belongs_to_the_identity_of_its_locks_until_the_last_ends(locks: QueueLocks) -> None:
    assert locks.owner_of("c1", now=0.0) == ""
    locks.lock("g", "c1", [Q0, Q1], now=0.0, identity="alice")
    locks.lock("h", "c1", [Q0], now=10.0, identity="alice")
    locks.unlock("g", "c1", [Q0, Q1])
    assert (locks.owner_of("c1", now=70.0), locks.owner_of("c1", now=70.1)) == ("alice", "")
    locks.lock("h", "c1", [Q0], now=80.0, identity="alice")
    locks.unlock("h", "c1", [Q0])
    assert locks.owner_of("c1", now=80.0) == ""


def test_an_expired_lock_that_another_client_takes_is_no_longer_its_former_owners(locks: QueueLocks) -> None:
    locks.lock("g", "c1", [Q0], now=0.0, identity="alice")
    locks.lock("g", "c2", [Q0], now=61.0, identity="bob")
    assert (locks.owner_of("c1", now=61.0), locks.owner_of("c2", now=61.0)) == ("", "bob")


def test_a_group_without_locks_is_dropped(locks: QueueLocks) -> None:
    locks.lock("g", "c1", [Q0], now=0.0)
    assert locks.group_count == 1
    locks.unlock("g", "c1", [Q0])
    assert (locks.group_count, len(locks)) == (0, 0)


def test_an_empty_request_creates_no_group(locks: QueueLocks) -> None:
    assert locks.lock("g", "c1", [], now=0.0) == []
    assert locks.unlock("h", "c1", [Q0]) == []
    assert locks.group_count == 0


def test_one_lock_too_many_is_refused_and_nothing_of_its_batch_is_locked(locks: QueueLocks) -> None:
    locks.lock("g", "c1", [QueueKey("orders", n) for n in range(4)], now=0.0)
    with pytest.raises(TooManyLocks, match="at most 5 queues may be locked"):
        locks.lock("h", "c1", [Q0, Q1], now=1.0)
    assert len(locks) == 4
    assert locks.lock("h", "c1", [Q0], now=1.0) == [Q0]


def test_renewals_are_accepted_at_the_limit_of_locks(locks: QueueLocks) -> None:
    five = [QueueKey("orders", n) for n in range(5)]
    locks.lock("g", "c1", five, now=0.0)
    assert locks.lock("g", "c1", five, now=1.0) == five


def test_expired_locks_make_room(locks: QueueLocks) -> None:
    locks.lock("g", "c1", [Q0, Q1, Q2], now=0.0)
    locks.lock("h", "c1", [Q0, Q1], now=30.0)
    with pytest.raises(TooManyLocks):
        locks.lock("i", "c1", [Q0], now=60.0)
    assert locks.lock("i", "c1", [Q0], now=60.5) == [Q0]
    assert [lock.group for lock in locks.page(now=60.5, limit=10)] == ["h", "h", "i"]
    locks.lock("i", "c1", [Q1, Q2], now=61.0)
    with pytest.raises(TooManyLocks):
        locks.lock("j", "c1", [Q0], now=62.0)


def test_locks_are_listed_sorted_page_after_page(locks: QueueLocks) -> None:
    locks.lock("h", "c2", [Q1, QueueKey("a", 7)], now=10.0)
    locks.lock("g", "c1", [Q2, QueueKey("orders", 10), Q0], now=20.0)

    first = locks.page(now=21.0, limit=3)
    rest = locks.page(now=21.0, limit=3, after=(first[-1].group, *first[-1].queue))

    assert [(lock.group, *lock.queue) for lock in first + rest] == [
        ("g", "orders", 0),
        ("g", "orders", 2),
        ("g", "orders", 10),
        ("h", "a", 7),
        ("h", "orders", 1),
    ]
    assert (first[0].client_id, first[0].renewed_ago) == ("c1", 1.0)
    assert rest[0] == HeldLock("h", QueueKey("a", 7), "c2", 11.0)


def test_the_list_of_a_group_contains_only_its_locks(locks: QueueLocks) -> None:
    locks.lock("g", "c1", [Q0], now=0.0)
    locks.lock("h", "c1", [Q0, Q1], now=0.0)
    assert [lock.queue for lock in locks.page(now=0.0, limit=9, group="h")] == [Q0, Q1]
    assert [lock.queue for lock in locks.page(now=0.0, limit=9, group="h", after=("h", *Q0))] == [Q1]
    assert locks.page(now=0.0, limit=9, group="unknown") == []


# --- against a naive model ------------------------------------------------------------------------------------

GROUPS = st.sampled_from(["g", "h"])
CLIENTS = st.sampled_from(["c1", "c2", "c3"])
QUEUES = st.lists(st.builds(QueueKey, st.sampled_from(["s", "t"]), st.integers(0, 2)), unique=True, max_size=5)
PASSES = st.sampled_from([0.0, 0.5, 20.0, 59.5, 60.0, 60.5, 130.0])


class LocksMachine(RuleBasedStateMachine):
    """The model is one flat table without an index."""

    @initialize(most=st.sampled_from([4, 7, 100]))
    def start(self, most: int) -> None:
        self.most = most
        self.locks = QueueLocks(max_locks=most)
        self.now = 1_000.0
        self.model: dict[tuple[str, QueueKey], tuple[str, float]] = {}

    @rule(seconds=PASSES)
    def passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(group=GROUPS, client_id=CLIENTS, queues=QUEUES)
    def lock(self, group: str, client_id: str, queues: list[QueueKey]) -> None:
        if len(self.model.keys() | {(group, queue) for queue in queues}) > self.most:
            self.model = {key: held for key, held in self.model.items() if self.now - held[1] <= 60.0}
        if len(self.model.keys() | {(group, queue) for queue in queues}) > self.most:
            with pytest.raises(TooManyLocks):
                self.locks.lock(group, client_id, queues, now=self.now)
            return
        granted = []
        for queue in queues:
            owner, renewed_at = self.model.get((group, queue), (client_id, self.now))
            if owner == client_id or self.now - renewed_at > 60.0:
                self.model[group, queue] = (client_id, self.now)
                granted.append(queue)
        assert self.locks.lock(group, client_id, queues, now=self.now) == granted

    @rule(group=GROUPS, client_id=CLIENTS, queues=QUEUES)
    def unlock(self, group: str, client_id: str, queues: list[QueueKey]) -> None:
        owned = [queue for queue in queues if self.model.get((group, queue), ("", 0.0))[0] == client_id]
        for queue in owned:
            del self.model[group, queue]
        assert self.locks.unlock(group, client_id, queues) == owned

    @invariant()
    def lists_what_is_held(self) -> None:
        listed: list[HeldLock] = []
        while page := self.locks.page(
            now=self.now, limit=2, after=(listed[-1].group, *listed[-1].queue) if listed else None
        ):
            listed += page
        shown = [(lock.group, lock.queue, lock.client_id, lock.renewed_ago) for lock in listed]
        assert shown == [(*key, owner, self.now - at) for key, (owner, at) in sorted(self.model.items())]
        assert (len(self.locks), self.locks.group_count) == (len(self.model), len({group for group, _ in self.model}))
        self.locks.check_invariants()


TestAnyHistory = LocksMachine.TestCase


# --- which queues there are -----------------------------------------------------------------------------------


def topics(**queues: tuple[int, int]) -> TopicSet:
    return TopicSet.from_content(
        [TopicConfig(name, read, write, 6) for name, (read, write) in queues.items()], state_version=0
    )


def test_a_queue_counts_while_it_can_be_read_or_written() -> None:
    known = BrokerQueues()
    has = topics(shrinking=(8, 4), growing=(4, 8), none=(0, 0))
    assert known.fault(QueueKey("shrinking", 7), has) is None
    assert known.fault(QueueKey("growing", 7), has) is None


@pytest.mark.parametrize(
    ("queue", "fault"),
    [
        (QueueKey("t", 8), FieldViolation("queue_id", "is beyond the 8 queues of topic 't': 8")),
        (QueueKey("none", 0), FieldViolation("queue_id", "is beyond the 0 queues of topic 'none': 0")),
        (QueueKey("other", 0), FieldViolation("topic", "is not a topic of this broker: 'other'")),
    ],
)
def test_a_queue_that_the_broker_does_not_have_is_named(queue: QueueKey, fault: FieldViolation) -> None:
    assert BrokerQueues().fault(queue, topics(t=(8, 8), none=(0, 0))) == fault


def test_a_new_topic_set_replaces_the_cached_one() -> None:
    known = BrokerQueues()
    assert known.fault(QueueKey("t", 0), topics()) is not None
    assert known.fault(QueueKey("t", 0), topics(t=(1, 1))) is None


def test_the_retry_topic_of_a_group_exists_without_being_listed() -> None:
    known = BrokerQueues()
    assert known.fault(QueueKey("%RETRY%billing", 15), topics(t=(1, 1))) is None
    beyond = known.fault(QueueKey("%RETRY%billing", 16), topics(t=(1, 1)))
    assert beyond is not None
    assert beyond.description == "is beyond the 16 queues of topic '%RETRY%billing': 16"
