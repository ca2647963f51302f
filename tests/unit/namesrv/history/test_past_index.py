"""The index beside a history file: what it leaves out is not needed, and it is never needed itself."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from pointsman_namesrv.history import folder, past_files, past_index, past_lines
from pointsman_namesrv.history.past_files import PastFiles
from pointsman_namesrv.history.past_lines import Block, Line, lines_of, texts_of
from tests.kit.history.own_files import write_own_files
from tests.spark.histories import MIDNIGHT, NameServer, broker, moment

DAY = MIDNIGHT.date()
NODE = "ns1:9876"


@pytest.fixture
def history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two packed files, each of many members, and an open one."""
    monkeypatch.setattr(folder, "MEMBER_BYTES", 2_000)
    server = NameServer().start(moment(0))
    for number in range(60):
        about = broker(f"b{number % 20}")
        server.say("REGISTERED", moment(1 + number), about, data_version="0.0.1")
        topics = {f"t{number % 20}": [4, 4, 6, 0]}
        detail = {"part": 1, "parts": 1, "full": True, "topics": topics, "removed": []}
        server.say("TOPICS", moment(1 + number), about, data_version="0.0.1", detail=detail)
        server.say("HEARTBEATS", moment(1 + number), about, detail={"count": 1})
    return write_own_files(tmp_path, server.rows, rows_in_file=70)


def packed_files(history: Path) -> list[Path]:
    return sorted((history / "raw").rglob("*.gz"))


def test_a_packed_file_has_members_that_are_read_alone(history: Path) -> None:
    path = packed_files(history)[0]
    whole = gzip.decompress(path.read_bytes()).splitlines()
    index = past_index.build(path, NODE)

    assert len(index.blocks) > 5
    assert [text for block in index.blocks for _, text in texts_of(path, block)] == whole
    assert [text for _, text in texts_of(path)] == whole


def test_the_blocks_of_a_broker_hold_all_its_rows_and_few_others(history: Path) -> None:
    path = packed_files(history)[0]
    index = past_index.build(path, NODE)
    wanted = [line.text for line in lines_of(path) if line.broker_name == "b3" and line.event != "HEARTBEATS"]

    blocks = index.of_groups([("c1", "b3")])

    found = [line.text for block in blocks for line in lines_of(path, block) if line.broker_name == "b3"]
    assert set(wanted) <= set(found)
    assert len(blocks) < len(index.blocks)
    assert index.of_topic("t3")
    assert len(index.of_topic("t3")) < len(index.blocks)


def test_the_blocks_of_a_broker_are_those_of_its_cluster_and_of_the_node_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder, "MEMBER_BYTES", 100)  # one row for each block
    server = NameServer().start(moment(0))
    server.say("GUARD_ON", moment(1), {"cluster": "c1", "broker_name": None})
    server.say("GUARD_ON", moment(2), {"cluster": "c2", "broker_name": None})
    server.say("REGISTERED", moment(3), broker("a"))
    server.say("REGISTERED", moment(4), broker("b"))
    (path,) = packed_files(write_own_files(tmp_path, server.rows, is_open=False))
    index = past_index.build(path, NODE)

    found = [line for block in index.of_groups([("c1", "a")]) for line in lines_of(path, block)]

    assert [(line.event, line.cluster, line.broker_name) for line in found] == [
        ("NAMESRV_STARTED", None, None),
        ("NAMESRV_READY", None, None),
        ("GUARD_ON", "c1", None),
        ("REGISTERED", "c1", "a"),
    ]


def test_an_index_is_read_again_as_it_was_written_and_only_for_its_file(history: Path, tmp_path: Path) -> None:
    path = packed_files(history)[0]
    index, file = past_index.build(path, NODE), tmp_path / "index.json"
    past_index.save(index, file)

    assert past_index.load(file, size=index.size) == index
    assert past_index.load(file, size=index.size + 1) is None
    for damaged in ("", "{", "[]", '{"version": 1}', json.dumps({"version": 99})):
        file.write_text(damaged)
        assert past_index.load(file, size=index.size) is None


