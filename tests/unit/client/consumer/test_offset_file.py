"""The form of the file of offsets."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman_client.consumer.offset_file import (
    EPOCH,
    DamagedOffsetsError,
    FileContent,
    decode,
    encode,
    offset_file_path,
)
from pointsman_client.core.message_queue import MessageQueue

NAMES = st.text("abcXYZ09%|_-", min_size=1, max_size=127)
QUEUES = st.builds(MessageQueue, NAMES, NAMES, NAMES, st.integers(0, 65_534))


BEGINS = st.dictionaries(NAMES, st.integers(0, 2**42).map(lambda millis: EPOCH + timedelta(milliseconds=millis)))


@given(st.dictionaries(QUEUES, st.integers(0, 2**64 - 1), max_size=20), BEGINS)
def test_what_is_written_is_read(offsets: dict[MessageQueue, int], begins: dict[str, datetime]) -> None:
    content = FileContent(offsets, begins)
    assert decode(encode(content)) == content


def test_a_file_without_begins_is_read() -> None:
    data = json.dumps({"format": "pointsman-client-offsets", "version": 1, "offsets": [["orders", "c", "a", 0, 7]]})
    assert decode(data.encode()) == FileContent({MessageQueue("orders", "c", "a", 0): 7}, {})


@given(st.dictionaries(QUEUES, st.integers(0, 2**64 - 1), min_size=1, max_size=5), st.data())
def test_a_file_that_is_cut_off_is_damaged(offsets: dict[MessageQueue, int], data: st.DataObject) -> None:
    whole = encode(FileContent(offsets, {})).rstrip()
    with pytest.raises(DamagedOffsetsError):
        decode(whole[: data.draw(st.integers(0, len(whole) - 1))])


@given(st.binary(max_size=200))
def test_bytes_of_any_kind_are_read_or_damaged(data: bytes) -> None:
    with pytest.raises(DamagedOffsetsError):
        decode(data)


@pytest.mark.parametrize("row", [["or ders", 1], ["orders", -1], ["orders", 1.5], ["orders"], ["orders", 10**30], None])
def test_a_begin_that_no_consumer_writes_is_damage(row: object) -> None:
    content = {"format": "pointsman-client-offsets", "version": 1, "offsets": [], "begins": [row]}
    with pytest.raises(DamagedOffsetsError):
        decode(json.dumps(content).encode())


@pytest.mark.parametrize(
    "row",
    [
        ["orders", "c", "a", 0],
        ["orders", "c", "a", 0, -1],
        ["orders", "c", "a", 0, 2**64],
        ["orders", "c", "a", 0, 1.5],
        ["orders", "c", "a", -1, 0],
        ["orders", "c", "a", 65_535, 0],
        ["or ders", "c", "a", 0, 0],
        ["orders", "", "a", 0, 0],
        {"topic": "orders"},
        None,
    ],
)
def test_a_row_that_no_consumer_writes_is_damage(row: object) -> None:
    with pytest.raises(DamagedOffsetsError):
        decode(json.dumps({"format": "pointsman-client-offsets", "version": 1, "offsets": [row]}).encode())


def test_each_group_and_client_has_a_file_of_its_own_that_any_file_system_takes() -> None:
    folder = Path("/offsets")
    ids = ["10.0.0.1@DEFAULT", "../../etc@1", "a/b@1", "a%2Fb@1", "x" * 250 + "@1", "x" * 250 + "@2", "ä@1"]
    paths = {offset_file_path(folder, group=group, client_id=each) for each in ids for group in ("g", "%RETRY%g")}
    assert len(paths) == 2 * len(ids)
    for path in paths:
        assert path.parent.parent == folder
        assert path.resolve() == path
        assert all(len(part.encode()) <= 255 for part in path.parts)
    assert offset_file_path(folder, group="g", client_id="10.0.0.1@DEFAULT") == folder / "10.0.0.1@DEFAULT" / "g.json"
