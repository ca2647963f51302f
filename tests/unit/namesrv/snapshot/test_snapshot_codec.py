"""A segment survives a round trip, and never yields a registration that the wire would refuse."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman_namesrv.core.model import (
    BrokerIdentity,
    DataVersion,
    Evidence,
    Health,
    ProbeVerdict,
    QueueConfig,
    Registration,
)
from pointsman_namesrv.core.request_rules import IntervalBounds
from pointsman_namesrv.core.static_topics import QueueMapping, StaticTopics, static_topics
from pointsman_namesrv.slices import SLICE_TOPICS
from pointsman_namesrv.snapshot.snapshot_codec import (
    ContentRefused,
    HistoryMark,
    Lost,
    decode_broker,
    decode_lost,
    decode_mark,
    encode_broker,
    encode_lost,
    encode_mark,
)

BOUNDS = IntervalBounds()

names = st.from_regex(r"[%|a-zA-Z0-9_-]{1,20}", fullmatch=True)
texts = st.text(st.characters(exclude_categories=("C", "Z")), max_size=20)
addrs = st.builds("{}:{}".format, st.from_regex(r"[a-z]([a-z0-9]{0,8})", fullmatch=True), st.integers(1, 65_535))
uint64s = st.integers(0, 2**64 - 1)
versions = st.builds(DataVersion, uint64s, st.integers(-(2**63), 2**63 - 1), uint64s)
queues = st.builds(
    QueueConfig,
    st.integers(0, 65_535),
    st.integers(0, 65_535),
    st.integers(0, 15),
    st.integers(0, 3),
    st.integers(1, 100),
)
ever_passed = st.sampled_from([None, False, True])
# Evidence belongs to a probe that fails.
healths = st.builds(Health, st.sampled_from(ProbeVerdict), texts, st.just(Evidence.WEAK), ever_passed) | st.builds(
    Health, st.just(ProbeVerdict.FAILING), texts, st.just(Evidence.STRONG), ever_passed
)


ids = st.integers(0, 65_535)
mappings = st.builds(
    QueueMapping,
    names,
    texts,
    ids,
    st.integers(0, 2**63 - 1),
    st.booleans(),
    st.dictionaries(ids, ids, max_size=4).map(lambda found: tuple(sorted(found.items()))),
)


@st.composite
def registrations(draw: st.DrawFn) -> Registration:
    # As on the wire: integral nanoseconds, and an expiry of at least three intervals.
    seconds, nanos = draw(st.integers(1, 299)), draw(st.integers(0, 999_999_999))
    more_seconds, more_nanos = draw(st.integers(0, 2_000)), draw(st.integers(0, 999_999_999))
    expiry_nanos = 3 * (seconds * 10**9 + nanos) + more_seconds * 10**9 + more_nanos + 1
    topics = draw(st.dictionaries(names, queues, max_size=8))
    static = {topic: draw(mappings) for topic in topics if draw(st.booleans())}
    return Registration(
        static_topics=static_topics(static, topics),
        identity=draw(st.builds(BrokerIdentity, names, names, st.integers(0, 2**31 - 1), addrs)),
        topics=topics,
        data_version=draw(versions),
        heartbeat_interval=seconds + nanos / 1e9,
        expiry=expiry_nanos // 10**9 + expiry_nanos % 10**9 / 1e9,
        acting_master=draw(st.booleans()),
        incarnation=draw(texts),
        health=draw(healths),
        ha_addr=draw(addrs | st.just("")),
        agent_addr=draw(addrs | st.just("")),
        zone=draw(texts),
        host=draw(texts),
        broker_version=draw(texts),
        agent_version=draw(texts),
        labels=draw(st.dictionaries(texts, texts, max_size=4)),
        filter_servers=tuple(draw(st.lists(addrs, max_size=3))),
    )


@given(registration=registrations(), generation=st.integers(1, 2**64 - 1), health=healths)
def test_a_broker_survives_a_round_trip_with_its_last_health(
    registration: Registration, generation: int, health: Health
) -> None:
    content = encode_broker(registration, generation, health)
    assert decode_mark(content) is None
    assert decode_broker(content, bounds=BOUNDS, max_topics=8) == (replace(registration, health=health), generation)
    mark = HistoryMark(generation, generation // 2)
    assert decode_mark(content + encode_mark(mark)) == mark
    assert decode_broker(content + encode_mark(mark), bounds=BOUNDS, max_topics=8)[1] == generation


def test_a_broker_of_many_topics_survives_a_round_trip_that_pauses() -> None:
    topics = {f"t{i}": QueueConfig(4, 4, 6) for i in range(12_001)}
    registration = Registration(identity=BrokerIdentity("c", "a", 0, "h:1"), topics=topics)
    pauses: list[int] = []
    content = encode_broker(registration, 7, Health(), pause=lambda: pauses.append(1))
    assert len(pauses) == 12_001 // SLICE_TOPICS
    assert decode_broker(content, bounds=BOUNDS, max_topics=12_001)[0].topics == topics
    with pytest.raises(ContentRefused, match=r"holds 12001 topics of 12000 allowed"):
        decode_broker(content, bounds=BOUNDS, max_topics=12_000)


A = Registration(identity=BrokerIdentity("c", "a", 0, "h:1"), topics={"orders": QueueConfig(4, 4, 6)})
MAPPED = QueueMapping("a", "__global__", 1, 1, False, ())


@pytest.mark.parametrize(
    ("registration", "generation", "problem"),
    [
        pytest.param(replace(A, identity=A.identity._replace(addr="nowhere")), 1, "broker.identity.addr", id="addr"),
        pytest.param(replace(A, identity=A.identity._replace(cluster="a b")), 1, "broker.identity.cluster", id="name"),
        pytest.param(replace(A, topics={"a/b": QueueConfig(1, 1, 6)}), 1, r"topics\[0\].topic", id="topic"),
        pytest.param(replace(A, topics={"t": QueueConfig(1, 1, 99)}), 1, r"topics\[0\].perm", id="perm"),
        pytest.param(replace(A, expiry=7_200.0), 1, "broker.expiry", id="an-expiry-no-longer-allowed"),
        pytest.param(replace(A, zone="\n"), 1, "broker.zone", id="control-character"),
        pytest.param(A, 0, "holds no generation", id="no-generation"),
        pytest.param(
            replace(A, static_topics=StaticTopics({"orders": MAPPED._replace(broker_name="a b")}, 1)),
            1,
            "breaks a rule: bname",
            id="mapping",
        ),
        pytest.param(
            replace(A, static_topics=StaticTopics({"orders": MAPPED._replace(queue_ids=((0, 0),) * 50_001)}, 1)),
            1,
            "holds 50001 queues of static topics of 50000 allowed",
            id="mappings",
        ),
    ],
)
def test_a_broker_that_breaks_a_rule_is_refused_with_the_field(
    registration: Registration, generation: int, problem: str
) -> None:
    with pytest.raises(ContentRefused, match=problem):
        decode_broker(encode_broker(registration, generation, Health()), bounds=BOUNDS, max_topics=10)


@given(st.binary(max_size=64))
def test_any_bytes_are_read_or_refused(content: bytes) -> None:
    try:
        decode_broker(content, bounds=BOUNDS, max_topics=10)
    except ContentRefused as refused:
        assert str(refused)  # noqa: PT017  # either way is right


@given(
    registration=registrations(),
    planned=st.booleans(),
    unplanned_at=st.none() | st.integers(1, 2_000_000_000).map(float),
)
def test_a_lost_broker_survives_a_round_trip(
    registration: Registration, planned: bool, unplanned_at: float | None
) -> None:
    lost = Lost(replace(registration, health=Health()), "SILENCE", 1_700_000_000.5, planned, unplanned_at)
    assert decode_lost(encode_lost(lost), bounds=BOUNDS, max_topics=100) == lost
