"""The client's examples, each run by the command in its own docstring against real brokers."""

from __future__ import annotations

import asyncio
import json
import os
import re
import runpy
import shlex
import shutil
import signal
import sys
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
import pytest_asyncio

from pointsman_client.client import NameServerClient
from pointsman_client.core.message import Message
from pointsman_client.producer.producer import Producer
from pointsman_client.redis_streams import RedisStreamsTransport
from tests.kit.broker.redis.process import free_port
from tests.kit.broker.redis.with_agent import BrokerPlan, redis_broker
from tests.kit.name_server.process import real_name_server
from tests.kit.postgres_server import postgres_server
from tests.kit.waiting import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.redis, pytest.mark.timeout(180), pytest.mark.asyncio(loop_scope="module")]

EXAMPLES = Path(__file__).parents[2] / "client" / "examples"
TOPICS = {"orders": 4, "invoices": 4}
PATIENCE_SECONDS = 90.0
POLL_SECONDS = 0.05
INTERRUPTED = {0, 130, -signal.SIGINT}
"""How a program may end after Ctrl-C."""


class Example:
    """A command of an example, as a process. Redirected output is not to be held back."""

    def __init__(self, log: Path, process: asyncio.subprocess.Process) -> None:
        self._log = log
        self.process = process

    def said(self) -> str:
        return self._log.read_text(encoding="utf-8")

    def lines(self) -> list[str]:
        return self.said().splitlines()

    async def says(self, condition: Callable[[list[str]], object]) -> None:
        """Wait until its output meets the condition."""
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + PATIENCE_SECONDS
        while not condition(self.lines()):
            assert self.process.returncode is None, f"it ended: {self.said()}"
            assert loop.time() < ends_at, f"the expected output did not appear: {self.said()}"
            await asyncio.sleep(POLL_SECONDS)

    async def ends(self) -> int:
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await self.process.wait()

    async def is_interrupted(self) -> None:
        """Ctrl-C: it ends, and without a traceback."""
        self.process.send_signal(signal.SIGINT)
        assert await self.ends() in INTERRUPTED, self.said()
        assert "Traceback" not in self.said()


class Examples:
    """Runs commands of docstrings; the addresses in them are exchanged for the real ones."""

    def __init__(self, folder: Path, name_server: str) -> None:
        self.name_server = name_server
        self._folder = folder
        self._exchanged = {"127.0.0.1:9876": name_server, "8000": str(free_port())}
        self._running: list[Example] = []

    def commands(self, example: str) -> list[str]:
        """The indented lines of its docstring, without the remarks after them."""
        docstring = re.match(r'"""(.*?)"""', (EXAMPLES / example).read_text(encoding="utf-8"), re.DOTALL)
        assert docstring is not None
        lines = [line.partition("  # ")[0].strip() for line in docstring[1].splitlines() if line.startswith("    ")]
        for documented, real in self._exchanged.items():
            lines = [line.replace(documented, real) for line in lines]
        return lines

    async def start(self, command: str) -> Example:
        words = shlex.split(command)
        environment = {"PYTHONUNBUFFERED": "1", "POINTSMAN_NAMESRV": self.name_server}
        while "=" in words[0]:
            name, _, value = words.pop(0).partition("=")
            environment[name] = value
        log = self._folder / f"{len(self._running)}.log"
        with log.open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                _program(words[0]),
                *words[1:],
                cwd=EXAMPLES,
                env=os.environ | environment,
                stdout=output,
                stderr=asyncio.subprocess.STDOUT,
            )
        self._running.append(Example(log, process))
        return self._running[-1]

    async def run(self, command: str) -> list[str]:
        """Run to the end, which must succeed; return the output."""
        example = await self.start(command)
        assert await example.ends() == 0, example.said()
        return example.lines()

    async def kill(self) -> None:
        for example in self._running:
            if example.process.returncode is None:
                example.process.kill()
                await example.process.wait()


