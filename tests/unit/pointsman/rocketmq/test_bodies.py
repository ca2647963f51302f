"""JSON as RocketMQ's name servers write it, also from peers that mean harm."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pointsman.rocketmq.bodies import MAX_SHOWN, BadBodyError, read_json, read_object, shown


def test_bare_keys_are_read_where_no_text_is() -> None:
    assert read_json(b'{0:"{1:2}",-1:{"a,2:\\"":3}}') == {"0": "{1:2}", "-1": {'a,2:"': 3}}


@pytest.mark.parametrize("unit", [b'\\"', b'"', b"\\\n", b'{1:"",', b",a", b"{"])
def test_the_time_for_a_body_that_is_not_json_is_linear_in_its_size(unit: bytes) -> None:
    # Half a megabyte: with time that grows as the square, each would take minutes.
    with pytest.raises(ValueError, match=r"line 1|nested"):
        read_json(b'{1:"' + unit * (500_000 // len(unit)))


@pytest.mark.parametrize(
    "body",
    [
        b'{"x":[' + b"[]," * 300_000 + b"[]]}",
        b'{"x":[' + b"{}," * 300_000 + b"{}]}",
        b"{" + b",".join(b"%d:1" % number for number in range(300_001)) + b"}",
        b'{"x":[' + b"1," * 600_000 + b"1]}",
    ],
    ids=["lists", "objects", "bare-keys", "numbers"],
)
def test_a_body_with_too_many_items_is_refused_before_it_is_parsed(
    body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("json.loads", None)
    with pytest.raises(
        BadBodyError, match=r"^the body b'.* has 600\d{3} brackets, commas and colons, at most 600000 are"
    ):
        read_object(body)


def test_texts_count_too() -> None:
    """A body that is not JSON may have no commas, and each text would become a value where bare keys are looked for."""
    with pytest.raises(BadBodyError, match="has 600001 texts, at most 600000 are read"):
        read_object(b"{1:" + b'""' * 600_001)


def test_a_body_with_as_many_items_as_the_largest_fleet_is_read() -> None:
    group = (
        '"broker-%d":{"brokerAddrs":{0:"10.0.0.1:10911",1:"10.0.0.2:10911",2:"10.0.0.3:10911"},"brokerName":"broker-%d",'
        '"cluster":"DefaultCluster","enableActingMaster":false,"zoneName":"z1"}'
    )
    groups = ",".join(group % (number, number) for number in range(20_000))
    names = ",".join(f'"broker-{number}"' for number in range(20_000))
    body = f'{{"brokerAddrTable":{{{groups}}},"clusterAddrTable":{{"DefaultCluster":[{names}]}}}}'
    table = read_object(body.encode())["brokerAddrTable"]
    assert isinstance(table, dict)
    assert len(table) == 20_000
    topics = ",".join(f'"topic-{number}"' for number in range(500_000))
    assert len(str(read_object(f'{{"topicList":[{topics}]}}'.encode())["topicList"])) > 500_000


@pytest.mark.parametrize(
    "value",
    [None, True, 7, "a'b", b"\xff", [], {}, [[], {"a": [1, None]}], {"a": {"b": "c"}, "d": [1.5]}],
)
def test_a_short_value_is_shown_as_python_writes_it(value: object) -> None:
    assert shown(value) == repr(value)


@pytest.mark.parametrize(
    "value",
    ["x" * 500, b"x" * 500, list(range(500)), {str(number): [number] for number in range(500)}, [["x" * 500]]],
    ids=["text", "bytes", "list", "object", "nested"],
)
def test_a_long_value_is_cut(value: object) -> None:
    assert shown(value) == f"{repr(value)[:MAX_SHOWN]}..."


def test_a_long_value_is_cut_before_it_is_written_out() -> None:
    class Members(list[object]):
        """A list that fails when more than a hundred of its members are read."""

        def __iter__(self) -> Iterator[object]:
            yield from [1] * MAX_SHOWN
            raise AssertionError("the rest was read")

    assert shown(Members()) == f"{repr([1] * 50)[:MAX_SHOWN]}..."
    deep: list[object] = []
    for _ in range(900):
        deep = [deep]
    assert shown(deep) == "[" * MAX_SHOWN + "..."
