"""The list of name servers from DNS and from a file, and what applies when it cannot be read."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from pointsman.manual_clock import ManualClock
from pointsman.name_servers import NameServerSource, NameServerSourceError, list_sources
from pointsman.name_servers.list_follower import NameServerFollower
from pointsman.name_servers.list_sources import (
    MAX_BYTES,
    DnsNameServers,
    FileNameServers,
    HttpNameServers,
    build_source,
)
from pointsman.wire.credentials import Credentials
from pointsman_agent.config import MAX_NAME_SERVERS
from pointsman_agent.observable import Observable
from pointsman_agent.registration.listed_name_servers import ListedNameServers
from pointsman_namesrv.config import AddressServerConfig
from tests.kit.certificates import Authority
from tests.kit.name_server.in_process import running_name_server
from tests.kit.name_server.list_server import ListServer
from tests.kit.tls_peers import tls_config
from tests.kit.waiting import eventually

GOOD = ("10.0.0.1:9876", "10.0.0.2:9876")


class ScriptedResolver:
    """Returns ``hosts``, or fails with ``error``; hangs while ``may_answer`` is not set."""

    def __init__(self, hosts: Sequence[str]) -> None:
        self.hosts = hosts
        self.error: Exception | None = None
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.asked = 0

    def __call__(self, host: str) -> Sequence[str]:
        assert host == "namesrv.example"
        self.asked += 1
        self.may_answer.wait(20)
        if self.error is not None:
            raise self.error
        return self.hosts


@dataclass
class Following:
    """A running follower, with what tests check of it."""

    listed: Observable[tuple[str, ...]]
    registry: CollectorRegistry

    def reads(self, result: str) -> int:
        return int(
            self.registry.get_sample_value("pointsman_agent_name_server_list_reads_total", {"result": result}) or 0
        )

    async def has_read(self, times: int, result: str = "ok") -> None:
        await eventually(lambda: self.reads(result) == times)


@asynccontextmanager
async def following(source: NameServerSource, clock: ManualClock) -> AsyncIterator[Following]:
    """Follow a source, each 10 s, for the length of the block."""
    listed, registry = Observable[tuple[str, ...]](()), CollectorRegistry()
    user = ListedNameServers(listed, registry)
    follower = NameServerFollower(source, user, clock=clock, next_wait=lambda: 10.0, at_most=MAX_NAME_SERVERS)
    task = asyncio.create_task(follower.run())
    try:
        yield Following(listed, registry)
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def dns(resolver: ScriptedResolver) -> DnsNameServers:
    return DnsNameServers("namesrv.example:9876", resolve=resolver)


# --- DNS -----------------------------------------------------------------------------------------------------------


async def test_every_address_of_the_name_is_one_name_server_in_both_address_families(clock: ManualClock) -> None:
    resolver = ScriptedResolver(["10.0.0.2", "fd00::1", "10.0.0.1", "10.0.0.2"])
    async with following(dns(resolver), clock) as follower:
        await follower.has_read(1)

    assert follower.listed.value == ("10.0.0.1:9876", "10.0.0.2:9876", "[fd00::1]:9876")


async def test_a_changed_response_applies_at_the_next_refresh_and_a_reordered_one_notifies_no_listener(
    clock: ManualClock,
) -> None:
    resolver = ScriptedResolver(["10.0.0.1", "10.0.0.2"])
    async with following(dns(resolver), clock) as follower:
        await follower.has_read(1)
        woken: list[tuple[str, ...]] = []
        follower.listed.on_change(lambda: woken.append(follower.listed.value))

        resolver.hosts = ["10.0.0.2", "10.0.0.1"]
        await clock.advance(10)
        await follower.has_read(2)
        assert woken == []

        resolver.hosts = ["10.0.0.3"]
        await clock.advance(9.9)
        assert resolver.asked == 2
        await clock.advance(0.1)
        await follower.has_read(3)
        assert woken == [("10.0.0.3:9876",)]


@pytest.mark.parametrize(
    ("error", "hosts", "message"),
    [
        (OSError(-2, "Name or service not known"), (), "Name or service not known"),
        (UnicodeError("label too long"), (), "label too long"),
        (None, (), "the list is empty"),
        (
            None,
            [f"10.0.0.{i}" for i in range(MAX_NAME_SERVERS + 1)],
            "the list has 65 name servers, at most 64 are allowed",
        ),
    ],
    ids=["fails", "no-host-name", "empty", "too-many"],
)
async def test_an_invalid_response_keeps_the_last_good_list_and_is_logged_once(
    clock: ManualClock,
    caplog: pytest.LogCaptureFixture,
    error: Exception | None,
    hosts: Sequence[str],
    message: str,
) -> None:
    resolver = ScriptedResolver(["10.0.0.1", "10.0.0.2"])
    with caplog.at_level(logging.INFO):
        async with following(dns(resolver), clock) as follower:
            await follower.has_read(1)
            good_hosts, resolver.hosts, resolver.error = resolver.hosts, hosts, error
            for times in (1, 2, 3):
                await clock.advance(10)
                await follower.has_read(times, "failed")
                assert follower.listed.value == GOOD
            resolver.hosts, resolver.error = good_hosts, None
            await clock.advance(10)
            await follower.has_read(2)
            assert follower.registry.get_sample_value("pointsman_agent_name_servers_listed") == 2

    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert message in warnings[0].facts["reason"]  # type: ignore[attr-defined]  # set by extra=
    assert warnings[0].facts["kept"] == list(GOOD)  # type: ignore[attr-defined]
    first = f"name server list changed from none to {', '.join(GOOD)}"
    again = "name server list can be read again; it has not changed"
    assert [record.getMessage() for record in caplog.records if record.levelno == logging.INFO] == [first, again]


async def test_a_resolver_that_hangs_times_out_and_gets_one_query_at_a_time(clock: ManualClock) -> None:
    resolver = ScriptedResolver(["10.0.0.1", "10.0.0.2"])
    async with following(dns(resolver), clock) as follower:
        await follower.has_read(1)
        resolver.may_answer.clear()
        resolver.hosts = ["10.0.0.3"]
        await clock.advance(10)
        await eventually(lambda: resolver.asked == 2)
        await clock.advance(5)
        for times in (1, 2, 3):
            await follower.has_read(times, "failed")
            await clock.advance(10)
        assert resolver.asked == 2
        assert follower.listed.value == GOOD

        resolver.may_answer.set()
        async with asyncio.timeout(60):
            # The call that timed out ends when its thread gets to it; until then lookups are refused.
            while set(follower.listed.value) != {"10.0.0.3:9876"}:
                await clock.advance(10)
                await asyncio.sleep(0.001)


async def test_the_resolver_of_this_machine_is_queried() -> None:
    assert "127.0.0.1:9876" in DnsNameServers("localhost:9876").read()
    with pytest.raises(NameServerSourceError, match=r"'no-such-host\.invalid' cannot be resolved: "):
        DnsNameServers("no-such-host.invalid:9876").read()


# --- files ---------------------------------------------------------------------------------------------------------


def test_a_file_holds_one_address_per_line_with_comments_and_empty_lines(tmp_path: Path) -> None:
    path = tmp_path / "namesrv"
    path.write_text("# those of rack 1\n10.0.0.1:9876\n\n  [fd00::1]:9876\r\nnamesrv-3.example:9876\n")

    assert FileNameServers(path).read() == ("10.0.0.1:9876", "[fd00::1]:9876", "namesrv-3.example:9876")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"10.0.0.1:9876\n10.0.0.2\n", "namesrv, line 2: '10.0.0.2' must be host:port"),
        (b"10.0.0.1:9876\n10.0.0.2:98", "namesrv: the last line has no line end, so it may be incomplete"),
        (b"10.0.0.1:9876\n\xff\n", "namesrv: is not UTF-8 at byte 14"),
        (b"\x00" * 100 + b"\n", "namesrv, line 1: '"),
        (b"#" * (MAX_BYTES + 1), f"namesrv: is longer than {MAX_BYTES} bytes"),
    ],
    ids=["faulty", "cut-off", "not-utf-8", "zeros", "long"],
)
def test_an_invalid_file_is_rejected_and_the_error_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "namesrv"
    path.write_bytes(content)

    with pytest.raises(NameServerSourceError) as raised:
        FileNameServers(path).read()
    assert message in str(raised.value)


def test_a_path_that_is_not_a_file_fails_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    for path, message in (
        (tmp_path / "pipe", "is not a regular file"),
        (tmp_path, "directory"),
        (tmp_path / "gone", "No such"),
    ):
        with pytest.raises(NameServerSourceError, match=message):
            FileNameServers(path).read()


def test_a_file_cut_off_at_any_byte_never_gives_an_address_that_it_did_not_hold(tmp_path: Path) -> None:
    path, whole = tmp_path / "namesrv", b"10.0.0.1:9876\n# two\n10.0.0.2:9876\n"
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with contextlib.suppress(NameServerSourceError):
            assert set(FileNameServers(path).read()) < set(GOOD)


async def test_a_file_that_changes_is_followed_and_one_that_vanishes_empties_or_breaks_keeps_the_last_good_list(
    clock: ManualClock, tmp_path: Path
) -> None:
    path = tmp_path / "namesrv"
    path.write_text("10.0.0.1:9876\n")
    async with following(FileNameServers(path), clock) as follower:
        await follower.has_read(1)
        path.write_text("10.0.0.2:9876\n10.0.0.1:9876\n10.0.0.2:9876\n")
        await clock.advance(10)
        await follower.has_read(2)
        assert follower.listed.value == GOOD

        path.unlink()
        for times, content in enumerate([None, "", "# no address\n", "10.0.0.3:98"], 1):
            if content is not None:
                path.write_text(content)
            await clock.advance(10)
            await follower.has_read(times, "failed")
            assert follower.listed.value == GOOD


# --- an address server ----------------------------------------------------------------------------------------------


@pytest.fixture
def lists() -> Iterator[ListServer]:
    server = ListServer()
    yield server
    server.stop()


async def test_the_list_of_an_address_server_is_followed_and_an_error_keeps_the_last_good_one(
    clock: ManualClock, lists: ListServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with following(HttpNameServers(lists.url), clock) as follower:
        await follower.has_read(1)
        for number, (status, body) in enumerate([(404, b"no list"), (200, b""), (200, b"<html>")], 1):
            lists.status, lists.body = status, body
            await clock.advance(10)
            await follower.has_read(number, "failed")
        assert follower.listed.value == GOOD
        lists.body = b"10.0.0.9:9876\n"
        await clock.advance(10)
        await follower.has_read(2)
        assert list(follower.listed.value) == ["10.0.0.9:9876"]
    assert set(lists.asked) == {"/rocketmq/nsaddr-grpc?nofix=1"}
    assert "HTTP 404, expected 200" in str([getattr(record, "facts", "") for record in caplog.records])


async def test_an_agent_reads_the_list_of_a_real_name_server() -> None:
    on = AddressServerConfig(listen="127.0.0.1:0")
    async with running_name_server(address_server=on) as app:
        source = HttpNameServers(f"http://127.0.0.1:{app.address_server_port}/rocketmq/nsaddr")
        with pytest.raises(NameServerSourceError, match="HTTP 404, expected 200"):
            await asyncio.to_thread(source.read)
        app.core.kv.put("NSADDR", "nsaddr", "ns1:9876;ns2:9876")
        assert await asyncio.to_thread(source.read) == ("ns1:9876", "ns2:9876")


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"", "the list has no address"),
        (b"\xff", "ordinal not in range(128)"),
        (b"a:1;a:1", "the list has the address a:1 twice"),
        (b"<!doctype html>", "the list has the address '<!doctype html>', which"),
        (b"a:1;" * 17, "the list has 17 addresses, at most 16 are allowed"),
        (b" " * (MAX_BYTES + 1), f"is longer than {MAX_BYTES} bytes"),
    ],
    ids=["empty", "binary", "twice", "page", "seventeen", "endless"],
)
def test_what_cannot_be_a_list_is_an_error_with_its_address(lists: ListServer, body: bytes, problem: str) -> None:
    lists.body = body
    with pytest.raises(NameServerSourceError) as refused:
        HttpNameServers(lists.url).read()
    assert str(refused.value).startswith(f"{lists.url}: ")
    assert problem in str(refused.value)


def test_a_redirection_is_not_followed_and_a_proxy_not_asked(
    lists: ListServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    source = HttpNameServers(lists.url)
    assert source.read() == ("10.0.0.2:9876", "10.0.0.1:9876")
    lists.status, lists.location = 302, lists.url
    with pytest.raises(NameServerSourceError, match="HTTP 302"):
        source.read()
    assert len(lists.asked) == 2


def test_a_server_that_sends_a_byte_now_and_then_is_given_up(
    lists: ListServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(list_sources, "HTTP_SECONDS", 0.2)
    ended = threading.Event()

    def trickle(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        while not ended.wait(0.05):
            handler.wfile.write(b"a")

    lists.send = trickle
    with pytest.raises(NameServerSourceError, match="no complete response within"):
        HttpNameServers(lists.url).read()
    ended.set()


def test_an_address_server_that_is_away_is_an_error(lists: ListServer) -> None:
    lists.send = lambda handler: handler.connection.close()
    with pytest.raises(NameServerSourceError, match=r"127\.0\.0\.1"):
        HttpNameServers(lists.url).read()


async def test_https_is_verified_by_the_authorities_of_the_credentials(authority: Authority) -> None:
    on, tls = AddressServerConfig(listen="127.0.0.1:0", tls=True), tls_config(authority.issue("server"))
    async with running_name_server(address_server=on, tls=tls) as app:
        app.core.kv.put("NSADDR", "nsaddr", "ns1:9876")
        url = f"https://localhost:{app.address_server_port}/rocketmq/nsaddr"
        known = HttpNameServers(url, credentials=Credentials(ca=str(authority.file)))
        assert await asyncio.to_thread(known.read) == ("ns1:9876",)
        with pytest.raises(NameServerSourceError, match="certificate verify failed"):
            await asyncio.to_thread(HttpNameServers(url).read)


def test_the_source_is_as_configured() -> None:
    assert isinstance(build_source(url="http://ns1:8080/rocketmq/nsaddr"), HttpNameServers)
    assert build_source() is None
    assert isinstance(build_source(dns="namesrv.example:9876"), DnsNameServers)
    assert isinstance(build_source(file="namesrv"), FileNameServers)