def _program(name: str) -> str:
    """A program of this Python's environment before any other of its name."""
    if name == "python":
        return sys.executable
    found = shutil.which(name, path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    assert found is not None, f"{name} is not installed"
    return found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def name_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """A name server with two brokers that have the examples' topics, shared by all tests; messages stay."""
    folder = tmp_path_factory.mktemp("fleet")
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(real_name_server(folder / "namesrv"))
        for name in ("broker-a", "broker-b"):
            await stack.enter_async_context(redis_broker(folder / name, BrokerPlan(name, TOPICS), [server.addr]))
        async with NameServerClient([server.addr]) as client, asyncio.timeout(PATIENCE_SECONDS):
            for topic in TOPICS:
                async for change in client.route_changes(topic):
                    if change.new is not None and len(change.new.broker_datas) == 2:
                        break
        yield server.addr


@pytest_asyncio.fixture(loop_scope="module")
async def fleet(tmp_path: Path, name_server: str) -> AsyncIterator[Examples]:
    """The processes of one test; all are stopped at its end."""
    found = Examples(tmp_path, name_server)
    try:
        yield found
    finally:
        await found.kill()


async def send(name_server: str, *messages: tuple[str, str], seconds_between: float = 0.0) -> None:
    """Send bodies with their tags to ``orders``."""
    async with Producer([name_server], transport=RedisStreamsTransport) as producer:
        for body, tags in messages:
            await producer.send(Message("orders", body.encode(), tags=tags))
            await asyncio.sleep(seconds_between)


async def messages_of(topic: str, name_server: str) -> Counter[tuple[str, str]]:
    """The messages of a topic: bodies, each with its tag."""
    found: Counter[tuple[str, str]] = Counter()
    async with NameServerClient([name_server]) as client:
        transport = RedisStreamsTransport()
        for queue in await client.subscribe_queues(topic):
            broker = client.broker(queue.cluster, queue.broker_name)
            assert broker is not None
            assert broker.master is not None
            pulled = await transport.pull(
                broker.master.addr, queue, 0, max_messages=1_000, wait_seconds=0.0, timeout_seconds=5.0
            )
            found.update((message.body.decode(), message.tags) for message in pulled.messages)
        await transport.close()
    return found


async def test_produce_sends_ten_messages_over_both_brokers(fleet: Examples) -> None:
    (command,) = fleet.commands("produce.py")
    before = await messages_of("orders", fleet.name_server)

    said = await fleet.run(command)

    assert len(said) == 10
    places = [re.fullmatch(r"SEND_OK: (broker-[ab]) queue [0-3]", line) for line in said]
    assert all(places), said
    assert {place[1] for place in places if place is not None} == {"broker-a", "broker-b"}
    sent = await messages_of("orders", fleet.name_server) - before
    assert sent == Counter((f"order {n}", "paid") for n in range(10))


async def test_the_outbox_sends_each_change_of_the_database_also_after_a_run_that_could_not(
    fleet: Examples, tmp_path: Path
) -> None:
    (command,) = fleet.commands("database_outbox.py")
    command = command.replace("shop.db", str(tmp_path / "shop.db"))
    before = await messages_of("orders", fleet.name_server)
    alone = await fleet.start(command.replace(fleet.name_server, f"127.0.0.1:{free_port()}"))
    assert await alone.ends() == 1
    assert alone.said().startswith("stays in the outbox: no name server responded")

    assert await fleet.run(command) == [f"order {n} paid: SEND_OK" for n in range(1, 7)]
    sent = await messages_of("orders", fleet.name_server) - before
    assert sent == Counter((f"order {n} paid", "paid") for n in range(1, 7))
    assert await fleet.run(command) == [f"order {n} paid: SEND_OK" for n in range(7, 10)]


@pytest.fixture
def postgres() -> Iterator[str]:
    with postgres_server() as url:
        yield url


async def test_the_outbox_in_postgresql_sends_each_change_once_by_any_number_of_instances(
    fleet: Examples, postgres: str
) -> None:
    _, command = fleet.commands("postgres_outbox.py")
    command = command.replace("postgresql://127.0.0.1:5432/shop", postgres)
    before = await messages_of("orders", fleet.name_server)
    alone = await fleet.start(command.replace(fleet.name_server, f"127.0.0.1:{free_port()}"))
    assert await alone.ends() == 1
    assert alone.said().startswith("stays in the outbox: no name server responded")

    both = [await fleet.start(command) for _ in range(2)]
    assert [await each.ends() for each in both] == [0, 0]

    said = [line for each in both for line in each.lines()]
    assert sorted(said) == [f"order {n} paid: SEND_OK" for n in range(1, 10)]
    sent = await messages_of("orders", fleet.name_server) - before
    assert sent == Counter((f"order {n} paid", "paid") for n in range(1, 10))


async def test_a_change_that_postgresql_rolls_back_leaves_no_message(postgres: str) -> None:
    example = runpy.run_path(str(EXAMPLES / "postgres_outbox.py"))
    async with await psycopg.AsyncConnection.connect(postgres, autocommit=True) as database:
        for table in example["TABLES"]:
            await database.execute(table)
        async with database.transaction():
            await example["pay"](database)
            raise psycopg.Rollback
        await example["pay"](database)
        rows = await (await database.execute("SELECT body FROM outbox")).fetchall()
        assert [body for (body,) in rows] == [b"order 2 paid"]


async def test_a_message_that_one_instance_sends_from_postgresql_is_skipped_by_another(postgres: str) -> None:
    example = runpy.run_path(str(EXAMPLES / "postgres_outbox.py"))
    sent: list[bytes] = []
    are_both_sending = asyncio.Event()

    class Slow:
        async def send(self, message: Message) -> Any:
            sent.append(message.body)
            if len(sent) == 2:
                are_both_sending.set()
            async with asyncio.timeout(PATIENCE_SECONDS):
                await are_both_sending.wait()
            return SimpleNamespace(status="SEND_OK")

    connect = psycopg.AsyncConnection.connect
    async with await connect(postgres, autocommit=True) as one, await connect(postgres, autocommit=True) as other:
        for table in example["TABLES"]:
            await one.execute(table)
        for _ in range(4):
            await example["pay"](one)
        await asyncio.gather(*(example["send_outbox"](each, Slow(), "orders") for each in (one, other)))
    assert sorted(sent) == [b"order %d paid" % number for number in range(1, 5)]


async def accepted(fleet: Examples, curl: str) -> str:
    """What a service answers to the request of its docstring, which sends one message."""
    program, _, method, url = shlex.split(curl)
    assert program == "curl"
    before = await messages_of("orders", fleet.name_server)
    request = urllib.request.Request(url, method=method)  # the service is another process
    status, answer = await asyncio.to_thread(_ask, request)
    assert status == 202
    assert await messages_of("orders", fleet.name_server) - before == Counter([("4711 paid", "paid")])
    return answer


async def test_the_flask_service_accepts_an_order_by_http_and_becomes_ready(fleet: Examples) -> None:
    _, command, curl, probe = fleet.commands("flask_service.py")
    service = await fleet.start(command)
    await service.says(lambda lines: any("Running on http://127.0.0.1" in line for line in lines))
    answer = await accepted(fleet, curl)
    assert re.fullmatch(r"broker-[ab]:[0-3] [0-9a-f]{32}", "{queue} {message_id}".format(**json.loads(answer)))
    probe_url = shlex.split(probe)[1]
    await eventually(lambda: _get(probe_url) == (200, "[]\n"))
    await service.says(lambda lines: "changed: b'4711 paid'" in lines)
    await service.is_interrupted()


async def test_an_order_that_pydantic_refuses_is_a_dead_letter_with_the_reason_and_without_the_input(
    fleet: Examples,
) -> None:
    _, command = fleet.commands("validated_orders.py")

    said = await fleet.run(command)

    ended = [line for line in said if line.startswith(("order", "dead"))]
    assert sorted(ended)[1:] == ["order 4711 paid: 9.90", "order 4712 refunded: 5.00"]
    reason = (
        r"dead letter: UndecodableMessageError: the body of message [0-9a-f]{32} cannot be decoded: ValidationError: 3 "
    )
    assert re.match(reason + "validation errors for Order number Input should be a valid integer", min(ended))
    assert "many" not in "".join(said)
    assert "lost" not in "".join(said)


async def test_the_lines_and_spans_of_an_order_have_one_trace(fleet: Examples) -> None:
    _, command = fleet.commands("observed_consumer.py")

    said = [json.loads(line) for line in await fleet.run(command)]

    lines = {line["text"]: line for line in said if "logger" in line}
    spans = {span["name"]: span for span in said if "kind" in span}
    assert lines["ordered"]["message_id"] == lines["billed"]["message_id"]
    assert (lines["billed"]["keys"], lines["billed"]["attempt"], lines["billed"]["level"]) == (["4711"], 1, "INFO")
    traces = {line["trace_id"] for line in (lines["ordered"], lines["billed"])}
    traces |= {span["context"]["trace_id"].removeprefix("0x") for span in spans.values()}
    assert len(traces) == 1
    assert {"order", "send orders", "process orders"} <= set(spans)
    assert spans["order"]["resource"]["attributes"]["service.name"] == "billing"
    assert "pointsman_client" in {line["logger"].partition(".")[0] for line in lines.values()}
    assert any("pointsman_client_sends" in json.dumps(each) for each in said if "resource_metrics" in each)


async def test_a_worker_that_is_stopped_finishes_its_message_while_it_is_not_ready(fleet: Examples) -> None:
    command, probe, *_ = fleet.commands("kubernetes_worker.py")
    ready = shlex.split(probe)[1]
    alive = ready.replace("readyz", "livez")
    worker = await fleet.start(command)
    await eventually(lambda: _get(ready) == (200, ""))
    await send(fleet.name_server, ("one", "worker"))
    await worker.says(lambda lines: "began one" in lines)

    worker.process.send_signal(signal.SIGTERM)

    await worker.says(lambda lines: "draining" in lines)
    assert _get(ready) == (503, "it is not started, or closed")
    assert _get(alive) == (200, "")
    assert await worker.ends() == 0, worker.said()
    lines = worker.lines()
    assert [each for each in lines if "one" in each or each.startswith("dr")] == [
        "began one",
        "draining",
        "finished one",
        "drained",
    ]
    began = {line.removeprefix("began ") for line in lines if line.startswith("began")}
    assert {line.removeprefix("finished ") for line in lines if line.startswith("finished")} == began

    again = await fleet.start(command)
    await send(fleet.name_server, ("two", "worker"))
    await again.says(lambda lines: "finished two" in lines)
    assert "began one" not in again.lines()
    again.process.send_signal(signal.SIGTERM)
    assert await again.ends() == 0


async def test_produce_prints_what_was_not_sent_and_why(fleet: Examples) -> None:
    (command,) = fleet.commands("produce.py")

    example = await fleet.start(command.replace("orders", "nothing-of-this-name"))

    assert await example.ends() == 1
    assert "TopicNotFoundError: topic nothing-of-this-name has no route at 127.0.0.1:" in example.lines()[-1]


async def test_consume_gets_its_tags_and_leaves_at_ctrl_c(fleet: Examples) -> None:
    (command,) = fleet.commands("consume.py")
    await send(fleet.name_server, ("one", "paid"), ("two", "created"), ("three", "refunded"), ("four", ""))

    first = await fleet.start(command)
    await first.says(lambda lines: {"b'one'", "b'three'"} <= set(bodies(lines)))
    second = await fleet.start(command)
    await first.is_interrupted()
    later = [f"later {number}" for number in range(16)]
    await send(fleet.name_server, *((each, "paid") for each in later))

    await second.says(lambda lines: {f"b'{each}'" for each in later} <= set(bodies(lines)))
    await second.is_interrupted()
    ours = {f"b'{each}'" for each in ("one", "two", "three", "four", *later)}
    said = [each for each in bodies([*first.lines(), *second.lines()]) if each in ours]
    assert sorted(said) == sorted(ours - {"b'two'", "b'four'"})


def bodies(lines: Iterable[str]) -> list[str]:
    """What consume.py prints after the place of each message."""
    return [line.partition(": ")[2] for line in lines]


async def test_ordered_by_key_prints_each_customers_steps_in_order_and_ends_by_itself(fleet: Examples) -> None:
    (command,) = fleet.commands("ordered_by_key.py")

    said = await fleet.run(command)

    assert said == [f"{customer} created paid packed shipped" for customer in ("ann", "bob", "cleo")]


async def test_pinned_prints_when_a_pin_is_set_and_ended(fleet: Examples) -> None:
    command, pin = fleet.commands("pinned.py")
    consumer = await fleet.start(command)
    await consumer.says(lambda lines: "not pinned; this member holds 8 queues" in lines)
    other = await fleet.start(command.replace("trial-host@1", "other-host@1"))
    await consumer.says(lambda lines: "not pinned; this member holds 4 queues" in lines)

    await fleet.run(pin)
    await consumer.says(lambda lines: "pinned to trial-host@1; this member holds 8 queues" in lines)
    await other.says(lambda lines: "pinned to trial-host@1; this member holds 0 queues" in lines)
    # A group without offsets skips what was sent before it began a queue; some of these are sent after that.
    numbered = [(f"pinned {number}", "") for number in range(40)]
    await send(fleet.name_server, *numbered, seconds_between=POLL_SECONDS)
    await consumer.says(lambda lines: "b'pinned 39'" in lines)
    assert not any("b'pinned" in line for line in other.lines())
    printed = len(consumer.lines())
    await fleet.run(pin.replace("pin billing --to trial-host --for 1h", "unpin billing"))
    await consumer.says(lambda lines: "not pinned; this member holds 4 queues" in lines[printed:])

    await consumer.is_interrupted()
    await other.is_interrupted()


async def test_the_fastapi_service_accepts_an_order_by_http_and_becomes_ready(fleet: Examples) -> None:
    _, command, curl, probe = fleet.commands("fastapi_service.py")
    service = await fleet.start(command)
    await service.says(lambda lines: any("Uvicorn running on" in line for line in lines))
    answer = await accepted(fleet, curl)
    assert re.fullmatch(r'\{"message_id":"[0-9a-f]{32}","queue":"broker-[ab]:[0-3]"\}', answer)
    await eventually(lambda: _ask(urllib.request.Request(shlex.split(probe)[1])) == (200, "[]"))
    await service.is_interrupted()
    assert any("Application shutdown complete" in line for line in service.lines())


def _get(url: str) -> tuple[int, str]:
    return _ask(urllib.request.Request(url))


def _ask(request: urllib.request.Request) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(request, timeout=90.0) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refusal:
        return refusal.code, refusal.read().decode()
    except urllib.error.URLError as error:  # it does not listen yet
        return 0, str(error.reason)


async def test_the_synchronous_worker_sends_an_invoice_for_each_order_and_ends_at_ctrl_c(fleet: Examples) -> None:
    (command,) = fleet.commands("synchronous_worker.py")
    jobs = [f"job {number}" for number in range(8)]
    await send(fleet.name_server, *((each, "") for each in jobs))

    worker = await fleet.start(command)

    await worker.says(lambda lines: set(jobs) <= set(lines))
    await worker.is_interrupted()
    assert sorted(line for line in worker.lines() if line in jobs) == jobs
    invoices = await messages_of("invoices", fleet.name_server)
    assert sorted(body for body, _ in invoices.elements() if "job" in body) == [f"invoice of {each}" for each in jobs]


async def test_watch_routes_prints_the_route_and_each_change(fleet: Examples, tmp_path: Path) -> None:
    """The last one here: the broker that it adds and kills stays in the route until it expires."""
    (command,) = fleet.commands("watch_routes.py")
    example = await fleet.start(command)
    both = "".join(rf"c1/broker-{name} \{{0: 127\.0\.0\.1:\d+ UP\}}\n" for name in "ab") + "--"
    await example.says(lambda lines: re.fullmatch(both, "\n".join(lines[-3:])))
    printed = len(example.lines())

    more = tmp_path / "broker-c"
    async with redis_broker(more, BrokerPlan("broker-c", TOPICS), [fleet.name_server]):
        await example.says(lambda lines: any(line.startswith("c1/broker-c {0: ") for line in lines[printed:]))

    await example.is_interrupted()