@pytest.mark.parametrize("topics", [past_index.MAX_TOPICS, 3], ids=["indexed", "too many to index"])
def test_answers_do_not_depend_on_the_index(history: Path, topics: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(past_index, "MAX_TOPICS", topics)
    at_us = 2**62

    def answer() -> object:
        found = PastFiles(history, NODE).topic_rows("t3", [DAY], at_us, cluster=None)
        return sorted(row["seq"] for row in found.rows), found.observers

    files = PastFiles(history, NODE)
    first = answer()
    list(files.index_missing())
    assert answer() == first
    for path in (history / "index").rglob("*.json"):
        path.write_text("damaged")
    assert answer() == first
    shutil.rmtree(history / "index")
    assert answer() == first
    assert len(list((history / "index").rglob("*.json"))) == len(packed_files(history))


def test_a_read_with_the_index_leaves_out_what_it_does_not_need(history: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = PastFiles(history, NODE)
    list(files.index_missing())
    read: list[int] = []
    decompress = past_lines._packed

    def counted(file: BinaryIO, block: Block | None) -> Iterator[tuple[bytes, int | None]]:
        for data, end in decompress(file, block):
            read.append(len(data))
            yield data, end

    monkeypatch.setattr(past_lines, "_packed", counted)
    files.topic_rows("t3", [DAY], 2**62, cluster=None)
    with_index, size = sum(read), sum(len(gzip.decompress(path.read_bytes())) for path in packed_files(history))
    assert 0 < with_index < size


def test_what_all_brokers_were_is_read_from_copies_of_the_rows_about_states(
    history: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, read = PastFiles(history, NODE), list[str]()

    def noted(path: Path, *arguments: Any, **options: Any) -> Iterator[Line]:
        read.append(path.name)
        return lines_of(path, *arguments, **options)

    def answer(*, at: float = 1_000.0, cluster: str | None = None) -> object:
        read.clear()
        rows, surroundings = files.latest_rows([DAY], int(moment(at).timestamp() * 1e6), cluster=cluster)
        return sorted(row["seq"] for row in rows.rows), rows.observers, surroundings

    def answers() -> list[object]:
        return [answer(), answer(at=30.0), answer(cluster="c1"), answer(cluster="none"), answer(at=0.0)]

    monkeypatch.setattr(past_files, "lines_of", noted)
    list(files.index_missing())
    found = answers()
    assert answer() == found[0]
    packed = [name for name in read if name.endswith(".gz")]
    assert packed
    assert all(name.endswith(".states.gz") for name in packed), "not the members of the files"

    copies = list((history / "index").rglob("*.states.gz"))
    assert len(copies) == len(packed_files(history))
    copies[0].write_bytes(copies[0].read_bytes()[:-20])
    copies[1].unlink()
    assert answers() == found
    assert answer() == found[0]
    assert not any(name.endswith(".states.gz") for name in read)


def test_indexes_of_removed_files_are_removed(history: Path) -> None:
    files = PastFiles(history, NODE)
    list(files.index_missing())
    packed_files(history)[0].unlink()

    assert files.drop_orphans() == 2, "the index, and the copy of the rows about states"
    assert files.drop_orphans() == 0
    assert len(list((history / "index").rglob("*.json"))) == len(packed_files(history))


def test_a_line_over_two_members_is_in_one_block(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl.gz"
    path.write_bytes(gzip.compress(b"one\ntw") + gzip.compress(b"o\nthree\n") + gzip.compress(b"four\n"))

    texts = list(texts_of(path))
    begins = sorted({begin for begin, _ in texts})

    assert [text for _, text in texts] == [b"one", b"two", b"three", b"four"]
    assert len(begins) == 2
    first = Block(begins[0], begins[1] - begins[0])
    assert [text for _, text in texts_of(path, first)] == [b"one", b"two", b"three"]


@pytest.mark.parametrize("cut", [1, 20, 200])
def test_lines_before_a_damage_are_used(history: Path, cut: int) -> None:
    path = packed_files(history)[0]
    whole = [text for _, text in texts_of(path)]
    path.write_bytes(path.read_bytes()[:-cut])

    found = [text for _, text in texts_of(path)]

    assert found == whole[: len(found)]
    assert 0 < len(found) <= len(whole)


def test_a_large_member_is_read_in_pieces(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl.gz"
    lines = [b"%d" % number * 50 for number in range(20_000)]
    path.write_bytes(gzip.compress(b"\n".join(lines) + b"\n"))

    assert [text for _, text in texts_of(path)] == lines
