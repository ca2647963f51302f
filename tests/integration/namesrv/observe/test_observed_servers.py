"""Several observed name servers: whose routes differ, what that costs them, TLS and accounts, and a changed list."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from pointsman.rocketmq.account import Account
from pointsman_namesrv.config import RemotingConfig
from pointsman_namesrv.observe import connection, route_differences
from pointsman_namesrv.observe import observer as observing_one
from pointsman_namesrv.observe import polled_events as watching
from pointsman_namesrv.observe.observed_servers import ObservedServers
from tests.kit.broker.redis.process import free_port
from tests.kit.broker.rocketmq.frames import broker_ext, register, register_body
from tests.kit.broker.rocketmq.peer import remoting_peer
from tests.kit.certificates import Authority
from tests.kit.history.rows import rows_in
from tests.kit.name_server.in_process import running_name_server
from tests.kit.name_server.observed import observing, polled, sample, scripted_fleet
from tests.kit.tls_peers import context, tls_config
from tests.kit.waiting import eventually

DIFFER = "routes of this name server differ from those of another"


@pytest.fixture(autouse=True)
def _waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observing_one, "FIRST_WAIT_SECONDS", 0.02)
    monkeypatch.setattr(observing_one, "LONGEST_WAIT_SECONDS", 0.1)
    # Only what a test stops is away, never a slow machine.
    monkeypatch.setattr(watching, "PAUSED_AFTER_SECONDS", 60.0)
    monkeypatch.setattr(connection, "CONNECT_SECONDS", 30.0)
    monkeypatch.setattr(connection, "RESPONSE_SECONDS", 30.0)
    monkeypatch.setattr(observing_one, "EARLY_WALK_SECONDS", 0.1)
    monkeypatch.setattr(route_differences, "CONFIRM_SECONDS", 0.1)
    monkeypatch.setattr(route_differences, "REPEAT_SECONDS", 0.1)


def differing(servers: ObservedServers, *addrs: str) -> list[float | None]:
    return [sample(servers, "routes_differing", addr) for addr in addrs]


def is_watched(servers: ObservedServers, addr: str) -> bool:
    listing = servers.listings.by_addr.get(addr)
    return listing is not None and listing.brokers is not None


def recorded_topics(folder: Path) -> set[str]:
    """Return the brokers whose topics are in the history."""
    return {row["broker_name"] for row in rows_in(folder) if row["event"] == "TOPICS"}


# --- routes -------------------------------------------------------------------------------------------------------


async def test_a_route_that_differs_is_shown_until_it_differs_no_longer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with scripted_fleet("T", "U") as one, scripted_fleet("T", "U") as two:
        two.holds("T", "a", perm=4)
        async with observing(tmp_path, polled(one.addr, two.addr, topics_seconds=3_600.0)) as servers:
            await eventually(lambda: differing(servers, one.addr, two.addr) == [1.0, 1.0])
            assert (sample(servers, "routes_differing_seconds", two.addr) or 0.0) > 0.0
            assert dict(servers.differences.topics(one.addr)).keys() == {"T"}
            await eventually(lambda: caplog.messages.count(DIFFER) == 2)
            two.holds("T", "a")
            await eventually(lambda: differing(servers, one.addr, two.addr) == [0.0, 0.0])
            assert sample(servers, "routes_differing_seconds", two.addr) == 0.0
    facts = [vars(record)["facts"] for record in caplog.records if record.message == DIFFER]
    assert {each["name_server"] for each in facts} == {one.addr, two.addr}
    assert [each["topics"] for each in facts] == [["T"], ["T"]]


async def test_a_topic_that_one_of_them_does_not_have_differs_and_one_that_is_away_does_not_count(
    tmp_path: Path,
) -> None:
    async with (
        scripted_fleet("T", "U") as one,
        scripted_fleet("T") as two,
        observing(tmp_path, polled(one.addr, two.addr, topics_seconds=3_600.0)) as servers,
    ):
        await eventually(lambda: differing(servers, one.addr, two.addr) == [1.0, 1.0])
        two.server.respond = lambda _: None
        await eventually(lambda: differing(servers, one.addr, two.addr) == [0.0, 0.0])
        assert not is_watched(servers, two.addr)


async def test_all_topics_of_a_broker_that_one_of_them_drops_differ_without_a_walk(tmp_path: Path) -> None:
    async with (
        scripted_fleet("T", "U") as one,
        scripted_fleet("T", "U") as two,
        observing(tmp_path, polled(one.addr, two.addr, topics_seconds=3_600.0)) as servers,
    ):
        for fleet in (one, two):
            fleet.holds("V", "b")
        await eventually(lambda: [row["event"] for row in rows_in(tmp_path)].count("TOPICS") == 4)
        assert differing(servers, one.addr, two.addr) == [0.0, 0.0]
        before = [code for _, code, _ in two.asked].count(206)
        del two.routes["T"], two.routes["U"]
        await eventually(lambda: differing(servers, one.addr, two.addr) == [2.0, 2.0])
        assert sample(servers, "brokers_missing", two.addr) == 1.0
        assert [code for _, code, _ in two.asked].count(206) == before


async def test_requests_for_topics_keep_to_their_limit(tmp_path: Path) -> None:
    per_second = 100.0
    topics = [f"T{number}" for number in range(40)]
    async with scripted_fleet(*topics) as fleet:
        settings = polled(fleet.addr, topics_seconds=3_600.0, topic_requests_per_second=per_second)
        async with observing(tmp_path, settings) as servers:
            await eventually(lambda: "TOPICS" in [row["event"] for row in rows_in(tmp_path)])
            times = [at for at, code, _ in fleet.asked if code in {105, 206}]
            # One late response makes the next interval seem shorter, never the sum.
            assert times[-1] - times[0] >= 0.9 * (len(times) - 1) / per_second
            assert sample(servers, "topic_requests_total", fleet.addr) == len(times)
    (row,) = [row for row in rows_in(tmp_path) if row["event"] == "TOPICS"]
    assert set(row["detail"]["topics"]) == set(topics)


async def test_the_topics_of_a_changed_broker_are_read_again_and_no_others(tmp_path: Path) -> None:
    async with scripted_fleet("T", "U") as fleet:
        fleet.holds("V", "b")
        async with observing(tmp_path, polled(fleet.addr, topics_seconds=3_600.0)):
            await eventually(lambda: [row["event"] for row in rows_in(tmp_path)].count("TOPICS") == 2)
            fleet.asked.clear()
            fleet.addrs["a"] = "a.test:10999"
            await eventually(lambda: sorted(fleet.topics_asked()) == ["T", "U"])


async def test_a_broker_with_unknown_topics_begins_the_next_walk(tmp_path: Path) -> None:
    async with scripted_fleet("T") as fleet, observing(tmp_path, polled(fleet.addr, topics_seconds=3_600.0)):
        await eventually(lambda: [row["event"] for row in rows_in(tmp_path)].count("TOPICS") == 1)
        fleet.holds("V", "b")
        await eventually(lambda: [row["event"] for row in rows_in(tmp_path)].count("TOPICS") == 2)


async def test_a_broker_that_arrives_during_a_walk_begins_another(tmp_path: Path) -> None:
    topics = [f"T{number}" for number in range(20)]
    async with scripted_fleet(*topics) as fleet:
        settings = polled(fleet.addr, topics_seconds=3_600.0, topic_requests_per_second=20.0)
        async with observing(tmp_path, settings):
            await eventually(lambda: len(fleet.topics_asked()) > 2)
            fleet.holds("V", "b")
            await eventually(lambda: recorded_topics(tmp_path) == {"a", "b"})


async def test_walks_that_are_turned_off_leave_no_difference_behind(tmp_path: Path) -> None:
    async with (
        scripted_fleet("T") as one,
        scripted_fleet("U") as two,
        observing(tmp_path, polled(one.addr, two.addr, topics_seconds=3_600.0)) as servers,
    ):
        await eventually(lambda: differing(servers, one.addr, two.addr) == [2.0, 2.0])
        servers.apply(polled(one.addr, two.addr))
        await eventually(lambda: differing(servers, one.addr, two.addr) == [0.0, 0.0])


async def test_without_walks_no_topic_is_requested(tmp_path: Path) -> None:
    async with scripted_fleet("T") as fleet, observing(tmp_path, polled(fleet.addr)) as servers:
        await eventually(lambda: is_watched(servers, fleet.addr) and len(fleet.asked) > 5)
    assert {code for _, code, _ in fleet.asked} == {106}


# --- TLS and accounts ----------------------------------------------------------------------------------------------


async def test_a_name_server_with_tls_is_observed_with_a_certificate_of_our_own(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    files, own = authority.issue("server", "mq.test"), authority.issue("own")
    remoting = RemotingConfig(listen="127.0.0.1:0", tls="required")
    async with (
        running_name_server(tls=tls_config(files, mutual=True), remoting=remoting) as server,
        remoting_peer(server.remoting_addr, tls=named(context(files.ca, own))) as broker,
    ):
        broker.send(register(broker_ext(), register_body()))
        assert (await broker.answer()).code == 0
        tls = {"ca": str(files.ca), "certificate": str(own.certificate), "key": str(own.key)}
        settings = polled(server.remoting_addr, topics_seconds=3_600.0, server_name="mq.test", **tls)
        assert list(settings.problems()) == ["poll_seconds: 0.02 is not from 0.2 to 60.0"]
        async with observing(tmp_path / "history", settings):
            await eventually(lambda: "TOPICS" in [row["event"] for row in rows_in(tmp_path / "history")])


def named(tls: ssl.SSLContext) -> ssl.SSLContext:
    tls.check_hostname = False
    return tls


@pytest.mark.parametrize(
    ("trusts", "problem"),
    [
        ("other", "CERTIFICATE_VERIFY_FAILED"),
        ("name", "Hostname mismatch, certificate is not valid for 'else.test'"),
        ("plaintext", "before any response; if it requires TLS, set observed.tls"),
    ],
)
async def test_a_name_server_that_cannot_be_verified_is_named_with_the_problem(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, trusts: str, problem: str
) -> None:
    files, other = Authority(tmp_path).issue("server"), Authority(tmp_path, "other").file
    remoting = RemotingConfig(listen="127.0.0.1:0", tls="required")
    tls = {
        "other": {"ca": str(other)},
        "name": {"ca": str(files.ca), "server_name": "else.test"},
        "plaintext": {},
    }[trusts]
    async with (
        running_name_server(tls=tls_config(files), remoting=remoting) as server,
        observing(tmp_path / "history", polled(server.remoting_addr, **tls)),
    ):
        await eventually(lambda: "the state of its brokers is unknown" in caplog.text)
    (facts,) = [vars(record)["facts"] for record in caplog.records if "cannot be polled" in record.message]
    assert facts["name_server"] == server.remoting_addr
    assert problem in facts["problem"]
    assert rows_in(tmp_path / "history") == []


async def test_all_requests_are_signed_and_a_new_account_signs_the_next_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "account"
    file.write_text("accessKey: ops\nsecretKey: hunter2\n")
    async with scripted_fleet("T") as fleet:
        settings = polled(fleet.addr, topics_seconds=3_600.0, access_key_file=str(file))
        async with observing(tmp_path / "history", settings) as servers:
            await eventually(lambda: "T" in fleet.topics_asked())
            before = len(fleet.asked)
            file.write_text("accessKey: ops\nsecretKey: hunter3\n")
            servers.apply(settings)
            await eventually(lambda: len(fleet.asked) > before + 2)
            file.write_text("accessKey: ops\n")
            servers.apply(settings)
            await eventually(lambda: len(fleet.asked) > before + 10)
            # The connection has stayed.
            assert [row["event"] for row in rows_in(tmp_path / "history")].count("NAMESRV_STOPPED") == 0
    assert {106, 206, 105} <= {code for _, code, _ in fleet.asked}
    for requests, secret in ((fleet.asked[:before], "hunter2"), (fleet.asked[before + 1 :], "hunter3")):
        account = Account("ops", secret)
        for _, _, ext in requests:
            assert ext == account.signed(
                {name: value for name, value in ext.items() if name not in {"AccessKey", "Signature"}}, b""
            )
    assert "certificates and account stay as they were" in caplog.text
    assert "hunter" not in caplog.text


async def test_new_certificates_are_those_of_the_next_connection(tmp_path: Path) -> None:
    first, second = Authority(tmp_path, "first"), Authority(tmp_path, "second")
    trusted = tmp_path / "trusted.pem"
    trusted.write_bytes(first.file.read_bytes())
    addr = f"127.0.0.1:{free_port()}"
    remoting = RemotingConfig(listen=addr, tls="required")
    settings = polled(addr, ca=str(trusted))
    async with observing(tmp_path / "history", settings) as servers:
        async with running_name_server(tls=tls_config(first.issue("one")), remoting=remoting):
            await eventually(lambda: is_watched(servers, addr))
            trusted.write_bytes(second.file.read_bytes())
            servers.apply(settings)
        await eventually(lambda: not is_watched(servers, addr))
        async with running_name_server(tls=tls_config(second.issue("two")), remoting=remoting):
            await eventually(lambda: is_watched(servers, addr))


# --- the list ------------------------------------------------------------------------------------------------------


async def test_name_servers_are_added_and_removed_while_the_others_are_watched_without_a_hole(tmp_path: Path) -> None:
    async with scripted_fleet("T") as one, scripted_fleet("T") as two, scripted_fleet("T") as three:
        async with observing(tmp_path, polled(one.addr, two.addr)) as servers:
            await eventually(lambda: is_watched(servers, one.addr) and is_watched(servers, two.addr))
            servers.apply(polled(one.addr, three.addr))
            await eventually(lambda: is_watched(servers, three.addr) and two.addr not in servers.listings.by_addr)
            assert sample(servers, "up", two.addr) is None
            assert sample(servers, "response_seconds_count", two.addr) is None
            assert (sample(servers, "up", three.addr), sample(servers, "routes_differing", three.addr)) == (1.0, 0.0)
            # Back again, with its folder free.
            servers.apply(polled(one.addr, two.addr, three.addr))
            await eventually(lambda: is_watched(servers, two.addr))
        events = [(row["node"], row["event"]) for row in rows_in(tmp_path)]
    for addr, runs in ((one.addr, 1), (two.addr, 2), (three.addr, 1)):
        assert events.count((addr, "NAMESRV_STARTED")) == events.count((addr, "NAMESRV_STOPPED")) == runs


async def test_a_name_server_whose_history_another_process_writes_is_not_added(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        scripted_fleet("T") as one,
        scripted_fleet("T") as two,
        observing(tmp_path, polled(two.addr)) as elsewhere,
        observing(tmp_path, polled(one.addr)) as servers,
    ):
        await eventually(lambda: is_watched(elsewhere, two.addr) and is_watched(servers, one.addr))
        servers.apply(polled(one.addr, two.addr))
        await eventually(lambda: "name server cannot be added" in caplog.text)
        assert two.addr not in servers.listings.by_addr
        assert is_watched(servers, one.addr)
