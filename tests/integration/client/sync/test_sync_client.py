"""The blocking client of the name servers, against a real one in a separate process."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from pointsman_client.core.route import RouteChange
from pointsman_client.errors import (
    BlockingCallError,
    CallTimeoutError,
    ClientClosedError,
    ClientNotStartedError,
    InvalidNameError,
    InvalidOptionError,
    NameServersUnavailableError,
    TopicNotFoundError,
)
from pointsman_client.sync import NameServerClient
from pointsman_client.testing import TestFleet
from tests.kit.waiting import until

SILENT = "127.0.0.1:1"


@pytest.fixture(scope="module")
def shared_fleet() -> Iterator[TestFleet]:
    with TestFleet() as fleet:
        fleet.add_broker("broker-a", topics={"orders": 4, "audit": 1})
        yield fleet


@pytest.fixture
def client(shared_fleet: TestFleet) -> Iterator[NameServerClient]:
    with NameServerClient(shared_fleet.name_servers, clock=shared_fleet.clock) as client:
        yield client


def loop_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "pointsman-loop"]


def run_program(source: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", source, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_routes_are_looked_up_as_in_the_async_client(client: NameServerClient) -> None:
    assert client.topic_route("orders").queue_datas[0].write_queue_nums == 4
    assert [queue.queue_id for queue in client.publish_queues("orders")] == [0, 1, 2, 3]
    assert client.subscribe_queues("orders") == client.publish_queues("orders")
    assert client.fetch_route("orders", cluster="DefaultCluster").topic == "orders"
    assert client.list_topics() == ("audit", "orders")
    assert client.list_clusters()[0].broker_datas[0].broker_name == "broker-a"
    assert client.refresh("orders").topic == "orders"
    broker = client.broker("DefaultCluster", "broker-a")
    assert broker is not None
    assert client.brokers_of(["orders"]) == (broker,)
    assert client.route_age_seconds("orders") == 0.0
    assert client.describe("orders")["topic"] == "orders"
    remove = client.attach_description("more", lambda topic: topic.upper())
    assert client.describe("orders")["more"] == "ORDERS"
    remove()
    assert "more" not in client.describe("orders")


def test_errors_are_those_of_the_async_client(client: NameServerClient) -> None:
    with pytest.raises(TopicNotFoundError):
        client.topic_route("nothing")
    with pytest.raises(InvalidNameError):
        client.topic_route("no such name!")
    with NameServerClient(SILENT) as alone, pytest.raises(NameServersUnavailableError):
        alone.topic_route("orders")


def test_changes_arrive_by_watch_and_reach_a_callback_and_an_iterator(shared_fleet: TestFleet) -> None:
    notified: list[tuple[str, RouteChange]] = []
    with NameServerClient(shared_fleet.name_servers, clock=shared_fleet.clock) as client:
        client.on_route_change(lambda change: notified.append((threading.current_thread().name, change)))
        changes = client.route_changes("growing")
        shared_fleet.add_broker("broker-g", topics={"growing": 2})
        shared_fleet.advance(40)
        first = next(changes)
        assert (first.old, first.new is not None) == (None, True)
        shared_fleet.kill_broker("broker-g")
        shared_fleet.advance(130)
        lost = next(changes).new
        assert lost is not None
        assert [broker.broker_name for broker in lost.absent_brokers] == ["broker-g"]
        changes.close()
        assert list(changes) == []
        until(lambda: len(notified) >= 2)
    assert {name for name, _ in notified} == {"pointsman-callbacks"}


def test_a_known_route_outlives_the_name_server() -> None:
    with TestFleet() as fleet, NameServerClient(fleet.name_servers, clock=fleet.clock) as client:
        fleet.add_broker("broker-a", topics={"orders": 4})
        assert len(client.publish_queues("orders")) == 4
        fleet.close()
        assert len(client.publish_queues("orders")) == 4
        with pytest.raises(NameServersUnavailableError):
            client.refresh("orders")


def test_many_threads_share_a_client(client: NameServerClient) -> None:
    with ThreadPoolExecutor(8) as pool:
        routes = list(pool.map(lambda _: client.fetch_route("orders"), range(200)))
    assert {route.topic for route in routes} == {"orders"}


def test_all_clients_share_one_thread_that_ends_with_the_last(shared_fleet: TestFleet) -> None:
    first, second = NameServerClient(shared_fleet.name_servers), NameServerClient(shared_fleet.name_servers)
    assert loop_threads() == []
    with first, second:
        assert loop_threads() == ["pointsman-loop"]
        first.close()
        assert second.list_topics()
    assert loop_threads() == []
    with NameServerClient(shared_fleet.name_servers) as third:
        assert third.list_topics()


def test_closing_ends_waits_in_other_threads(shared_fleet: TestFleet) -> None:
    client = NameServerClient(shared_fleet.name_servers).start()
    with ThreadPoolExecutor(1) as pool:
        changes = client.route_changes("nothing")
        waiting = pool.submit(list, changes)
        with pytest.raises(TimeoutError):
            waiting.result(0.2)
        client.close()
        assert waiting.result(5.0) == []
    client.close()
    with pytest.raises(ClientClosedError):
        client.topic_route("orders")
    with pytest.raises(ClientClosedError):
        client.start()


def test_use_before_the_start_is_an_error_that_explains_it() -> None:
    client = NameServerClient(SILENT)
    with pytest.raises(ClientNotStartedError):
        client.topic_route("orders")
    client.close()
    for seconds in (0, float("inf")):
        with pytest.raises(InvalidOptionError, match="call_timeout_seconds"):
            NameServerClient(SILENT, call_timeout_seconds=seconds)


async def test_use_in_an_event_loop_is_an_error_that_names_the_async_class(client: NameServerClient) -> None:
    with pytest.raises(BlockingCallError, match="event loop that runs in this thread"):
        client.topic_route("orders")
    with pytest.raises(BlockingCallError):
        NameServerClient(SILENT).start()
    assert await asyncio.to_thread(client.publish_queues, "orders")


class Hanging:
    """Work that ends only when it is cancelled."""

    def __init__(self) -> None:
        self.began = threading.Event()
        self.cancelled = threading.Event()

    async def work(self) -> None:
        self.began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise


def test_a_call_has_its_own_deadline_and_does_not_continue_after_it(shared_fleet: TestFleet) -> None:
    hanging = Hanging()
    with NameServerClient(shared_fleet.name_servers, call_timeout_seconds=2.0) as client:
        with pytest.raises(CallTimeoutError, match=r"2 s"):
            client._call(hanging.work)
        assert hanging.cancelled.wait(5.0)
        assert client.list_topics()


def test_a_call_without_a_response_is_ended_by_closing(shared_fleet: TestFleet) -> None:
    hanging, client = Hanging(), NameServerClient(shared_fleet.name_servers).start()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(client._call, hanging.work)
        assert hanging.began.wait(5.0)
        client.close()
        with pytest.raises(ClientClosedError):
            waiting.result(5.0)


FORKING = """
import os, sys
from pointsman_client.errors import ForkedError
from pointsman_client.sync import NameServerClient

