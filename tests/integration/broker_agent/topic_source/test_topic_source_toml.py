"""Topics from the agent's own file while the agent runs: only topic tables are applied, and no partial file."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from pointsman_agent.config import load
from pointsman_agent.core.topic_set import TopicSet
from pointsman_agent.topic_source import TopicSourceError
from pointsman_agent.topic_source.toml import TRIES, TomlTopicSource
from tests.kit.waiting import InstantClock

HEAD = """\
[broker]
cluster = "c1"
name = "a"
addr = "10.0.0.1:6379"
state_version = 3
[name_servers]
addrs = ["10.0.1.1:9876"]
"""


def table(name: str, queues: object = 4) -> str:
    return f'[[topics.topic]]\nname = "{name}"\nread_queues = {queues}\nwrite_queues = 4\n'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "agent.toml"
    path.write_text(HEAD + table("orders"))
    return path


@pytest.fixture
def instant() -> InstantClock:
    return InstantClock()


@pytest.fixture
def source(file: Path, instant: InstantClock) -> TomlTopicSource:
    return TomlTopicSource(load(file, {}), file=file, environment={}, clock=instant)


def names(topics: TopicSet) -> list[str]:
    return [each.topic for each in topics.topics]


def write(path: Path, text: str) -> None:
    path.write_text(text)


async def problem(source: TomlTopicSource) -> str:
    with pytest.raises(TopicSourceError) as raised:
        await source.read()
    return str(raised.value)


async def test_without_a_file_nothing_ever_changes(file: Path) -> None:
    source = TomlTopicSource(load(file, {}))

    assert await source.read() is await source.read()


async def test_topic_tables_are_applied_and_their_version_follows_from_them(
    file: Path, source: TomlTopicSource
) -> None:
    first = await source.read()
    assert await source.read() == first
    write(file, HEAD + table("orders") + table("bills"))
    second = await source.read()
    write(file, HEAD + table("bills") + "\n# a comment\n" + table("orders"))
    third = await source.read()
    write(file, HEAD)
    fourth = await source.read()

    assert [names(each) for each in (first, second, fourth)] == [["orders"], ["bills", "orders"], []]
    assert third == second
    assert len({each.data_version for each in (first, second, fourth)}) == 3
    assert {each.data_version.state_version for each in (first, second, fourth)} == {3}


async def test_an_edit_between_the_start_and_the_first_poll_is_noticed(file: Path, source: TomlTopicSource) -> None:
    write(file, HEAD + table("bills"))

    assert names(await source.read()) == ["orders"]
    assert names(await source.read()) == ["bills"]


async def test_an_invalid_file_lists_every_error_and_keeps_the_last_topics(file: Path, source: TomlTopicSource) -> None:
    await source.read()
    write(file, HEAD + table("orders") + table("b.ills", 70_000) + table("x", '"4"'))
    for _ in range(3):
        reason = await problem(source)
        assert "'b.ills' may hold only letters" in reason
        assert "read_queues: 70000 is not from 0 to 65535" in reason
        assert "topic[2].read_queues: must be" in reason

    write(file, HEAD + table("orders") + table("bills"))
    assert names(await source.read()) == ["bills", "orders"]


async def test_very_many_errors_are_counted(file: Path, source: TomlTopicSource) -> None:
    await source.read()
    write(file, HEAD + "".join(table(f"b.{i}") for i in range(150)))

    reason = await problem(source)

    assert "'b.99'" in reason
    assert "'b.100'" not in reason
    assert reason.endswith("and 50 more errors")


@pytest.mark.parametrize("text", ["", "[broker", "\0", HEAD[:-20], "a = " + "[" * 5_000, "x = 1e999\n"])
async def test_a_file_that_is_not_a_configuration_keeps_the_last_topics(
    text: str, file: Path, source: TomlTopicSource
) -> None:
    good = await source.read()
    write(file, text)
    assert str(file) in await problem(source)

    write(file, HEAD + table("orders"))
    assert await source.read() == good


async def test_a_deleted_file_keeps_the_last_topics(file: Path, source: TomlTopicSource) -> None:
    good = await source.read()
    await source.read()
    os.unlink(file)
    assert await problem(source) == f"{file}: is missing"

    write(file, HEAD + table("orders"))
    assert await source.read() == good


async def test_a_file_that_is_copied_slowly_is_not_applied_before_it_is_complete(
    file: Path, source: TomlTopicSource, instant: InstantClock
) -> None:
    whole = HEAD + "".join(table(f"t{i}") for i in range(4))
    write(file, whole)
    await source.read()
    assert len(names(await source.read())) == 4
    new = whole + table("t4")
    pieces = [new[: len(HEAD)], new[: len(HEAD + table("t0"))], new]
    write(file, pieces.pop(0))
    instant.on_sleep = lambda: write(file, pieces.pop(0)) if pieces else None

    assert names(await source.read()) == ["t0", "t1", "t2", "t3", "t4"]


async def test_a_file_that_is_written_without_end_is_an_error(
    file: Path, source: TomlTopicSource, instant: InstantClock
) -> None:
    await source.read()
    waits = 0

    def write_on() -> None:
        nonlocal waits
        waits += 1
        write(file, HEAD + table(f"t{waits}"))

    instant.on_sleep = write_on
    assert await problem(source) == f"{file}: changed during each of several reads"
    assert waits == TRIES

    instant.on_sleep = None
    assert names(await source.read()) == [f"t{TRIES}"]


async def test_a_setting_that_needs_a_restart_is_named_once_without_its_value(
    file: Path, source: TomlTopicSource, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    await source.read()
    changed = HEAD.replace('"a"', '"b"') + '[probe]\nkind = "redis"\npassword = "s3cret"\n'
    write(file, changed + "[topics]\nmax_topics = 7\n" + table("bills"))
    for _ in range(3):
        topics = await source.read()
    write(file, changed + "[topics]\nmax_topics = 7\n" + table("bills") + table("carts"))
    await source.read()

    assert names(topics) == ["bills"]
    assert [record.message for record in caplog.records] == ["the configuration changed: restart to apply"]
    assert caplog.records[0].facts == {  # type: ignore[attr-defined]
        "settings": ["broker.name", "probe.kind", "probe.password", "topics.max_topics"]
    }
    assert "s3cret" not in caplog.text


async def test_another_source_waits_for_a_start_and_does_not_empty_the_broker(
    file: Path, source: TomlTopicSource, caplog: pytest.LogCaptureFixture
) -> None:
    first = await source.read()
    write(file, HEAD + '[topics]\nsource = "redis"\n')

    assert await source.read() == first
    assert caplog.records[0].facts == {"settings": ["topics.source"]}  # type: ignore[attr-defined]


async def test_environment_and_flags_override_a_changed_file(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    environment = {"AGENT_BROKER__ZONE": "z1"}
    config = load(file, environment, {"log.level": "DEBUG"})
    source = TomlTopicSource(
        config, file=file, environment=environment, flags={"log.level": "DEBUG"}, clock=InstantClock()
    )
    await source.read()
    write(file, HEAD + table("bills"))

    assert names(await source.read()) == ["bills"]
    assert caplog.records == []


async def test_a_weight_that_changes_alone_is_a_new_version(file: Path, source: TomlTopicSource) -> None:
    first = await source.read()
    write(file, HEAD + table("orders") + "queue_weight = 3\n")
    heavy = await source.read()
    write(file, HEAD + table("orders") + "queue_weight = 1\n")
    light = await source.read()

    assert [each.queue_weight for (each,) in (first.topics, heavy.topics, light.topics)] == [1, 3, 1]
    assert first == light
    assert heavy.data_version != first.data_version
    write(file, HEAD + table("orders") + "queue_weight = 0\n")
    assert "topic[0].queue_weight: 0 is not from 1 to 100" in await problem(source)
