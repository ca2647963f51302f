"""What goes into a segment comes out the same, and nothing comes out that the wire would have refused."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from namesrv.core.guard import GuardMode, GuardSetting
from namesrv.core.kv import KvEntry
from namesrv.core.maintenance import MaintenanceWindow
from namesrv.core.model import (
    BrokerIdentity,
    DataVersion,
    Evidence,
    GroupKey,
    Health,
    ProbeVerdict,
    QueueConfig,
    Registration,
)
from namesrv.core.validation import IntervalBounds
from namesrv.snapshot.codec import OperatorState, decode_broker, decode_operator, encode_broker, encode_operator
from namesrv.snapshot.segment import SegmentRefused
from pointsman.v1 import snapshot_pb2

BOUNDS = IntervalBounds()
UTC_NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)

names = st.from_regex(r"[%|a-zA-Z0-9_-]{1,20}", fullmatch=True)
texts = st.text(st.characters(exclude_categories=("C", "Z")), max_size=20)
addrs = st.builds("{}:{}".format, st.from_regex(r"[a-z]([a-z0-9]{0,8})", fullmatch=True), st.integers(1, 65_535))
uint64s = st.integers(0, 2**64 - 1)
versions = st.builds(DataVersion, uint64s, st.integers(-(2**63), 2**63 - 1), uint64s)
queues = st.builds(QueueConfig, st.integers(0, 65_535), st.integers(0, 65_535), st.integers(0, 15), st.integers(0, 3))
ever_passed = st.sampled_from([None, False, True])
# Evidence belongs to a probe that fails.
healths = st.builds(Health, st.sampled_from(ProbeVerdict), texts, st.just(Evidence.WEAK), ever_passed) | st.builds(
    Health, st.just(ProbeVerdict.FAILING), texts, st.just(Evidence.STRONG), ever_passed
)


@st.composite
def registrations(draw: st.DrawFn) -> Registration:
    # As the wire brings them: whole nanoseconds, and an expiry of at least three intervals.
    seconds, nanos = draw(st.integers(1, 299)), draw(st.integers(0, 999_999_999))
    more_seconds, more_nanos = draw(st.integers(0, 2_000)), draw(st.integers(0, 999_999_999))
    expiry_nanos = 3 * (seconds * 10**9 + nanos) + more_seconds * 10**9 + more_nanos + 1
    return Registration(
        identity=draw(st.builds(BrokerIdentity, names, names, st.integers(0, 2**31 - 1), addrs)),
        topics=draw(st.dictionaries(names, queues, max_size=8)),
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
def test_a_broker_comes_out_as_it_went_in_with_the_health_that_it_had_last(
    registration: Registration, generation: int, health: Health
) -> None:
    content = encode_broker(registration, generation, health)
    assert decode_broker(content, bounds=BOUNDS, max_topics=8) == (replace(registration, health=health), generation)


def test_a_broker_of_many_topics_comes_out_as_it_went_in() -> None:
    topics = {f"t{i}": QueueConfig(4, 4, 6) for i in range(12_001)}
    registration = Registration(identity=BrokerIdentity("c", "a", 0, "h:1"), topics=topics)
    content = encode_broker(registration, 7, Health())
    assert decode_broker(content, bounds=BOUNDS, max_topics=12_001)[0].topics == topics
    with pytest.raises(SegmentRefused, match=r"holds 12001 topics of 12000 allowed"):
        decode_broker(content, bounds=BOUNDS, max_topics=12_000)


A = Registration(identity=BrokerIdentity("c", "a", 0, "h:1"), topics={"orders": QueueConfig(4, 4, 6)})


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
    ],
)
def test_a_broker_that_breaks_a_rule_is_refused_with_the_field(
    registration: Registration, generation: int, problem: str
) -> None:
    with pytest.raises(SegmentRefused, match=problem):
        decode_broker(encode_broker(registration, generation, Health()), bounds=BOUNDS, max_topics=10)


@given(st.binary(max_size=64))
def test_any_bytes_are_read_or_refused(content: bytes) -> None:
    for decode in (
        lambda: decode_broker(content, bounds=BOUNDS, max_topics=10),
        lambda: decode_operator(content, now=0.0, utc_now=UTC_NOW),
    ):
        try:
            decode()
        except SegmentRefused as refused:
            assert str(refused)  # noqa: PT017  # either way is right


# --- operators ------------------------------------------------------------------------------------------------

STATE = OperatorState(
    kv=(KvEntry("ORDER_TOPIC_CONFIG", "orders", "a:4;b:4"), KvEntry("limits", "clients", "3")),
    wipes={GroupKey("c", "a"): "run-1", GroupKey("c", "b"): ""},
    tombstones={GroupKey("c", "a"): {"old": DataVersion(1, 2, 3), "older": DataVersion()}},
    windows=(
        MaintenanceWindow(key=GroupKey("c", ""), until=160.0, note="power", by="ann"),
        MaintenanceWindow(key=GroupKey("c", "a"), until=3_700.5, by="bob"),
    ),
    guards=(GuardSetting("c", GuardMode.HOLD, None), GuardSetting("d", GuardMode.OFF, 160.0)),
)


def through_the_disk(state: OperatorState, *, elapsed: timedelta = timedelta(0), now: float = 5.0) -> OperatorState:
    """Saved at 100 s of one boot, loaded at ``now`` of the next, when the wall clock says ``elapsed`` later."""
    content = encode_operator(state, now=100.0, utc_now=UTC_NOW)
    return decode_operator(content, now=now, utc_now=UTC_NOW + elapsed)


def test_what_operators_set_comes_out_as_it_went_in() -> None:
    out = through_the_disk(STATE, now=100.0)
    assert out == STATE


@pytest.mark.parametrize(
    ("elapsed", "remaining"),
    [
        pytest.param(timedelta(0), {"": 60.0, "a": 3_600.5}, id="at-once"),
        pytest.param(timedelta(seconds=30), {"": 30.0, "a": 3_570.5}, id="after-a-while"),
        pytest.param(timedelta(seconds=60), {"a": 3_540.5}, id="one-is-over"),
        pytest.param(timedelta(days=2), {}, id="both-are-over"),
        pytest.param(-timedelta(days=365), {"": 60.0, "a": 3_600.5}, id="a-clock-set-back-lengthens-nothing"),
    ],
)
def test_a_window_has_the_time_left_that_it_had_less_what_passed(
    elapsed: timedelta, remaining: dict[str, float]
) -> None:
    windows = through_the_disk(STATE, elapsed=elapsed, now=5.0).windows
    assert {window.key.broker_name: window.until - 5.0 for window in windows} == remaining


def test_a_guard_that_was_told_for_a_time_has_what_is_left_of_it() -> None:
    hold, off = STATE.guards
    later = through_the_disk(STATE, elapsed=timedelta(seconds=20), now=5.0).guards
    assert later == (hold, off._replace(until=45.0))
    assert through_the_disk(STATE, elapsed=timedelta(seconds=60)).guards == (hold,)


def test_a_window_that_is_over_is_not_written() -> None:
    over = MaintenanceWindow(key=GroupKey("c", ""), until=100.0)
    assert through_the_disk(OperatorState(windows=(over,)), elapsed=-timedelta(days=1)).windows == ()


@pytest.mark.parametrize(
    ("part", "problem"),
    [
        pytest.param({"kv": [{"namespace": "a/b", "key": "k", "value": "v"}]}, "namespace", id="kv-name"),
        pytest.param(
            {"kv": [{"namespace": "ORDER_TOPIC_CONFIG", "key": "t", "value": "?"}]}, "value", id="order-configuration"
        ),
        pytest.param({"wipes": [{"cluster": "", "broker_name": "a"}]}, r"wipes\[0\].cluster", id="wipe-name"),
        pytest.param(
            {"wipes": [{"cluster": "c", "broker_name": "a", "incarnation": "x" * 129}]}, "incarnation", id="incarnation"
        ),
        pytest.param(
            {"tombstones": [{"topic": "a b", "cluster": "c", "broker_name": "a"}]}, r"tombstones\[0\].topic", id="topic"
        ),
        pytest.param({"maintenance": [{"cluster": "c", "note": "\0"}]}, r"maintenance\[0\].note", id="note"),
        pytest.param(
            {"maintenance": [{"cluster": "c", "remaining": timedelta(days=8)}]},
            r"maintenance\[0\].remaining",
            id="long",
        ),
    ],
)
def test_what_operators_cannot_have_set_is_refused_with_the_field(part: dict[str, Any], problem: str) -> None:
    content = snapshot_pb2.OperatorSegment(**part).SerializeToString()
    with pytest.raises(SegmentRefused, match=problem):
        decode_operator(content, now=0.0, utc_now=UTC_NOW)
