"""Topics from files laid out as by a RocketMQ broker, in every state that a reader can find them in."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pointsman.clock import Clock, SystemClock
from pointsman_agent.core.topic_set import AMENDED_BIT, DataVersion, TopicConfig, TopicSet
from pointsman_agent.topic_source import TopicSourceError
from pointsman_agent.topic_source.rocketmq import TRIES, RocketmqTopicSource, load_broker_conf
from pointsman_agent.topic_source.topic_follower import TopicFollower
from tests.kit.broker.rocketmq.files import (
    FIRST_COUNTER,
    ORDERS,
    RACE_TOPICS,
    replace_file,
    replacing,
    topic,
    topics_json,
    topics_path,
)
from tests.kit.waiting import InstantClock, eventually

ROOT = Path(__file__).parents[4]
SYSTEM_TOPICS = {name: topic(name, perm=7) for name in ("TBW102", "DefaultCluster", "%RETRY%group")}


@pytest.fixture
def main(tmp_path: Path) -> Path:
    return topics_path(tmp_path)


@pytest.fixture
def backup(main: Path) -> Path:
    return main.with_name("topics.json.bak")


def source_of(
    store: Path, *, clock: Clock | None = None, broker_conf: str = "", max_topics: int = 1_000
) -> RocketmqTopicSource:
    return RocketmqTopicSource(
        store_path=str(store),
        broker_conf=broker_conf,
        max_topics=max_topics,
        clock=clock or InstantClock(),
        environment={},
    )


def write(path: Path, whole: bytes) -> None:
    path.write_bytes(whole)


def content(counter: int = 3, **perms: int) -> bytes:
    return topics_json(SYSTEM_TOPICS | {name: topic(name, perm=perm) for name, perm in perms.items()}, counter=counter)


def counter(topics: TopicSet) -> int:
    return topics.data_version.counter


def perms(topics: TopicSet) -> dict[str, int]:
    return {each.topic: each.perm for each in topics.topics}


@pytest.mark.parametrize("order", ORDERS)
async def test_reads_what_a_broker_of_each_line_has_written(order: str, tmp_path: Path, main: Path) -> None:
    replace_file(order, main, content(1, orders=6))
    replace_file(order, main, content(2, orders=6, bills=4))

    topics = await source_of(tmp_path).read()

    assert topics.data_version == DataVersion(0, 1_700_000_000_000, 2)
    assert perms(topics) == {"%RETRY%group": 7, "DefaultCluster": 7, "TBW102": 7, "bills": 4, "orders": 6}
    assert topics.topics == tuple(sorted(topics.topics))


async def test_reads_a_file_of_4_9_without_state_version_and_attributes(tmp_path: Path, main: Path) -> None:
    old = {key: value for key, value in topic("orders").items() if key != "attributes"}
    write(main, topics_json({"orders": old}, state_version=None, counter=7))

    topics = await source_of(tmp_path).read()

    assert topics == TopicSet((TopicConfig("orders", 8, 8, 6),), DataVersion(0, 1_700_000_000_000, 7))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("is_new", [False, True], ids=["knowing-the-old-one", "knowing-nothing"])
async def test_at_every_step_of_a_replacement_a_read_gives_the_old_version_or_the_new_one(
    order: str, is_new: bool, tmp_path: Path, main: Path
) -> None:
    replace_file(order, main, content(1, orders=6))
    replace_file(order, main, content(2, orders=6))
    source = source_of(tmp_path)
    seen = [] if is_new else [counter(await source.read())]
    steps = replacing(order, main, content(3, orders=4))

    for step in steps:
        topics = await (source_of(tmp_path) if is_new else source).read()
        seen.append(counter(topics))
        assert perms(topics)["orders"] == {2: 6, 3: 4}[counter(topics)], step

    assert seen == sorted(seen)
    assert set(seen) == {2, 3}


@pytest.mark.parametrize("order", ORDERS)
async def test_a_file_rewritten_while_the_reader_waits_is_read_without_its_backup(
    order: str, tmp_path: Path, main: Path, caplog: pytest.LogCaptureFixture
) -> None:
    replace_file(order, main, content(1))
    steps: Iterator[str] = iter(())
    source = source_of(tmp_path, clock=InstantClock(on_sleep=lambda: list(steps)))
    for number in range(2, 8):
        before = counter(await source.read())
        steps = replacing(order, main, content(number))
        for _ in range(number):
            next(steps, None)
        assert counter(await source.read()) in {before, number}
        for _ in steps:
            pass

    assert "topics.json.bak" not in caplog.text


@pytest.mark.parametrize("order", ORDERS)
async def test_a_reader_that_races_a_writer_only_sees_complete_versions(
    order: str, tmp_path: Path, main: Path, full: bool
) -> None:
    writer = subprocess.Popen(  # noqa: ASYNC220  # forking takes a millisecond
        [sys.executable, "-m", "tests.kit.broker.rocketmq.files", order, str(tmp_path)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert writer.stdin is not None
    seen: list[int] = []
    failed = 0
    try:
        await eventually(lambda: main.exists() and main.with_name("topics.json.bak").exists())
        # Without waits in between, as many reads as possible fall into a write.
        source = source_of(tmp_path)
        ends_at = time.monotonic() + (2.0 if full else 0.5)
        while time.monotonic() < ends_at or len(set(seen)) <= 10:
            try:
                topics = await source.read()
            except TopicSourceError:
                failed += 1  # main and backup were both written during the read; the last result applies
                continue
            assert [each.read_queue_nums for each in topics.topics] == [counter(topics)] * RACE_TOPICS
            seen.append(counter(topics))
    finally:
        writer.stdin.close()
        assert writer.wait(60) == 0
    assert seen[-1] > FIRST_COUNTER
    last = await source.read()
    assert counter(last) == counter(await source_of(tmp_path).read())
    assert seen == sorted(seen)


@pytest.mark.parametrize("is_known", [True, False], ids=["after-a-good-read", "as-the-first-read"])
async def test_a_file_cut_at_any_byte_is_replaced_by_its_backup(
    is_known: bool, tmp_path: Path, main: Path, backup: Path
) -> None:
    whole = content(4, orders=4)
    write(backup, content(3, orders=6))
    source = source_of(tmp_path)
    if is_known:
        write(main, content(3, orders=6))
        await source.read()
    for length in range(0, len(whole), 7 if is_known else 11):
        write(main, whole[:length])
        topics = await (source if is_known else source_of(tmp_path)).read()
        assert (counter(topics), perms(topics)["orders"]) == (3, 6), length
    write(main, whole)
    assert counter(await source.read()) == 4


async def test_with_both_copies_cut_at_any_byte_the_last_good_state_stays(
    tmp_path: Path, main: Path, backup: Path
) -> None:
    whole = content(4, orders=4)
    write(main, content(3, orders=6))
    changes: list[TopicSet] = []
    source = source_of(tmp_path)
    follower = TopicFollower(source, clock=SystemClock(), interval=0.001, timeout=20, on_change=changes.append)
    task = asyncio.create_task(follower.run())
    try:
        await eventually(lambda: bool(changes))
        for length in range(0, len(whole), 29):
            write(main, whole[:length])
            write(backup, whole[: length // 2])
            problem = await _read_problem(source_of(tmp_path))
            assert f"{main}: " in problem
            assert f"{backup}: " in problem
        assert [counter(each) for each in changes] == [3]
        await eventually(lambda: bool(follower.state.problem))

        write(main, whole)
        await eventually(lambda: len(changes) == 2)
        assert follower.topics == changes[-1] == await source_of(tmp_path).read()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _read_problem(source: RocketmqTopicSource) -> str:
    with pytest.raises(TopicSourceError) as raised:
        await source.read()
    return str(raised.value)


@pytest.mark.parametrize(
    "foreign",
    [b"", b"{}", b"[" * 50_000, b'{"a":' * 50_000, b"null", b'{"topicConfigTable":{}}', b"9" * 5_000, b"\x80abc"],
)
async def test_foreign_content_keeps_the_last_good_state(foreign: bytes, tmp_path: Path, main: Path) -> None:
    write(main, content(3))
    source = source_of(tmp_path)
    good = await source.read()
    write(main, foreign)

    assert str(main) in await _read_problem(source)

    write(main, content(3))
    assert await source.read() == good


async def test_nothing_there_is_an_error_that_names_both_files(tmp_path: Path, main: Path, backup: Path) -> None:
    assert await _read_problem(source_of(tmp_path)) == f"{main}: is missing; {backup}: is missing"


async def test_a_file_that_cannot_be_opened_is_not_replaced_by_an_older_backup(
    tmp_path: Path, main: Path, backup: Path
) -> None:
    write(backup, content(2))
    os.mkdir(main)

    assert await _read_problem(source_of(tmp_path)) == f"{main}: is not a regular file"


async def test_use_of_the_backup_is_logged_once_and_so_is_its_end(
    tmp_path: Path, main: Path, backup: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    write(backup, content(2))
    source = source_of(tmp_path)
    for _ in range(3):
        assert counter(await source.read()) == 2
    write(main, content(3))
    for _ in range(3):
        assert counter(await source.read()) == 3

    assert [record.message for record in caplog.records] == [
        "topics are read from topics.json.bak",
        "topics are read from topics.json again",
    ]


async def test_a_missing_file_is_waited_for_before_its_backup_counts(tmp_path: Path, main: Path, backup: Path) -> None:
    write(backup, content(2))
    clock = InstantClock()
    started_at = clock.monotonic()
    source = source_of(tmp_path, clock=clock)
    waits = 0

    def arrive_late() -> None:
        nonlocal waits
        waits += 1
        if waits == TRIES - 1:
            write(main, content(3))

    clock.on_sleep = arrive_late

    assert counter(await source.read()) == 3
    assert 0 < clock.monotonic() - started_at < 1


@pytest.mark.parametrize(("counters", "expected"), [((5, 4), 4), ((5, 500), 500), ((0, 2**62), 2**62)])
async def test_counters_are_only_compared_for_equality(
    counters: tuple[int, int], expected: int, tmp_path: Path, main: Path
) -> None:
    source = source_of(tmp_path)
    for each in counters:
        write(main, content(each))
        last = await source.read()
    assert counter(last) == expected


async def test_topics_with_invalid_names_are_logged_once(
    tmp_path: Path, main: Path, caplog: pytest.LogCaptureFixture
) -> None:
    counts: list[int] = []
    source = RocketmqTopicSource(
        store_path=str(tmp_path),
        broker_conf="",
        max_topics=100,
        clock=InstantClock(),
        environment={},
        on_skipped=counts.append,
    )
    write(main, topics_json({"orders": topic("orders"), "or.ders": topic("or.ders")}, counter=1))
    for number in (2, 3):
        assert [each.topic for each in (await source.read()).topics] == ["orders"]
        write(main, topics_json({"orders": topic("orders"), "or.ders": topic("or.ders")}, counter=number))
    write(main, topics_json({"orders": topic("orders")}, counter=4))
    await source.read()

    assert counts == [1, 0]
    assert [record.message for record in caplog.records] == ["ignored topics that cannot be registered"]


async def test_more_topics_than_allowed_keep_the_last_good_state(tmp_path: Path, main: Path, backup: Path) -> None:
    write(backup, topics_json({"old": topic("old")}))
    write(main, topics_json({f"t{i}": topic(f"t{i}") for i in range(11)}))

    assert "holds 11 topics, more than topics.max_topics (10)" in await _read_problem(
        source_of(tmp_path, max_topics=10)
    )


async def test_a_file_beyond_the_bound_of_bytes_is_not_read(tmp_path: Path, main: Path) -> None:
    write(main, content(3))
    os.truncate(main, 2**40)

    assert "bytes" in await _read_problem(source_of(tmp_path, max_topics=10))


async def test_the_permission_of_the_broker_masks_those_of_the_topics_and_is_followed(
    tmp_path: Path, main: Path
) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("brokerName=a\n")
    write(main, content(3, orders=6, audit=4))
    source = source_of(tmp_path, broker_conf=str(conf))
    plain = await source.read()

    conf.write_text("brokerName=a\nbrokerPermission=4\n")
    masked = await source.read()
    again = await source_of(tmp_path, broker_conf=str(conf)).read()
    conf.write_text("brokerName=a\nbrokerPermission=6\n")
    back = await source.read()

    assert perms(plain) == {"%RETRY%group": 7, "DefaultCluster": 7, "TBW102": 7, "audit": 4, "orders": 6}
    assert perms(masked) == {"%RETRY%group": 4, "DefaultCluster": 4, "TBW102": 4, "audit": 4, "orders": 4}
    assert plain.data_version == back.data_version == DataVersion(0, 1_700_000_000_000, 3)
    # The broker counts on in memory and does not write: its version would make no name server request the masked ones.
    assert masked.data_version.counter & AMENDED_BIT
    assert masked == again


async def test_topics_that_changed_without_their_version_get_another_one_until_it_changes(
    tmp_path: Path, main: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = source_of(tmp_path)
    versions = []
    for each in (content(3, orders=6), content(3, orders=4), content(3, orders=6), content(4, orders=4)):
        write(main, each)
        topics = await source.read()
        versions.append(counter(topics))
        assert perms(topics)["orders"] == (6 if b'"perm":6' in each else 4)

    assert (versions[0], versions[2], versions[3]) == (3, 3, 4)
    assert versions[1] & AMENDED_BIT
    assert caplog.text.count("topics changed without their DataVersion") == 1


async def test_a_broker_conf_that_is_being_written_changes_nothing(tmp_path: Path, main: Path) -> None:
    conf = tmp_path / "broker.conf"
    whole = "brokerName=a\nbrokerPermission=4\n"
    conf.write_text(whole)
    write(main, content(3, orders=6))
    clock = InstantClock(on_sleep=lambda: conf.write_text(whole))
    source = source_of(tmp_path, broker_conf=str(conf), clock=clock)
    masked = await source.read()
    for length in range(len(whole)):
        conf.write_text(whole[:length])
        assert await source.read() is masked, length
    conf.unlink()
    assert await source.read() is masked


async def test_an_unusable_broker_conf_keeps_the_last_content_and_is_logged_once(
    tmp_path: Path, main: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    conf = tmp_path / "broker.conf"
    conf.write_text("brokerPermission=4\n")
    write(main, content(3, orders=6))
    source = source_of(tmp_path, broker_conf=str(conf))
    masked = await source.read()
    conf.write_text(r"brokerName=\u12")
    for _ in range(3):
        assert await source.read() is masked
    conf.write_text("brokerPermission=4\n")
    for _ in range(3):
        assert await source.read() is masked

    messages = [record.message for record in caplog.records]
    assert messages == ["broker.conf cannot be used; keeping its last valid content", "broker.conf is valid again"]


async def test_a_changed_identity_needs_a_restart_and_is_logged_once(
    tmp_path: Path, main: Path, caplog: pytest.LogCaptureFixture
) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(f"brokerName=a\nstorePathRootDir={tmp_path}\n")
    write(main, content(3))
    source = RocketmqTopicSource(
        store_path="", broker_conf=str(conf), max_topics=100, clock=InstantClock(), environment={}
    )
    first = await source.read()
    conf.write_text("brokerName=b\nstorePathRootDir=/nowhere\n")
    for _ in range(3):
        assert await source.read() is first

    assert [record.message for record in caplog.records] == ["broker.conf changed: restart to apply"]
    assert caplog.records[0].facts == {"settings": ["broker_name", "store_path_root_dir"]}  # type: ignore[attr-defined]


@pytest.mark.parametrize("line", ["configManagerVersion=v2", "storeType=defaultRocksDB"])
async def test_a_broker_with_rocksdb_is_refused_at_the_start_and_while_running(
    line: str, tmp_path: Path, main: Path
) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("brokerName=a\n")
    write(main, content(3))
    source = source_of(tmp_path, broker_conf=str(conf))
    assert counter(await source.read()) == 3

    conf.write_text(f"brokerName=a\n{line}\n")

    assert f"{line}: this broker keeps its topics in RocksDB" in await _read_problem(source)
    with pytest.raises(TopicSourceError, match="keeps its topics in RocksDB"):
        load_broker_conf(conf, environment={})


def test_a_broker_conf_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(TopicSourceError, match=r"broker\.conf: is missing"):
        load_broker_conf(tmp_path / "broker.conf", environment={})