client = NameServerClient(sys.argv[1].split()).start()
assert client.list_topics()
if os.fork() == 0:
    for use in (client.list_topics, client.close, client.start, lambda: client.describe("orders")):
        try:
            use()
        except ForkedError as error:
            print(error, flush=True)
    with NameServerClient(sys.argv[1].split()) as own:
        print(own.list_topics(), flush=True)
    os._exit(0)
os.wait()
assert client.list_topics()
client.close()
"""


def test_after_a_fork_the_child_gets_an_error_that_asks_for_a_new_client(shared_fleet: TestFleet) -> None:
    ended = run_program(FORKING, *shared_fleet.name_servers)
    assert ended.stdout.splitlines() == [
        *["the process was forked after the client was started: make a new client in the child"] * 4,
        "('audit', 'orders')",
    ]
    assert ended.returncode == 0


PRE_FORKED = """
import os, sys
from pointsman_client import Message
from pointsman_client.sync import Producer
from pointsman_client.memory import MemoryTransport
from pointsman_client.ports.transport import SendReceipt
from pointsman_client.core.send_outcome import SendStatus


class Printing(MemoryTransport):
    async def send(self, addr, queue, messages, *, timeout_seconds):
        print(messages[0].message_id, flush=True)
        return SendReceipt(SendStatus.SEND_OK, (0,))


producer = Producer(sys.argv[1].split(), transport=Printing)
for _ in range(2):
    if os.fork() == 0:
        with producer:
            producer.send(Message("orders", b"1"))
        os._exit(0)
    os.wait()
"""


def test_an_object_made_before_a_fork_starts_in_each_child_with_separate_message_ids(
    shared_fleet: TestFleet,
) -> None:
    ended = run_program(PRE_FORKED, *shared_fleet.name_servers)
    assert ended.returncode == 0, ended.stderr
    assert len(set(ended.stdout.split())) == 2


INTERRUPTED = """
import os, signal, sys, threading
from pointsman_client.sync import NameServerClient

with NameServerClient(sys.argv[1].split()) as client:
    changes = client.route_changes("nothing")
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        next(changes)
    except KeyboardInterrupt:
        print("interrupted", client.list_topics())
ours = [thread for thread in threading.enumerate() if thread.name.startswith("pointsman")]
for thread in ours:
    thread.join(10)  # one that read a stream ends once gRPC has cancelled the call
print([thread.name for thread in ours if thread.is_alive() or thread.name == "pointsman-loop"])
"""


def test_an_interrupt_while_blocked_ends_the_call_and_leaves_the_client_usable(shared_fleet: TestFleet) -> None:
    ended = run_program(INTERRUPTED, *shared_fleet.name_servers)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.splitlines() == ["interrupted ('audit', 'orders')", "[]"]


SEVERAL_LOOPS = """
import asyncio, sys, threading
from pointsman_client.pointsman_grpc.links import open_channel
from pointsman_client.pointsman_grpc.thread_channel import open_thread_channel
from pointsman_client.client import NameServerClient

name_servers = sys.argv[1].split()

async def ask(opening):
    async with NameServerClient(name_servers, open_channel=opening) as client:
        await client.topic_route("orders")  # watched from here on
        for _ in range(100):
            await asyncio.gather(*(client.fetch_route("orders") for _ in range(10)))

threads = [threading.Thread(target=lambda: asyncio.run(ask(open_thread_channel))) for _ in range(2)]
for thread in threads:
    thread.start()
asyncio.run(ask(open_channel))
for thread in threads:
    thread.join()
"""


def test_two_loops_next_to_one_of_grpc_aio_log_nothing(shared_fleet: TestFleet) -> None:
    ended = run_program(SEVERAL_LOOPS, *shared_fleet.name_servers)
    assert (ended.returncode, ended.stderr) == (0, "")
