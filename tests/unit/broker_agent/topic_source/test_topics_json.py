"""Parsing of topics.json, and which files are refused."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman_agent.core.topic_set import DataVersion, TopicConfig
from pointsman_agent.topic_source import TopicSourceError
from pointsman_agent.topic_source.followed_file import UnusableFileError
from pointsman_agent.topic_source.topics_json import TopicsJson, TopicTable
from tests.kit.broker.rocketmq.files import topic, topics_json

AS_5_WRITES = b"""{
\t"dataVersion":{
\t\t"counter":3,
\t\t"stateVersion":2,
\t\t"timestamp":1700000000000
\t},
\t"topicConfigTable":{
\t\t"TopicTest":{
\t\t\t"attributes":{
\t\t\t\t"message.type":"NORMAL"
\t\t\t},
\t\t\t"order":false,
\t\t\t"perm":6,
\t\t\t"readQueueNums":8,
\t\t\t"topicFilterType":"SINGLE_TAG",
\t\t\t"topicName":"TopicTest",
\t\t\t"topicSysFlag":0,
\t\t\t"writeQueueNums":4
\t\t},
\t\t"TBW102":{
\t\t\t"order":false,
\t\t\t"perm":7,
\t\t\t"readQueueNums":8,
\t\t\t"topicFilterType":"SINGLE_TAG",
\t\t\t"topicName":"TBW102",
\t\t\t"topicSysFlag":0,
\t\t\t"writeQueueNums":8
\t\t}
\t}
}"""


def parse(content: bytes, *, max_topics: int = 100) -> TopicTable:
    return TopicsJson(max_topics).parse(content)


def is_unusable(content: bytes) -> bool:
    try:
        parse(content)
    except UnusableFileError:
        return True
    return False


def whole(**entry: object) -> bytes:
    return topics_json({"a": {"topicName": "a", **entry}})


def test_reads_what_5_writes() -> None:
    table = parse(AS_5_WRITES)

    assert table.data_version == DataVersion(2, 1_700_000_000_000, 3)
    assert table.topics == (TopicConfig("TBW102", 8, 8, 7), TopicConfig("TopicTest", 8, 4, 6))
    assert table.skipped_count == 0


def test_absent_fields_have_the_defaults_of_the_broker() -> None:
    table = parse(b'{"dataVersion":{"counter":1,"timestamp":5},"topicConfigTable":{"a":{},"b":{"perm":null}}}')

    assert table.data_version == DataVersion(0, 5, 1)
    assert table.topics == (TopicConfig("a", 16, 16, 6, 0), TopicConfig("b", 16, 16, 6, 0))


def test_a_file_cut_at_any_byte_is_unusable() -> None:
    cuts = [AS_5_WRITES[:length] for length in range(len(AS_5_WRITES))]

    assert [len(cut) for cut in cuts if not is_unusable(cut)] == []
    assert not is_unusable(AS_5_WRITES)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(b"", "is empty", id="empty"),
        pytest.param(b" \n", "is empty", id="blank"),
        pytest.param(b"\0" * 400, "is not JSON", id="zeros-after-a-crash"),
        pytest.param(b"\xff\xfe{}", "is not UTF-8", id="binary"),
        pytest.param("\ufeff{}".encode(), "is not JSON", id="byte-order-mark"),
        pytest.param(b"[]", "is not a JSON object", id="list"),
        pytest.param(b"7", "is not a JSON object", id="number"),
        pytest.param(b"{}", "topicConfigTable", id="no-table"),
        pytest.param(b'{"topicConfigTable":[]}', "topicConfigTable", id="table-is-a-list"),
        pytest.param(b'{"dataVersion":{},"topicConfigTable":{}}', "is empty", id="empty-table"),
        pytest.param(b'{"topicConfigTable":{"a":{}}}', "has no object dataVersion", id="no-version"),
        pytest.param(b'{"dataVersion":3,"topicConfigTable":{"a":{}}}', "has no object dataVersion", id="odd-version"),
        pytest.param(topics_json({"a": 7}), "topicConfigTable['a'] is not an object", id="odd-entry"),
        pytest.param(whole(perm="6"), "'a': invalid perm '6'", id="text-for-a-number"),
        pytest.param(whole(perm=True), "'a': invalid perm True", id="flag-for-a-number"),
        pytest.param(whole(readQueueNums=8.0), "invalid readQueueNums 8.0", id="float"),
        pytest.param(whole(readQueueNums=[[1]]), "invalid readQueueNums a list", id="list-for-a-number"),
        pytest.param(whole(readQueueNums={"x": "y"}), "invalid readQueueNums a table", id="table-for-a-number"),
        pytest.param(topics_json({"a": {}}, counter=-1), "invalid counter -1", id="negative-counter"),
        pytest.param(topics_json({"a": {}}, counter=2**63), "invalid counter", id="counter-of-no-java"),
        pytest.param(topics_json({"a": {}}, state_version=-1), "invalid stateVersion -1", id="negative-state"),
        pytest.param(topics_json({"a": {}}, timestamp=2**70), "a number of more than 64 bits", id="huge"),
        pytest.param(
            b'{"dataVersion":{"counter":1e999},"topicConfigTable":{"a":{}}}', "invalid counter inf", id="infinite"
        ),
        pytest.param(b'{"a":' + b"9" * 9_999 + b"}", "is not JSON", id="more-digits-than-python-converts"),
        pytest.param(b"[" * 100_000, "is nested too deep", id="deep-lists"),
        pytest.param(b'{"a":' * 90_000, "is nested too deep", id="deep-objects"),
        pytest.param(b"[" + b"{}," * 9_000 + b"{}]", "more JSON objects", id="objects-without-end"),
        pytest.param(topics_json({"a.b": {}}), "no topic that can be named", id="no-name-of-ours"),
    ],
)
def test_a_file_that_no_broker_wrote_is_refused_with_a_reason(content: bytes, message: str) -> None:
    with pytest.raises(UnusableFileError) as raised:
        parse(content)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("name", "entry", "message"),
    [
        ("a.b", {}, "'a.b' may hold only letters"),
        ("", {}, "'' must not be empty"),
        ("x" * 128, {}, "has 128 characters"),
        ("\ud800", {}, r"'\ud800' may hold only letters"),
        ("b", {"readQueueNums": 65_536}, "'b' has readQueueNums 65536"),
        ("b", {"writeQueueNums": -1}, "'b' has writeQueueNums -1"),
        ("b", {"writeQueueNums": 10**400}, "'b' has writeQueueNums a number of more than 64 bits"),
        ("b", {"perm": 16}, "'b' has perm 16"),
        ("b", {"topicSysFlag": 4}, "'b' has topicSysFlag 4"),
        ("b", {"topicName": "c"}, "'b' is called 'c' in its own entry"),
    ],
)
def test_a_topic_that_cannot_be_registered_is_skipped_and_named(
    name: str, entry: dict[str, object], message: str
) -> None:
    table = parse(topics_json({"a": topic("a"), name: entry}))

    assert [each.topic for each in table.topics] == ["a"]
    assert table.skipped_count == 1
    assert message in table.skipped[0]


def test_of_many_skipped_topics_a_few_are_named() -> None:
    table = parse(topics_json({"a": {}} | {f"x.{i}": {} for i in range(50)}))

    assert (table.skipped_count, len(table.skipped)) == (50, 5)


def test_of_equal_keys_the_last_one_wins_as_in_the_broker() -> None:
    table = parse(
        b'{"dataVersion":{"counter":1,"counter":2},"topicConfigTable":{"a":{"perm":2}},'
        b'"topicConfigTable":{"a":{"perm":4},"a":{"perm":6,"perm":4}}}'
    )

    assert (table.data_version.counter, table.topics) == (2, (TopicConfig("a", 16, 16, 4),))


def test_more_topics_than_allowed_are_rejected_and_the_backup_is_not_read() -> None:
    content = topics_json({f"t{i}": {} for i in range(6)})

    assert len(parse(content, max_topics=6).topics) == 6
    with pytest.raises(TopicSourceError, match=r"holds 6 topics, more than topics.max_topics \(5\)") as raised:
        parse(content, max_topics=5)
    assert not isinstance(raised.value, UnusableFileError)


def test_a_topic_that_did_not_change_is_the_same_object_as_before() -> None:
    reader = TopicsJson(100)
    old = reader.parse(topics_json({"a": topic("a"), "b": topic("b")}, counter=1))
    new = reader.parse(topics_json({"a": topic("a"), "b": topic("b", perm=4)}, counter=2))

    assert new.topics[0] is old.topics[0]
    assert new.topics[1] != old.topics[1]


@pytest.mark.parametrize("count", [1, 999, 1_001, 12_000])
def test_a_table_of_any_size_is_read_in_the_order_of_names(count: int) -> None:
    names = [f"t{(i * 7_919) % count}" for i in range(count)]

    table = parse(
        json.dumps({"topicConfigTable": {n: {} for n in names}, "dataVersion": {}}).encode(), max_topics=count
    )

    assert [each.topic for each in table.topics] == sorted(set(names))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["dataVersion", "topicConfigTable", "counter", "perm", "a", "readQueueNums"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


def outcome(content: bytes) -> object:
    try:
        return parse(content).topics
    except TopicSourceError as error:
        return str(error)


@given(JSON)
def test_no_json_causes_an_internal_error(value: object) -> None:
    assert outcome(json.dumps(value).encode())


@given(st.data())
def test_no_damage_causes_an_internal_error(data: st.DataObject) -> None:
    damaged = bytearray(AS_5_WRITES)
    for _ in range(data.draw(st.integers(1, 5))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    assert outcome(bytes(damaged))
