"""Messages to the service manager, on real datagram sockets of both kinds, which never block the daemon."""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from pointsman.daemon.process.sd_notify import ServiceManager, watchdog_seconds
from pointsman.manual_clock import ManualClock


class Inbox:
    """The service manager's end of the socket."""

    def __init__(self, notify_socket: str, addr: str) -> None:
        self.notify_socket = notify_socket
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.setblocking(False)
        self.socket.bind(addr)

    def take(self) -> list[str]:
        """All datagrams so far: each has arrived when its send returns."""
        taken = []
        while True:
            try:
                taken.append(self.socket.recv(4096).decode())
            except BlockingIOError:
                return taken


@pytest.fixture(params=["path", "abstract"])
def inbox(request: pytest.FixtureRequest) -> Iterator[Inbox]:
    with tempfile.TemporaryDirectory() as folder:  # a socket's path is at most 107 bytes; pytest's are longer
        name = f"pointsman-{secrets.token_hex(8)}"
        path = f"{folder}/notify"
        made = Inbox(path, path) if request.param == "path" else Inbox(f"@{name}", f"\0{name}")
        with made.socket:
            yield made


@pytest.fixture
def manager(inbox: Inbox, clock: ManualClock) -> ServiceManager:
    return ServiceManager({"NOTIFY_SOCKET": inbox.notify_socket, "WATCHDOG_USEC": "30000000"}, clock=clock)


def test_each_message_is_one_datagram_in_the_format_of_systemd(manager: ServiceManager, inbox: Inbox) -> None:
    manager.ready()
    manager.stopping()
    assert inbox.take() == ["READY=1", "STOPPING=1"]


def test_a_status_is_one_line_and_sent_once(manager: ServiceManager, inbox: Inbox) -> None:
    manager.status("warming,\n12/40 brokers registered\nREADY=1")
    manager.status("warming, 12/40 brokers registered READY=1")
    manager.status("ready")
    assert inbox.take() == ["STATUS=warming, 12/40 brokers registered READY=1", "STATUS=ready"]


async def test_the_watchdog_is_fed_three_times_in_its_interval(
    manager: ServiceManager, inbox: Inbox, clock: ManualClock
) -> None:
    feeding = asyncio.create_task(manager.feed_watchdog())
    await clock.advance(0)
    assert inbox.take() == ["WATCHDOG=1"]
    await clock.advance(30)
    assert inbox.take() == ["WATCHDOG=1"] * 3
    feeding.cancel()
    await asyncio.gather(feeding, return_exceptions=True)


async def test_a_blocked_loop_does_not_feed_the_watchdog(
    manager: ServiceManager, inbox: Inbox, clock: ManualClock
) -> None:
    feeding = asyncio.create_task(manager.feed_watchdog())
    await clock.advance(0)
    inbox.take()
    await clock.pause(300)
    assert inbox.take() == ["WATCHDOG=1"]
    feeding.cancel()
    await asyncio.gather(feeding, return_exceptions=True)


@pytest.mark.parametrize(
    "environment",
    [
        pytest.param({}, id="no-service-manager"),
        pytest.param({"WATCHDOG_USEC": "30000000"}, id="no-notify-socket"),
        pytest.param({"NOTIFY_SOCKET": "/nowhere"}, id="no-watchdog"),
        pytest.param({"NOTIFY_SOCKET": "/nowhere", "WATCHDOG_USEC": "1000", "WATCHDOG_PID": "1"}, id="another-process"),
    ],
)
async def test_without_a_watchdog_there_is_nothing_to_feed(environment: dict[str, str], clock: ManualClock) -> None:
    await asyncio.wait_for(ServiceManager(environment, clock=clock).feed_watchdog(), 5)


@pytest.mark.parametrize(
    ("environment", "seconds"),
    [
        pytest.param({}, None, id="not-asked"),
        pytest.param({"WATCHDOG_USEC": "30000000"}, 30.0, id="asked"),
        pytest.param({"WATCHDOG_USEC": "500000", "WATCHDOG_PID": "77"}, 0.5, id="asked-of-us"),
        pytest.param({"WATCHDOG_USEC": "500000", "WATCHDOG_PID": "78"}, None, id="asked-of-another"),
        pytest.param({"WATCHDOG_USEC": "0"}, None, id="zero"),
        pytest.param({"WATCHDOG_USEC": "-5"}, None, id="negative"),
        pytest.param({"WATCHDOG_USEC": "soon"}, None, id="no-number"),
        pytest.param({"WATCHDOG_USEC": "²"}, None, id="a-digit-but-no-number"),
        pytest.param({"WATCHDOG_USEC": "9" * 5_000}, None, id="endless"),
    ],
)
def test_the_watchdogs_time_comes_from_the_environment(environment: dict[str, str], seconds: float | None) -> None:
    assert watchdog_seconds(environment, pid=77) == seconds


def say_everything(manager: ServiceManager) -> None:
    manager.ready()
    manager.status("serving")
    manager.stopping()


@pytest.mark.parametrize("notify_socket", ["/nowhere/notify", "vsock:2:1234", "relative", "@", "/" + "x" * 300])
def test_an_unusable_socket_is_logged_once_and_stops_nothing(
    notify_socket: str, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        say_everything(ServiceManager({"NOTIFY_SOCKET": notify_socket}, clock=clock))
    (record,) = caplog.records
    assert record.getMessage() == "sd_notify failed; systemd does not get the state of this process"
    assert record.__dict__["facts"]["notify_socket"] == notify_socket


@pytest.mark.parametrize("environment", [{}, {"NOTIFY_SOCKET": ""}])
def test_without_a_service_manager_nothing_is_sent_or_logged(
    environment: dict[str, str], clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    say_everything(ServiceManager(environment, clock=clock))
    assert caplog.records == []


def test_a_service_manager_that_does_not_read_blocks_nothing(
    manager: ServiceManager, inbox: Inbox, caplog: pytest.LogCaptureFixture
) -> None:
    backlog = int(Path("/proc/sys/net/unix/max_dgram_qlen").read_text())
    for _ in range(2 * backlog + 10):
        manager.ready()
    assert [record.getMessage() for record in caplog.records] == [
        "sd_notify failed; systemd does not get the state of this process"
    ]
    assert set(inbox.take()) == {"READY=1"}
