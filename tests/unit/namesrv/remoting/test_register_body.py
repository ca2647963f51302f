"""The body of a registration: both forms, in slices, and all its errors."""

from __future__ import annotations

import gc
import json
import time
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman_namesrv.remoting.register_body import (
    MAX_INFLATED_BYTES,
    RegisterBody,
    TopicConfig,
    UnreadableBody,
    Version,
    differing_part,
    mapping_version_span,
    read_data_version,
)
from tests.kit.broker.rocketmq import frames as recorded
from tests.kit.broker.rocketmq.frames import mapping_info, register_body, topic_config

COMPRESSED = bytes.fromhex(
    "000000387b22636f756e746572223a332c22737461746556657273696f6e223a302c2274696d657374616d70223a313730303030303030303030307d"
    "000000020000001d546f706963546573742038203820362053494e474c455f544147207b7d"
    "0000003154425731303220382038203720"
    "53494e474c455f544147207b226d6573736167652e74797065223a224e4f524d414c227d000000025b5d00000000"
)
"""Two topics, as RocketMQ 5.3.3 writes them before zlib."""


def read(body: bytes, *, version: int = 479) -> tuple[RegisterBody, dict[str, TopicConfig]]:
    reader, topics = RegisterBody(), dict[str, TopicConfig]()
    for part in reader.slices(body, version=version):
        topics.update(part)
    return reader, topics


@pytest.mark.parametrize("name", [name for name in recorded.REQUESTS if name.startswith("103")])
def test_recorded_registrations_are_read_completely(name: str) -> None:
    (frame,) = recorded.frames(recorded.request(name))
    reader, topics = read(frame.body)
    table = json.loads(frame.body)["topicConfigSerializeWrapper"]["topicConfigTable"]
    assert topics == {
        topic: (c["readQueueNums"], c["writeQueueNums"], c["perm"], c["topicSysFlag"], 1) for topic, c in table.items()
    }
    assert (reader.bad_topics, reader.mappings, reader.filter_servers) == (0, {}, [])


@pytest.mark.parametrize("version", [479, 407])
def test_a_compressed_body_is_known_by_its_first_byte(version: int) -> None:
    body = zlib.compress(COMPRESSED if version == 479 else COMPRESSED[:-4])
    reader, topics = read(body, version=version)
    assert reader.data_version == Version(0, 1_700_000_000_000, 3)
    assert topics == {"TopicTest": (8, 8, 6, 0, 1), "TBW102": (8, 8, 7, 0, 1)}


def test_a_large_table_comes_in_slices() -> None:
    table = {f"topic-{i}": topic_config(f"topic-{i}", perm=i % 8) for i in range(3_000)}
    slices = list(RegisterBody().slices(register_body(table), version=479))
    assert max(map(len, slices)) <= 500
    assert {topic: config.perm for part in slices for topic, config in part.items()} == {
        topic: i % 8 for i, topic in enumerate(table)
    }


def test_a_bad_topic_does_not_affect_others() -> None:
    table: dict[str, dict[str, object]] = {
        "good": topic_config("good"),
        "text": topic_config("text", perm="6"),
        "half": topic_config("half", readQueueNums=1.5),
        "list": topic_config("list", writeQueueNums=[1]),
        "true": topic_config("true", perm=True),
        "bare": {},
        "last": topic_config("last", attributes={"a": "},"}),
    }
    reader, topics = read(register_body(table))
    assert list(topics) == ["good", "bare", "last"]
    assert topics["bare"] == TopicConfig()
    assert (reader.bad_topics, reader.first_bad) == (4, "text")


def test_a_topic_that_is_not_an_object_or_too_large_does_not_affect_others() -> None:
    body = register_body({"good": topic_config("good"), "after": topic_config("after")})
    large = b'"large":{"perm":6,"attributes":{"a":"' + b'\\"}{' * 5_000 + b'"}},"number":7,"list":[{}],'
    reader, topics = read(body.replace(b'"after":', large + b'"after":'))
    assert list(topics) == ["good", "after"]
    assert (reader.bad_topics, reader.first_bad) == (3, "large")


@pytest.mark.parametrize("name", ["a_made", "a_made_part", "a_moved", "a_moved_part", "b_made", "b_moved"])
def test_the_mappings_of_recorded_static_topics_are_read(name: str) -> None:
    (frame,) = recorded.frames(recorded.static_frame(name))
    reader, topics = read(frame.body)
    wrapper = recorded.read_upstream(frame.body)["topicConfigSerializeWrapper"]
    assert topics.keys() == wrapper["topicConfigTable"].keys()
    said = wrapper["topicQueueMappingInfoMap"]["Static"]
    queue_ids = sorted((int(logical), physical) for logical, physical in said["currIdMap"].items())
    assert len(queue_ids) == {"a_made": 2, "b_made": 2, "a_moved": 0, "b_moved": 4}[name.removesuffix("_part")]
    assert reader.mappings == {
        "Static": (said["bname"], "__global__", 4, said["epoch"], False, tuple(queue_ids)),
    }
    assert (reader.unmapped, reader.bad_topics) == ([], 0)


