"""``pointsmanctl dlq`` on a Redis broker and a RocketMQ broker."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from pointsman.clock import SystemClock
from pointsman.daemon.access.access_settings import Grant
from pointsman.rocketmq.codes import BrokerRequestCode as Request
from pointsman.rocketmq.codes import BrokerResponseCode as Code
from pointsman.rocketmq.frames import Command
from pointsman.v1 import consumer_group_service_pb2 as wire
from pointsman.v1.broker_pb2 import PROBE_STATUS_FAILING, BrokerHealth
from pointsman.v1.registration_service_pb2_grpc import RegistrationServiceStub
from pointsman_client import Message, MessageQueue, OutgoingMessage, ReceivedMessage, Transport
from pointsman_client.redis_streams import RedisStreamsTransport
from pointsman_ctl.servers.dead_letters import DeadLetters
from pointsman_ctl.servers.letter_replay import (
    REPLAY_OF,
    Addressed,
    ConcurrentRunError,
    Destinations,
    Pace,
    RecordedSender,
    Replay,
    ReplayFailedError,
    Run,
    SentTo,
)
from pointsman_ctl.servers.letter_selection import Selection
from pointsman_ctl.servers.number_ranges import NumberRange
from pointsman_ctl.servers.replay_record import ReplayEntry, of_file, to_body
from pointsman_ctl.servers.stored_messages import outgoing
from tests.kit.access_tokens import TokenFolder
from tests.kit.agent.group_clients import follows_pins, reads
from tests.kit.broker.redis.process import redis_process
from tests.kit.broker.rocketmq.fake_broker import Answer
from tests.kit.broker.rocketmq.frames import broker_ext, register, register_body, topic_config
from tests.kit.broker.rocketmq.peer import remoting_peer
from tests.kit.broker.under_test import BORN_AT
from tests.kit.ctl.both_brokers import SECONDS, BothBrokers, both_brokers
from tests.kit.ctl.command import Ended, ctl
from tests.kit.ctl.fleet import a_fleet
from tests.kit.name_server import wire as wire_of
from tests.kit.name_server.in_process import running_name_server
from tests.kit.name_server.scripted_routes import refused_addr
from tests.kit.waiting import InstantClock

pytestmark = pytest.mark.redis

GROUP, DLQ, RETRY = "billing", "%DLQ%billing", "%RETRY%billing"
RECORD = "%RETRY%CID_RMQ_SYS_POINTSMAN_DLQ_billing"
of_both = pytest.mark.parametrize("name", ["red", "rocket"])


@pytest.fixture
async def brokers(tmp_path: Path) -> AsyncIterator[BothBrokers]:
    async with both_brokers(tmp_path, topics=("orders", DLQ)) as found:
        yield found


async def die(brokers: BothBrokers, name: str, *bodies: bytes, **fields: Any) -> None:
    """Store dead letters as the client does."""
    await die_at(brokers.transports[name], brokers.addrs[name], name, *bodies, **fields)


async def die_at(transport: Transport, addr: str, name: str, *bodies: bytes, **fields: Any) -> None:
    """Store dead letters as the client does."""
    message: dict[str, Any] = {each: fields.pop(each) for each in ("tags", "keys", "properties") if each in fields}
    for number, body in enumerate(bodies):
        letter = OutgoingMessage(
            Message("orders", body, **message),
            f"id-{name}-{body.hex()}",
            fields.get("born_at", BORN_AT) + timedelta(seconds=number),
            reconsume_times=17,
            origin=fields.get("origin", f"c1/{name}/orders/1@{number}"),
            error=fields.get("error", "ValueError: no price"),
        )
        queue = MessageQueue(DLQ, "c1", name, 0)
        await transport.send(addr, queue, [letter], timeout_seconds=SECONDS)


async def stored(brokers: BothBrokers, name: str, topic: str, queue_id: int = 0) -> list[ReceivedMessage]:
    """Return all messages of a queue."""
    async with brokers.invocation().stored_messages() as messages:
        (first, *_) = [each for each in await messages.queues("orders") if each.queue.broker_name == name]
        held = type(first)(MessageQueue(topic, "c1", name, queue_id), first.addr, first.kind)
        begin, end = await messages.bounds(held)
        return [message async for message in messages.read(held, begin, end)]


@of_both
async def test_dead_letters_are_listed_and_shown(brokers: BothBrokers, name: str) -> None:
    assert await brokers.json("dlq", "list") == {"groups": []}
    await die(brokers, name, b"one", b"\x00\xff", tags="paid", keys=("4711",), properties={"shop": "7"})

    (group,) = (await brokers.json("dlq", "list"))["groups"]
    assert (group["group"], group["stored"], group["notReplayed"]) == (GROUP, 2, 2)
    assert group["oldestBornAt"] == BORN_AT.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    shown = await brokers.json("dlq", "show", GROUP)
    assert shown["isCut"] is False
    one, two = shown["deadLetters"]
    assert one == {
        "group": GROUP,
        "broker": f"c1/{name}",
        "queueOffset": 0,
        "topic": "orders",
        "messageId": f"id-{name}-{b'one'.hex()}",
        "bornAt": group["oldestBornAt"],
        "tag": "paid",
        "keys": ["4711"],
        "properties": {"shop": "7"},
        "reconsumeTimes": 17,
        "origin": f"c1/{name}/orders/1@0",
        "reason": "ValueError: no price",
        "body": "one",
        "bodyBytes": 3,
        "isReplayed": False,
    }
    assert (two["bodyBase64"], two["bodyBytes"]) == ("AP8=", 2)
    table = await brokers.ctl("dlq", "show", GROUP, "--limit", "1")
    assert table.code == 0
    assert "one" in table.out
    assert "the first 1 dead letter; show more with --limit" in table.out


async def replay(brokers: BothBrokers, *options: str, code: int = 0) -> Any:
    """Replay, and return the JSON on standard output."""
    ended = await brokers.ctl("-o", "json", "dlq", "replay", GROUP, "--yes", *options)
    assert ended.code == code, ended.err
    return ended.document


async def not_replayed(brokers: BothBrokers) -> list[int]:
    shown = (await brokers.json("dlq", "show", GROUP, "--limit", "100"))["deadLetters"]
    return [each["queueOffset"] for each in shown if not each["isReplayed"]]


@of_both
async def test_replayed_to_the_group_a_message_is_what_it_was_and_is_not_sent_again(
    brokers: BothBrokers, name: str
) -> None:
    await die(brokers, name, *(b"%d" % each for each in range(70)), tags="paid", keys=("4711",), properties={"a": "b"})
    done = await replay(brokers)
    assert [each["sent"] for each in done["servers"]] == [70]
    assert done["plan"]["to"] == "group"
    assert done["plan"]["brokers"] == [
        {
            "broker": f"c1/{name}",
            "addr": brokers.addrs[name],
            "stored": 70,
            "alreadyReplayed": 0,
            "selected": 70,
            "topics": {"orders": 70},
        }
    ]
    sent = await stored(brokers, name, RETRY)
    assert [each.body for each in sent] == [b"%d" % each for each in range(70)]
    first = sent[0]
    assert (first.topic, first.tags, first.keys) == ("orders", "paid", ("4711",))
    assert first.properties == {"a": "b", REPLAY_OF: f"c1/{name}/{DLQ}/0@0"}
    assert (first.message_id, first.born_at) == (f"id-{name}-{b'0'.hex()}", BORN_AT)
    assert (first.reconsume_times, first.origin, first.error) == (0, f"c1/{name}/orders/1@0", "")

    assert await not_replayed(brokers) == []
    assert (await brokers.json("dlq", "list"))["groups"][0]["notReplayed"] == 0
    assert len(await stored(brokers, name, DLQ)) == 70
    again = await replay(brokers)
    assert (again["servers"], again["plan"]["brokers"][0]["selected"]) == ([], 0)
    await die(brokers, name, b"later")
    assert (await replay(brokers))["servers"][0]["sent"] == 1
    assert [each.body for each in await stored(brokers, name, RETRY)][70:] == [b"later"]


@of_both
async def test_a_selection_leaves_the_rest_and_the_rest_leaves_the_selection(brokers: BothBrokers, name: str) -> None:
    await die(brokers, name, b"poison", keys=("bad",))
    await die(brokers, name, *(b"%d" % each for each in range(5)), keys=("good",), error="Timeout of Shop")
    await die(brokers, name, b"6", keys=("good",), born_at=BORN_AT + timedelta(hours=1))

    assert (await replay(brokers, "--select", "reason=timeout", "--key", "good"))["servers"][0]["sent"] == 5
    assert await not_replayed(brokers) == [0, 6]
    since = (BORN_AT + timedelta(minutes=1)).isoformat()
    assert (await replay(brokers, "--since", since, "--dry-run"))["plan"]["brokers"][0]["selected"] == 1
    assert await not_replayed(brokers) == [0, 6]
    assert (await replay(brokers))["servers"][0]["sent"] == 2
    assert [each.body for each in await stored(brokers, name, RETRY)] == [b"0", b"1", b"2", b"3", b"4", b"poison", b"6"]


@of_both
async def test_replayed_to_the_topic_a_message_goes_to_its_first_queue(brokers: BothBrokers, name: str) -> None:
    await die(brokers, name, b"one", b"two", origin=f"c1/{name}/orders/1@17")
    await die(brokers, name, b"elsewhere", origin=f"c1/{name}/orders/9@17")
    await replay(brokers, "--to", "topic")
    ones = await stored(brokers, name, "orders", 1)
    assert [each.body for each in ones][:2] == [b"one", b"two"]
    assert {(each.origin, *each.properties) for each in ones} == {("", REPLAY_OF)}
    assert {each.body for each in ones[2:] + await stored(brokers, name, "orders", 0)} == {b"elsewhere"}
    assert await stored(brokers, name, RETRY) == []


async def test_the_plan_is_shown_and_consent_is_needed(brokers: BothBrokers) -> None:
    await die(brokers, "red", b"one")
    refused = await brokers.ctl("dlq", "replay", GROUP)
    assert refused.code == 2
    assert "Send 1 dead letter of group billing to the retry topic of billing?" in refused.err
    assert "c1/red" in refused.out
    assert "orders (1)" in refused.out
    assert await stored(brokers, "red", RETRY) == []


async def test_a_batch_that_was_not_recorded_is_sent_again_and_no_other(brokers: BothBrokers) -> None:
    await die(brokers, "red", *(b"%d" % each for each in range(100)))
    await replay(brokers, "--select", f"id=id-red-{b'0'.hex()}")
    # As a run that was killed after its second batch of 32: that is sent, and not in the record.
    await replay(brokers)
    entries = await stored(brokers, "red", RECORD)
    assert [json.loads(each.body)["numbers"] for each in entries] == [
        [],
        [[0, 0]],
        [],
        [[1, 1]],
        [[2, 33]],
        [[34, 65]],
        [[66, 97]],
        [[98, 99]],
    ]
    await brokers.redis.command("XDEL", f"{RECORD}:queue:0", *(f"0-{each}" for each in (6, 7, 8)))
    assert await not_replayed(brokers) == list(range(34, 100))
    assert (await replay(brokers))["plan"]["brokers"][0]["selected"] == 66
    sent = [each.body for each in await stored(brokers, "red", RETRY)]
    assert sorted(sent, key=int) == sorted([b"%d" % each for each in [*range(100), *range(34, 100)]], key=int)


@of_both
async def test_two_runs_notice_each_other(brokers: BothBrokers, name: str) -> None:
    await die(brokers, name, *(b"%d" % each for each in range(40)))
    entry = {"format": 1, "run": "other", "by": "bob@host", "source": "queue 0", "numbers": [[0, 0]]}
    async with brokers.invocation().stored_messages() as messages:
        letters = DeadLetters(messages, GROUP)
        (held, _) = [each for each in await letters.queues() if each.queue.broker_name == name]
        queue = await letters.of_queue(held)
        await messages.send(queue.record, [outgoing(Message(RECORD, json.dumps(entry).encode()))])
        run = Run("own", "alice@host", Pace(None, SystemClock()), lambda _: None)
        destinations = Destinations(messages, GROUP, SentTo.GROUP)
        with pytest.raises(ReplayFailedError, match="sent 0, then: bob@host replays the same messages"):
            await Replay(messages, letters, queue, destinations, run, SystemClock()).run(Selection())
    assert await stored(brokers, name, RETRY) == []


async def test_a_run_that_is_overtaken_stops_with_its_first_batch(brokers: BothBrokers) -> None:
    await die(brokers, "red", *(b"%d" % each for each in range(40)))
    other = ReplayEntry("other", "bob@host", "queue 0", (NumberRange(5, 5),))
    async with brokers.invocation().stored_messages() as messages:
        letters = DeadLetters(messages, GROUP)
        queue = await letters.of_queue((await letters.queues())[0])
        sent: list[int] = []
        run = Run("own", "alice@host", Pace(None, SystemClock()), sent.append)
        sender = RecordedSender(messages, letters, run, source="queue 0", record=queue.record, end=queue.record_end)
        held = await Destinations(messages, GROUP, SentTo.GROUP).of((await stored(brokers, "red", DLQ))[0], queue)
        batch = [Addressed(number, held, outgoing(Message("orders", b"1"))) for number in range(3)]
        await sender.send(batch[:1])
        # Another run that only begins does not stop this one: it stops itself.
        await messages.send(queue.record, [outgoing(Message(RECORD, to_body(replace(other, numbers=()))))])
        await sender.send(batch[1:2])
        await messages.send(queue.record, [outgoing(Message(RECORD, to_body(other)))])
        with pytest.raises(ConcurrentRunError, match="bob@host"):
            await sender.send(batch[2:])
    assert sent == [1, 1]
    assert await not_replayed(brokers) == [3, 4, *range(6, 40)]


async def test_nothing_is_sent_if_the_record_cannot_be_written(brokers: BothBrokers) -> None:
    await die(brokers, "rocket", b"one")
    send = brokers.rocketmq.handlers[Request.SEND_MESSAGE_V2]

    def without_the_record(command: Command, body: bytes) -> Any:
        if command.ext["b"] == RECORD:
            return Answer(Code.NO_PERMISSION, remark="no permission for the record")
        return send(command, body)

    brokers.rocketmq.handlers[Request.SEND_MESSAGE_V2] = without_the_record
    failed = await brokers.ctl("dlq", "replay", GROUP, "--yes")
    assert failed.code == 1
    assert "no permission for the record" in failed.err
    assert await stored(brokers, "rocket", RETRY) == []


async def test_a_broker_that_fails_stops_its_own_part_alone(brokers: BothBrokers) -> None:
    await die(brokers, "red", b"one")
    await die(brokers, "rocket", b"two")
    brokers.rocketmq.answers[Request.SEND_MESSAGE_V2] = Answer(Code.SERVICE_NOT_AVAILABLE, remark="disk full")
    done = await replay(brokers, code=1)
    red, rocket = sorted(done["servers"], key=lambda each: "error" in each)
    assert (red["addr"], red["sent"]) == (brokers.redis.addr, 1)
    assert rocket["addr"] == brokers.rocketmq.addr
    assert "sent 0, then:" in rocket["error"]["message"]
    assert "disk full" in rocket["error"]["message"]
    del brokers.rocketmq.answers[Request.SEND_MESSAGE_V2]
    assert [each["sent"] for each in (await replay(brokers))["servers"]] == [1]


async def test_a_broker_that_cannot_be_read_is_reported_and_the_others_are_replayed(brokers: BothBrokers) -> None:
    await die(brokers, "red", b"one")
    brokers.rocketmq.answers[Request.GET_MAX_OFFSET] = Answer(Code.SERVICE_NOT_AVAILABLE, remark="starting")
    done = await replay(brokers, code=1)
    assert [each["addr"] for each in done["plan"]["brokers"] if "error" in each] == [brokers.rocketmq.addr]
    red, rocket = done["servers"]
    assert (red["addr"], red["sent"]) == (brokers.redis.addr, 1)
    assert "starting" in rocket["error"]["message"]
    brokers.redis.kill()
    refused = await brokers.ctl("dlq", "replay", GROUP, "--yes")
    assert (refused.code, refused.out) == (1, "")
    assert "2 of 2 brokers failed" in refused.err


async def test_a_message_that_a_broker_does_not_accept_stays_and_the_others_are_sent(brokers: BothBrokers) -> None:
    await die(brokers, "red", b"one", properties={"DELAY": "3"})
    await die(brokers, "red", b"two")
    await brokers.redis.command("XADD", f"{DLQ}:queue:0", "0-*", "body", "three", "topic", "%RETRY%billing")
    done = await replay(brokers, "--to", "topic", code=1)
    message = done["servers"][0]["error"]["message"]
    assert message.startswith("sent 2, not sent 1, by offset: 2: the topic that it was sent to is not stored")
    assert await not_replayed(brokers) == [2]


async def test_an_ordered_group_on_a_rocketmq_broker_is_noticed_with_the_first_message(brokers: BothBrokers) -> None:
    await die(brokers, "rocket", b"one", b"two")
    send = brokers.rocketmq.handlers[Request.SEND_MESSAGE_V2]

    def to_the_dead_letters(command: Command, body: bytes) -> Any:
        is_retry = command.ext["b"] == RETRY
        return send(replace(command, ext={**command.ext, "b": DLQ if is_retry else command.ext["b"]}), body)

    brokers.rocketmq.handlers[Request.SEND_MESSAGE_V2] = to_the_dead_letters
    done = await replay(brokers, code=1)
    assert "members of billing have locked queues: the group is ordered; use --to topic" in str(done["servers"])
    assert [each.body for each in await stored(brokers, "rocket", DLQ)] == [b"one", b"two", b"one"]
    assert await not_replayed(brokers) == [1, 2]


async def test_every_name_server_has_a_record_of_the_change_before_it_is_made(brokers: BothBrokers) -> None:
    await die(brokers, "red", b"one")
    assert (await replay(brokers, "--dry-run"))["recorded"] == []
    assert (await replay(brokers))["recorded"] == [{"addr": brokers.name_server.addr, "inHistory": True}]


async def test_dead_letters_without_read_permission_are_named_with_what_to_do(brokers: BothBrokers) -> None:
    body = register_body(
        {DLQ: topic_config(DLQ, perm=2, readQueueNums=1, writeQueueNums=1), "orders": topic_config("orders")}
    )
    async with remoting_peer(brokers.name_server.remoting_addr) as peer:
        peer.send(register(broker_ext("rocket", 0, brokers.rocketmq.addr, clusterName="c1"), body))
        assert (await peer.answer()).code == 0
        await die(brokers, "red", b"one")
        shown = await brokers.ctl("dlq", "show", GROUP)
    assert shown.code == 1
    assert "one" in shown.out
    assert f"topic {DLQ} has no read permission there; give it with mqadmin updateTopicPerm" in shown.err


async def test_the_rate_bounds_how_fast_a_run_sends(brokers: BothBrokers) -> None:
    await die(brokers, "red", *(b"%d" % each for each in range(13)))
    clock = InstantClock()
    async with brokers.invocation().stored_messages() as messages:
        letters = DeadLetters(messages, GROUP)
        queue = await letters.of_queue((await letters.queues())[0])
        sent: list[tuple[float, int]] = []
        began = clock.monotonic()
        run = Run("own", "ann", Pace(4, clock), lambda count: sent.append((clock.monotonic() - began, count)))
        replaying = Replay(messages, letters, queue, Destinations(messages, GROUP, SentTo.GROUP), run, clock)
        assert await replaying.run(Selection()) == 13
    assert sent == [(0.0, 1), (0.25, 4), (1.25, 4), (2.25, 4)]


@of_both
async def test_an_export_and_its_import_are_the_same_dead_letters(
    brokers: BothBrokers, name: str, tmp_path: Path
) -> None:
    await die(brokers, name, b"text\n", "zw\u00f6lf \U0001f600".encode(), b"\x00\xff", tags="paid", keys=("4711", "x"))
    await die(brokers, name, b"other", properties={"shop": "7"}, error="", origin="")
    exported, again = tmp_path / "first.jsonl", tmp_path / "again.jsonl"
    assert (await brokers.json("dlq", "export", GROUP, str(exported)))["exported"] == 4
    lines = exported.read_text(encoding="utf-8")
    assert (await brokers.ctl("dlq", "export", GROUP, "-")).out == lines
    refused = await brokers.ctl("dlq", "export", GROUP, str(exported))
    assert (refused.code, "exists" in refused.err) == (2, True)

    imported = await brokers.ctl("-o", "json", "dlq", "import", str(exported), "--yes")
    assert (imported.code, imported.document["servers"][0]["sent"]) == (0, 4)
    assert (await brokers.json("dlq", "export", GROUP, str(again)))["exported"] == 8
    at = ("broker", "queueOffset")
    letters = [json.loads(line) for line in again.read_text(encoding="utf-8").splitlines()]
    bare = [json.dumps({key: value for key, value in each.items() if key not in at}) for each in letters]
    assert sorted(bare[:4]) == sorted(bare[4:])
    twice = await brokers.ctl("-o", "json", "dlq", "import", str(exported), "--yes")
    assert (twice.code, twice.document["servers"]) == (0, [])
    assert twice.document["plan"]["groups"][0]["alreadyImported"] == 4
    assert (await replay(brokers, "--key", "4711"))["plan"]["brokers"][0]["selected"] in {3, 6}


async def test_an_import_continues_after_the_lines_that_any_broker_has(brokers: BothBrokers, tmp_path: Path) -> None:
    line = {"group": GROUP, "topic": "orders", "messageId": "1"}
    file = tmp_path / "lines.jsonl"
    file.write_text("".join(json.dumps(line | {"body": str(number)}) + "\n" for number in range(1, 51)))
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    first = ReplayEntry("earlier", "bob@host", of_file(digest), (NumberRange(3, 7),))
    async with brokers.invocation().stored_messages() as messages:
        letters = DeadLetters(messages, GROUP)
        (at_rocket, _) = [each for each in await letters.queues() if each.queue.broker_name == "rocket"]
        await messages.send(letters.record_at(at_rocket), [outgoing(Message(RECORD, to_body(first)))])
    command = ["-o", "json", "dlq", "import", str(file), "--yes"]
    assert (await brokers.ctl(*command)).document["servers"][0]["sent"] == 45
    # As a run that was killed before its last record: the entries are the begin, line 1, and two batches.
    await brokers.redis.command("XDEL", f"{RECORD}:queue:0", "0-4")
    done = (await brokers.ctl(*command)).document
    assert (done["plan"]["groups"][0]["alreadyImported"], done["servers"][0]["sent"]) == (38, 12)
    times = Counter(each.body for each in await stored(brokers, "red", DLQ))
    assert times == Counter(
        [b"%d" % number for number in range(1, 51) if not 3 <= number <= 7] + [b"%d" % n for n in range(39, 51)]
    )


async def test_an_invalid_line_is_named_and_nothing_is_imported(brokers: BothBrokers, tmp_path: Path) -> None:
    line = {"group": GROUP, "topic": "orders", "messageId": "1", "body": "one"}
    file = tmp_path / "edited.jsonl"
    file.write_text(f"{json.dumps(line)}\n\n{json.dumps(line | {'reconsumeTimes': 'many'})}\n")
    ended = await brokers.ctl("dlq", "import", str(file), "--yes")
    assert ended.code == 1
    assert "line 3: field 'reconsumeTimes' must be a number from 0 to 2147483647, got \"many\"" in ended.err
    assert (await brokers.json("dlq", "list"))["groups"] == []
    file.write_text(json.dumps(line | {"topic": "absent", "group": "new"}))
    ended = await brokers.ctl("dlq", "import", str(file), "--yes")
    assert (ended.code, "no broker has dead letters of group new, or its topic absent" in ended.err) == (1, True)
    absent = await brokers.ctl("dlq", "import", str(tmp_path / "absent"), "--yes")
    assert absent.code == 2


async def test_the_body_of_one_dead_letter_is_written_to_a_file(brokers: BothBrokers, tmp_path: Path) -> None:
    await die(brokers, "red", b"\x00\xff", b"two")
    file = tmp_path / "body"
    both = await brokers.ctl("dlq", "show", GROUP, "--body-file", str(file))
    assert (both.code, "more than one dead letter is selected" in both.err) == (1, True)
    one = await brokers.ctl(
        "dlq", "show", GROUP, "--body-file", str(file), "--select", "id=id-red-00ff", "--body", "hex"
    )
    assert (one.code, "0x00ff" in one.out) == (0, True)
    assert file.read_bytes() == b"\x00\xff"
    none = await brokers.ctl("dlq", "show", "other", "--body-file", str(file))
    assert (none.code, "no dead letter is selected" in none.err) == (1, True)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--select", "price=7"], "selection: 'price=7' must be FIELD=VALUE with FIELD one of key, id, tag, topic"),
        (["--select", "key="], "selection: 'key=' has no value"),
        (["--since", "2026-11-28T00:00Z", "--until", "2026-11-27T00:00Z"], "is not before until"),
    ],
)
async def test_an_invalid_selection_is_a_usage_error(options: list[str], problem: str) -> None:
    for command in (["show"], ["replay"]):
        ended = await ctl("dlq", *command, GROUP, *options)
        assert ended.code == 2
        assert problem in ended.err


async def test_nothing_is_sent_to_a_retry_topic_that_no_member_reads() -> None:
    async with a_fleet(SystemClock()) as fleet:
        ordered, pulling = follows_pins(reads("ordered")), reads("pulling")
        ordered.settings.is_ordered = True
        pulling.consume_type = wire.CONSUME_TYPE_PULL
        await fleet.join(fleet.one, "10.0.0.1@a", ordered, pulling, reads("concurrent"))
        for group in ("ordered", "pulling"):
            refused = await fleet.ctl("dlq", "replay", group, "--yes")
            assert refused.code == 1
            assert f"no member of group {group} reads its retry topic" in refused.err
            assert (await fleet.ctl("dlq", "replay", group, "--to", "topic", "--yes")).code == 0
        assert (await fleet.ctl("dlq", "replay", "concurrent", "--yes")).code == 0


GRANTS = (
    Grant(identity="red", role="broker", cluster="c1", broker_name="red"),
    Grant(identity="shop", role="client"),
    Grant(identity="cashier", role="client", group=GROUP),
    Grant(identity="other", role="client", group="other"),
    Grant(identity="guest", role="viewer"),
    Grant(identity="ops", role="admin"),
)


async def test_what_each_role_may_do(tmp_path: Path) -> None:
    tokens = TokenFolder(tmp_path, *(grant.identity for grant in GRANTS))
    async with (
        running_name_server(access=tokens.settings(*GRANTS)) as server,
        redis_process(tmp_path / "redis") as redis,
        grpc.aio.insecure_channel(server.addr) as channel,
        refused_addr() as agent,
    ):
        request = wire_of.registration(
            wire_of.topic("orders", 1),
            wire_of.topic(DLQ, 1),
            who=wire_of.identity("red", addr=redis.addr),
            agent_addr=agent,
        )
        await RegistrationServiceStub(channel).RegisterBroker(request, metadata=tokens.header("red"))

        async def run(who: str, *arguments: str) -> Ended:
            file = tmp_path / who
            file.write_text(tokens.tokens[who])
            return await ctl("--namesrv", server.addr, "--token-file", str(file), *arguments)

        transport = RedisStreamsTransport()
        await die_at(transport, redis.addr, "red", *(b"%d" % number for number in range(9)))
        codes: dict[str, tuple[int | None, ...]] = {}
        for number, who in enumerate(("red", "shop", "cashier", "other", "guest", "ops")):
            one = f"id=id-red-{(b'%d' % number).hex()}"
            ended = [
                await run(who, "dlq", "list"),
                await run(who, "dlq", "show", GROUP),
                await run(who, "dlq", "replay", GROUP, "--select", one, "--yes"),
            ]
            codes[who] = tuple(each.code for each in ended)
            assert ("rejected by" in ended[-1].err) is bool(ended[-1].code), ended[-1]
            held = await transport.max_offset(redis.addr, MessageQueue(RETRY, "c1", "red", 0), timeout_seconds=SECONDS)
            assert held == [each[-1] for each in codes.values()].count(0)
        await transport.close()
    shows, changes = (0, 0, 1), (0, 0, 0)
    assert codes == {"red": shows, "guest": shows, "other": shows, "shop": changes, "cashier": changes, "ops": changes}


async def test_brokers_that_are_down_are_named_as_not_counted(brokers: BothBrokers) -> None:
    await die(brokers, "red", b"one")
    health = BrokerHealth(status=PROBE_STATUS_FAILING, ever_passed=True)
    out = wire_of.registration(wire_of.topic("%DLQ%other", 1), who=wire_of.identity("out"), health=health)
    async with grpc.aio.insecure_channel(brokers.name_server.addr) as channel:
        await RegistrationServiceStub(channel).RegisterBroker(out)
    listed = await brokers.ctl("-o", "json", "dlq", "list")
    assert listed.code == 1
    assert [group["stored"] for group in listed.document["groups"]] == [1]
    warned = "1 broker not counted: c1/out/0 OUT (its messages cannot be read)"
    for ended in (listed, await brokers.ctl("dlq", "show", GROUP), await brokers.ctl("dlq", "export", GROUP, "-")):
        assert warned in ended.err
    replayed = await brokers.ctl("dlq", "replay", GROUP, "--yes")
    assert (replayed.code, warned in replayed.err) == (0, True)
