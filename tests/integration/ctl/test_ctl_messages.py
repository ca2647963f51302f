"""``messages peek`` and ``messages find`` on a Redis broker and a RocketMQ broker of the same topic."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from pointsman.rocketmq.codes import BrokerRequestCode as Request
from tests.kit.broker.rocketmq.stored_messages import stored_message
from tests.kit.broker.under_test import BORN_AT
from tests.kit.ctl.both_brokers import BothBrokers, both_brokers
from tests.kit.ctl.keys import undocumented_keys

pytestmark = pytest.mark.redis
NAMES = ("red", "rocket")
of_both = pytest.mark.parametrize("name", NAMES)


@pytest.fixture
async def brokers(tmp_path: Path) -> AsyncIterator[BothBrokers]:
    async with both_brokers(tmp_path) as found:
        yield found


async def seconds(brokers: BothBrokers, count: int) -> None:
    """Store one message per second, in turn at both brokers and in both queues."""
    for number in range(count):
        name, queue_id = NAMES[number % 2], number // 2 % 2
        born_at = BORN_AT + timedelta(seconds=number)
        await brokers.store(name, queue_id, b"%d" % number, born_at=born_at, keys=(f"k{number}",), tags="t")


async def bodies(brokers: BothBrokers, *arguments: str) -> list[str]:
    document = await brokers.json("messages", "peek", "orders", *arguments)
    return [each["body"] for each in document["messages"]]


async def test_the_newest_messages_of_all_queues_are_shown_by_birth(brokers: BothBrokers) -> None:
    await seconds(brokers, 12)
    assert await bodies(brokers, "--limit", "3") == ["9", "10", "11"]
    assert await bodies(brokers) == [str(number) for number in range(2, 12)]
    assert await bodies(brokers, "--limit", "1000") == [str(number) for number in range(12)]
    table = await brokers.ctl("messages", "peek", "orders", "--limit", "1")
    assert (table.code, table.err) == (0, "")
    header, row = table.out.splitlines()
    assert header.split() == ["QUEUE", "OFFSET", "BORN", "ID", "TAG", "KEYS", "BYTES", "BODY"]
    assert row.split() == ["c1/rocket/1", "2", "2026-01-01T00:00:11.000Z", "id-rocket-3131", "t", "k11", "2", "11"]


async def test_a_start_and_queues_are_chosen(brokers: BothBrokers) -> None:
    await seconds(brokers, 12)
    assert await bodies(brokers, "--from", "earliest", "--limit", "3") == ["0", "1", "2"]
    assert await bodies(brokers, "--from", "2026-01-01T00:00:04.5Z", "--limit", "3") == ["5", "6", "7"]
    assert await bodies(brokers, "--from", "2", "--limit", "3") == ["8", "9", "10"]
    assert await bodies(brokers, "--from", "9") == []
    assert await bodies(brokers, "--queue", "red/1") == ["2", "6", "10"]
    assert await bodies(brokers, "--queue", "1", "--queue", "c1/rocket/0", "--limit", "2") == ["10", "11"]
    absent = await brokers.ctl("messages", "peek", "orders", "--queue", "red/2")
    assert (absent.code, absent.out) == (1, "")
    assert absent.err == "pointsmanctl: topic orders has no queue red/2: see `pointsmanctl route orders`\n"


async def test_no_group_and_no_offset_is_left(brokers: BothBrokers) -> None:
    await seconds(brokers, 4)
    before = await brokers.redis.bulk("INFO", "keyspace")
    await brokers.ctl("messages", "peek", "orders")
    assert await brokers.redis.bulk("INFO", "keyspace") == before
    assert not {Request.HEART_BEAT, Request.UPDATE_CONSUMER_OFFSET} & set(brokers.rocketmq.codes())
    assert {int(each.ext["sysFlag"]) & 1 for each in brokers.rocketmq.requests if each.code == 11} == {0}


async def test_an_empty_topic_has_no_messages(brokers: BothBrokers) -> None:
    assert (await brokers.ctl("messages", "peek", "orders")).out == "no messages\n"
    document = await brokers.json("messages", "peek", "orders")
    assert document["messages"] == []
    assert [(each["queue"]["brokerName"], each["first"], each["end"]) for each in document["queues"]] == [
        ("red", 0, 0),
        ("red", 0, 0),
        ("rocket", 0, 0),
        ("rocket", 0, 0),
    ]


@of_both
async def test_bodies_are_text_hex_or_files_and_never_control_characters(
    brokers: BothBrokers, tmp_path: Path, name: str
) -> None:
    binary, hostile, long = bytes(range(256)), b"\x1b[2J rm", "日本\n".encode() + b"x" * 200
    await brokers.store(name, 0, binary, hostile, long)
    peek = ("messages", "peek", "orders", "--queue", f"{name}/0")
    for form in ("short", "text", "hex", "none"):
        shown = await brokers.ctl(*peek, "--body", form)
        assert not {character for character in shown.out if ord(character) < 32} - {"\n"}
    first, second, third = [line.rstrip() for line in (await brokers.ctl(*peek)).out.splitlines()[1:]]
    assert first.endswith(f" 0x{binary[:24].hex()}...")
    assert second.endswith(f" 0x{hostile.hex()}")
    assert third.endswith(" 日本\ufffd" + "x" * 57 + "...")
    whole = (await brokers.ctl(*peek, "--body", "hex")).out.splitlines()
    assert [line.split()[-1] for line in whole[1:]] == [f"0x{body.hex()}" for body in (binary, hostile, long)]
    assert (await brokers.ctl(*peek, "--body", "text")).out.splitlines()[3].endswith("日本\ufffd" + "x" * 200)
    assert "BODY" not in (await brokers.ctl(*peek, "--body", "none")).out

    document = await brokers.json(*peek)
    assert [(each.get("body"), each.get("bodyBase64"), each["bodyBytes"]) for each in document["messages"]] == [
        (None, base64.b64encode(binary).decode(), 256),
        (None, base64.b64encode(hostile).decode(), len(hostile)),
        (long.decode(), None, len(long)),
    ]
    document = await brokers.json(*peek, "--body", "hex")
    assert [each["bodyHex"] for each in document["messages"]] == [binary.hex(), hostile.hex(), long.hex()]
    folder = tmp_path / "bodies"
    folder.mkdir()
    document = await brokers.json(*peek, "--save", str(folder))
    files = [folder / f"orders-c1-{name}-0-{offset}" for offset in range(3)]
    assert [each["file"] for each in document["messages"]] == list(map(str, files))
    assert [file.read_bytes() for file in files] == [binary, hostile, long]
    again = await brokers.ctl(*peek, "--save", str(folder))
    assert (again.code, again.out) == (1, "")
    assert "exists already" in again.err


@of_both
async def test_a_body_of_four_mebibytes_is_shown(brokers: BothBrokers, name: str) -> None:
    await brokers.store(name, 0, b"y" * (4 * 1024 * 1024))
    (message,) = (await brokers.json("messages", "peek", "orders"))["messages"]
    assert message["bodyBytes"] == len(message["body"]) == 4 * 1024 * 1024
    assert len((await brokers.ctl("messages", "peek", "orders")).out) < 1_000


async def test_an_unreadable_message_is_named_and_the_others_are_shown(brokers: BothBrokers) -> None:
    records = [stored_message(b"%d" % offset, offset=offset, crc=7 if offset == 1 else None) for offset in range(3)]
    await brokers.rocketmq.append("orders", 0, records)
    document = await brokers.json("messages", "peek", "orders")
    assert [each["body"] for each in document["messages"]] == ["0", "2"]
    (unreadable,) = document["unreadable"]
    assert (unreadable["queue"]["queueId"], unreadable["offset"]) == (0, 1)
    assert "the message is damaged" in unreadable["problem"]
    assert "c1/rocket/0 offset 1: cannot be read (the CRC-32" in (await brokers.ctl("messages", "peek", "orders")).out


async def test_a_queue_that_fails_hides_no_other(brokers: BothBrokers) -> None:
    await seconds(brokers, 4)
    brokers.redis.kill()
    ended = await brokers.ctl("-o", "json", "messages", "peek", "orders")
    assert ended.code == 1
    assert [each["body"] for each in ended.document["messages"]] == ["1", "3"]
    failed = [each for each in ended.document["queues"] if "error" in each]
    assert [(each["queue"]["brokerName"], each["error"]["code"]) for each in failed] == [
        ("red", "BROKER_UNREACHABLE")
    ] * 2
    table = await brokers.ctl("messages", "peek", "orders")
    assert table.err.startswith("pointsmanctl: failed: c1/red/0, c1/red/1 (broker ")
    assert table.err.endswith("check that the broker runs and is reachable from here\n")
    none = await brokers.ctl("messages", "peek", "orders", "--queue", "red/0")
    assert (none.code, none.out) == (1, "")


async def test_messages_beyond_the_memory_are_refused(brokers: BothBrokers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pointsman_ctl.commands.message_commands.MAX_HELD_BYTES", 2_500)
    await brokers.store("red", 0, *[bytes(1_000)] * 3)
    ended = await brokers.ctl("messages", "peek", "orders")
    assert (ended.code, ended.out) == (2, "")
    assert "the messages have more than 2500 bytes: give a lower --limit, or fewer queues" in ended.err
    assert len((await brokers.json("messages", "peek", "orders", "--limit", "2"))["messages"]) == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["peek", "orders", "--queue", "a/b/c/1"], "queue must be N, BROKER/N or CLUSTER/BROKER/N, got 'a/b/c/1'"),
        (["peek", "orders", "--queue", "b c/1"], "broker 'b c' may hold only"),
        (["peek", "orders", "--queue", "/1"], "broker '' must not be empty"),
        (["peek", "orders", "--queue", "70000"], "queue number must be from 0 to 65534, got '70000'"),
        (["peek", "orders", "--queue", "-1"], "queue number must be from 0 to 65534, got '-1'"),
        (["peek", "orders", "--from", "soon"], "invalid start 'soon': use earliest, latest, an offset, or a time"),
        (["peek", "orders", "--from", str(2**63)], "offset must be at most 9223372036854775807"),
        (["peek", "orders", "--from", "2999-01-01T00:00Z"], "is in the future"),
        (["peek", "orders", "--limit", "1001"], "'--limit'"),
        (["peek", "orders", "--save", "/does/not/exist"], "'/does/not/exist' does not exist"),
        (["peek", "a b"], "topic 'a b' may hold only"),
        (["find", "orders"], "give --id or --key, one of both"),
        (["find", "orders", "--id", "x", "--key", "y"], "give --id or --key, one of both"),
        (["find", "orders", "--key", "y", "--scan", "0"], "'--scan'"),
    ],
)
async def test_wrong_usage_is_named(brokers: BothBrokers, arguments: list[str], words: str) -> None:
    ended = await brokers.ctl("messages", *arguments)
    assert (ended.code, ended.out) == (2, "")
    assert words in ended.err


@of_both
async def test_a_message_is_found_by_key_and_by_id(brokers: BothBrokers, name: str) -> None:
    await brokers.store(name, 1, b"old", keys=("4711", "x"))
    await brokers.store(name, 0, b"new", keys=("4711",), born_at=BORN_AT + timedelta(seconds=1))
    await brokers.store(name, 1, b"other", keys=("47",))
    document = await brokers.json("messages", "find", "orders", "--key", "4711")
    assert [(each["body"], each["queue"]["queueId"]) for each in document["messages"]] == [("new", 0), ("old", 1)]
    assert document["searched"]["isWhole"]
    document = await brokers.json("messages", "find", "orders", "--key", "4711", "--queue", "1")
    assert [each["body"] for each in document["messages"]] == ["old"]
    (found,) = (await brokers.json("messages", "find", "orders", "--id", document["messages"][0]["messageId"]))[
        "messages"
    ]
    assert found["body"] == "old"
    assert len((await brokers.json("messages", "find", "orders", "--key", "4711", "--limit", "1"))["messages"]) == 1

    absent = await brokers.ctl("messages", "find", "orders", "--key", "absent")
    assert absent.code == 1
    assert absent.err == "pointsmanctl: no message of topic orders with key absent was found\n"
    assert "looked up in the index of c1/rocket\nlooked at " in absent.out


async def test_an_index_that_returns_its_limit_is_not_the_whole_topic(brokers: BothBrokers) -> None:
    await brokers.store("rocket", 0, *(b"%d" % number for number in range(64)), keys=("k",))
    brokers.redis.kill()
    find = ("messages", "find", "orders", "--key", "k", "--queue", "rocket/0", "--limit", "100")
    document = await brokers.json(*find)
    assert (len(document["messages"]), document["searched"]["isWhole"]) == (64, False)
    assert "c1/rocket returned 64 messages, and may have older ones\n" in (await brokers.ctl(*find)).out


async def test_an_entry_without_an_id_is_found_by_its_place(brokers: BothBrokers) -> None:
    await brokers.redis.command("XADD", "orders:queue:1", "0-*", "body", "foreign")
    document = await brokers.json("messages", "find", "orders", "--id", "orders:queue:1@0")
    assert [each["body"] for each in document["messages"]] == ["foreign"]
    assert document["searched"]["scanned"] == []


async def test_a_message_is_found_by_the_id_of_its_place_at_that_broker_alone(
    brokers: BothBrokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    await brokers.store("rocket", 1, b"elsewhere")
    port = int(brokers.rocketmq.addr.rpartition(":")[2])
    monkeypatch.setattr("tests.kit.broker.rocketmq.stored_messages.PORT", port)
    await brokers.store("rocket", 1, b"here")
    elsewhere, here = (await brokers.json("messages", "peek", "orders"))["messages"]
    ended = await brokers.ctl("messages", "find", "orders", "--id", elsewhere["offsetMessageId"])
    assert (ended.code, Request.VIEW_MESSAGE_BY_ID in brokers.rocketmq.codes()) == (1, False)
    document = await brokers.json("messages", "find", "orders", "--id", here["offsetMessageId"].lower())
    assert [each["body"] for each in document["messages"]] == ["here"]
    gone = f"{here['offsetMessageId'][:-4]}FFFF"
    assert (await brokers.ctl("messages", "find", "orders", "--id", gone)).code == 1


async def test_a_scan_goes_back_from_the_ends_of_all_queues_and_says_how_far(brokers: BothBrokers) -> None:
    for queue_id in range(2):
        for number in range(600):
            born_at, keys = BORN_AT + timedelta(seconds=number), (f"k{number}", f"tens{number % 10}")
            await brokers.store("red", queue_id, b"%d" % number, born_at=born_at, keys=keys)
    find = ("messages", "find", "orders", "--queue", "red/0", "--queue", "red/1", "--key")
    ended = await brokers.ctl(*find, "k10", "--scan", "400")
    assert ended.code == 1
    assert ended.out == "looked at 400 of 1200 messages in 2 queues, back to 2026-01-01T00:06:40.000Z\n"
    assert ended.err.endswith("with key k10 was found; older ones were not looked at: give a higher --scan\n")
    document = (await brokers.ctl("-o", "json", *find, "k10", "--scan", "400")).document
    assert not document["searched"]["isWhole"]
    assert [(each["from"], each["end"]) for each in document["searched"]["scanned"]] == [(400, 600)] * 2

    document = await brokers.json(*find, "k10", "--scan", "1200")
    assert [each["queueOffset"] for each in document["messages"]] == [10, 10]
    assert document["searched"]["isWhole"]
    document = await brokers.json("messages", "find", "orders", "--id", document["messages"][0]["messageId"])
    assert [each["from"] for each in document["searched"]["scanned"]] == [0, 0]
    newest = (await brokers.json("messages", "peek", "orders", "--limit", "1"))["messages"][0]["messageId"]
    document = await brokers.json("messages", "find", "orders", "--id", newest)
    # One is enough, so nothing older is read.
    assert [each["from"] for each in document["searched"]["scanned"]] == [344, 344]
    document = await brokers.json(*find, "tens7", "--limit", "1")
    assert [each["queueOffset"] for each in document["messages"]] == [597]
    assert [each["from"] for each in document["searched"]["scanned"]] == [344, 344]


async def test_a_scan_shows_its_progress_on_a_terminal(brokers: BothBrokers, monkeypatch: pytest.MonkeyPatch) -> None:
    await brokers.store("red", 0, *(b"%d" % number for number in range(300)))
    assert "looked at\n" not in (await brokers.ctl("messages", "find", "orders", "--key", "x")).err
    monkeypatch.setattr("tests.kit.ctl.command.Printed.isatty", lambda _: True)
    ended = await brokers.ctl("messages", "find", "orders", "--key", "x")
    assert "\r256 of 300 messages looked at\r300 of 300 messages looked at\r\x1b[K" in ended.err


async def test_brokers_that_fail_are_named_beside_what_was_found(brokers: BothBrokers) -> None:
    await brokers.store("rocket", 0, b"x", keys=("4711",))
    brokers.redis.kill()
    ended = await brokers.ctl("-o", "json", "messages", "find", "orders", "--key", "4711")
    assert ended.code == 1
    assert [each["body"] for each in ended.document["messages"]] == ["x"]
    assert [each["name"] for each in ended.document["failed"]] == ["c1/red/0", "c1/red/1"]
    await brokers.rocketmq.stop()
    ended = await brokers.ctl("messages", "find", "orders", "--key", "4711")
    assert (ended.code, ended.out) == (1, "")
    assert "c1/rocket (broker " in ended.err
    await brokers.rocketmq.start()


async def test_the_help_has_the_keys_of_the_json(brokers: BothBrokers, capsys: pytest.CaptureFixture[str]) -> None:
    await brokers.rocketmq.append("orders", 1, [stored_message(b"", crc=7)])
    await brokers.store("red", 0, b"x", keys=("k",))
    await brokers.store("rocket", 0, b"x", keys=("k",))
    for command, *more in (["peek", "orders"], ["find", "orders", "--key", "k"]):
        document = await brokers.json("messages", command, *more)
        words = ["messages", command]
        elsewhere = () if command == "peek" else ("messages peek",)
        assert undocumented_keys(document, words, *elsewhere, capsys=capsys) == set()