@pytest.mark.parametrize(
    "fields",
    [
        {"bname": None},
        {"scope": 1},
        {"totalQueues": "4"},
        {"epoch": 1.5},
        {"epoch": True},
        {"dirty": 0},
        {"currIdMap": []},
        {"currIdMap": {"-1": 0}},
        {"currIdMap": {"x": 0}},
        {"currIdMap": {"0": "0"}},
        {"currIdMap": {"0": {"0": 0}}},
        {"currIdMap": {"1" * 10: 0}},
    ],
)
def test_a_mapping_that_cannot_be_read_does_not_affect_others(fields: dict[str, object]) -> None:
    mappings = {"S": mapping_info("a", {0: 0}) | fields, "list": [1], "T": mapping_info("a", {1: 0}, more={"x": [1]})}
    reader, topics = read(register_body(topicQueueMappingInfoMap=mappings))
    assert reader.unmapped == ["S", "list"]
    assert reader.mappings == {"T": ("a", "__global__", 4, 1, False, ((1, 0),))}
    assert list(topics) == ["TopicTest", "Other"]


def test_many_mappings_come_in_slices_and_their_memory_is_counted() -> None:
    many = mapping_info("a", {logical: logical for logical in range(3_000)})
    mappings = {"S": many} | {f"t{i}": mapping_info("a", {}) for i in range(300)}
    reader = RegisterBody()
    slices, memory = 0, 0
    for _ in reader.slices(register_body(topicQueueMappingInfoMap=mappings), version=479):
        slices, memory = slices + 1, max(memory, reader.memory)
    assert len(reader.mappings["S"].queue_ids) == 3_000
    assert slices > 300 + 3_000 / 250
    assert memory > 3_000 * 250 + 300 * 1_000


def test_the_mappings_of_a_compressed_body_are_read() -> None:
    mapping = (
        b'{"bname":"a","currIdMap":{0:0,3:1},"dirty":true,"epoch":7,"scope":"s","topic":"TopicTest","totalQueues":4}'
    )
    mappings = b"".join([bytes.fromhex("00000001"), len(mapping).to_bytes(4, "big"), mapping])
    reader, topics = read(zlib.compress(COMPRESSED[:-4] + mappings), version=513)
    assert reader.mappings == {"TopicTest": ("a", "s", 4, 7, True, ((0, 0), (3, 1)))}
    assert topics.keys() == {"TopicTest", "TBW102"}
    older, _ = read(zlib.compress(COMPRESSED[:-4] + mappings), version=407)
    assert older.mappings == {}


def test_the_bare_wrapper_of_old_brokers_is_read() -> None:
    wrapper = json.loads(register_body(counter=4))["topicConfigSerializeWrapper"]
    reader, topics = read(json.dumps(wrapper, indent=1).encode(), version=35)
    assert reader.data_version.counter == 4
    assert list(topics) == ["TopicTest", "Other"]


def test_without_a_body_there_are_no_topics() -> None:
    assert read(b"")[1] == {}
    assert read(b'{"topicConfigSerializeWrapper":null}')[1] == {}
    assert read_data_version(b"") is None


def test_two_registrations_differ_only_in_the_time_of_sending() -> None:
    one, other = register_body(sent_at=1), register_body(sent_at=22)
    assert one != other
    cut = [body[:start] + body[end:] for body in (one, other) for start, end in [mapping_version_span(body)]]
    assert cut[0] == cut[1]
    assert mapping_version_span(b'{"topicConfigSerializeWrapper":{}}') == (0, 0)


NAMES = ["a", "b", "TopicTest", "%RETRY%g", "x-1", "x-2"]
TABLES = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 7))
MISLEADING = {"a": '8},"b":{"', "writeQueueNums": '8},"'}
"""Attributes that no broker has."""


def table_of(perms: dict[str, int], **fields: object) -> dict[str, dict[str, object]]:
    return {topic: topic_config(topic, perm=perm, **fields) for topic, perm in perms.items()}


@given(TABLES, TABLES, st.booleans())
def test_the_differing_part_and_the_known_topics_form_the_complete_table(
    known: dict[str, int], new: dict[str, int], with_mappings: bool
) -> None:
    mappings = {"x-1": mapping_info("a", {0: 0})} if with_mappings else {}
    before = register_body(table_of(known, attributes=MISLEADING), topicQueueMappingInfoMap=mappings)
    body = register_body(table_of(new, attributes=MISLEADING), counter=7, topicQueueMappingInfoMap=mappings)
    reader, part = read(differing_part(body, before))
    assert part.keys() <= new.keys()
    held = {**read(before)[1], **part}
    assert {topic: held[topic] for topic in new} == read(body)[1]
    assert reader.data_version.counter == 7
    assert reader.mappings.keys() == mappings.keys()


@pytest.mark.parametrize("change", ["nothing", "first", "middle", "last", "added", "removed"])
def test_the_differing_part_of_one_change_is_short(change: str) -> None:
    table = table_of({f"t{i}": 6 for i in range(2_000)})
    known = register_body(table)
    if change == "removed":
        del table["t1000"]
    elif change != "nothing":
        name = {"first": "t0", "middle": "t1000", "last": "t1999", "added": "new"}[change]
        table[name] = topic_config(name, perm=4)
    assert len(differing_part(register_body(table, counter=2), known)) < 1_000


@pytest.mark.parametrize("name", ["103_broker497_small_r0", "103_broker533_small_r0"])
def test_recorded_registrations_have_a_differing_part(name: str) -> None:
    (frame,) = recorded.frames(recorded.request(name))
    changed = frame.body.replace(b'"perm":6', b'"perm":4', 1)
    part = differing_part(changed, frame.body)
    assert len(part) < len(changed) / 2
    (topic,) = (topic for topic, config in read(changed)[1].items() if config != read(frame.body)[1][topic])
    assert read(part)[1][topic].perm == 4


@pytest.mark.parametrize(
    "body", [b"", b"{}", zlib.compress(COMPRESSED), b'{"topicConfigTable":{', register_body({"t": topic_config("t")})]
)
def test_a_body_unlike_any_other_differs_completely(body: bytes) -> None:
    assert differing_part(body, b"") == differing_part(body, b'{"a":1}') == body


@pytest.mark.parametrize(
    "body",
    [
        b"nonsense",
        b"[]",
        b"{",
        b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"a":{}',
        b'{"topicConfigSerializeWrapper":{"dataVersion":[]}}',
        b'{"topicConfigSerializeWrapper":{"dataVersion":{"counter":-1}}}',
        b'{"topicConfigSerializeWrapper":{"dataVersion":{"counter":9223372036854775808}}}',
        b'{"a" 1}',
        b'{"a":1 ;}',
        b'{"a":}',
        b'{"filterServerList":[' + b'"x",' * 50_000 + b'"x"]}',
        b'{"a":"' + b"x" * 600_000,
        zlib.compress(COMPRESSED)[:-9],
        b"\x78\xdaxxxx",
        zlib.compress(COMPRESSED[:100]),
        zlib.compress(b"\x00\x00\x00\x02{}\x7f\xff\xff\xff"),
        zlib.compress(b"\xff\xff\xff\xff"),
    ],
)
def test_what_cannot_be_read_is_refused(body: bytes) -> None:
    with pytest.raises(UnreadableBody):
        read(body)


def test_a_zip_bomb_is_refused() -> None:
    bomb = zlib.compress(bytes(3 * MAX_INFLATED_BYTES))
    assert len(bomb) < 200_000
    with pytest.raises(UnreadableBody, match="inflates to more than"):
        read(bomb)


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    for data in (body, b"{" + body, zlib.compress(body)):
        try:
            read(data)
        except UnreadableBody:
            continue


@given(st.integers(0, 10_000), st.binary(min_size=1, max_size=4))
def test_a_registration_with_other_bytes_in_it_is_read_or_refused(at: int, patch: bytes) -> None:
    body = bytearray(register_body({f"t{i}": topic_config(f"t{i}") for i in range(20)}))
    at %= len(body)
    body[at : at + len(patch)] = patch
    try:
        read(bytes(body))
    except UnreadableBody:
        return


def _bombs() -> dict[str, bytes]:
    size = 1024 * 1024
    inner = b'{"topicConfigSerializeWrapper":'
    return {
        "many keys": b'{"a":1' + b',"a":1' * (size // 6) + b"}",
        "one string": b'{"a":"' + b"x" * size + b'"}',
        "one number": b'{"a":[' + b"7" * size + b"]}",
        "deep": b'{"a":' + b"[" * size,
        "deep table": b'{"topicConfigTable":{"t":' + b"[" * size,
        "wrappers": inner * (size // len(inner)),
        "no topics": b'{"topicConfigTable":{' + b'"a":7,' * (size // 6) + b'"a":7}}',
        "broken topics": b'{"topicConfigTable":{' + b'"a":{"perm":9},' * (size // 15) + b'"a":[}',
        "far texts": b'{"topicConfigTable":{' + b'"a":{"b":"' + b'x\\"' * (size // 3) + b'"}}}',
        "not ASCII": ('{"a":"' + "é" * (size // 2) + '"}').encode(),
    }


def _longest_step(body: bytes) -> float:
    steps, longest = RegisterBody().slices(body, version=479), 0.0
    gc.disable()  # a round over all that the tests have loaded does not belong to a step
    try:
        while True:
            started = time.process_time()
            part = next(steps, None)
            longest = max(longest, time.process_time() - started)
            if part is None:
                return longest
    except UnreadableBody:
        return longest
    finally:
        gc.enable()


@pytest.mark.parametrize("kind", _bombs())
def test_no_step_is_long_for_any_bytes(kind: str) -> None:
    # About 1 ms on a quiet machine; the bound is between a step and a complete body, which needs at least 0.2 s. A busy
    # machine may hold up any step, so the shortest of some runs counts.
    assert any(_longest_step(_bombs()[kind]) < 0.1 for _ in range(5))
