"""Which failures of a probe are strong evidence, with real servers on real sockets."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import grpc.aio
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from pointsman.clock import SystemClock
from pointsman_agent.config import ProbeSection
from pointsman_agent.core.probe_verdict import Evidence, ProbeFailure, Verdict, VerdictKeeper
from pointsman_agent.probe import Probe, failed_connection
from pointsman_agent.probe.configured import build_plain_probe
from pointsman_agent.probe.exec import ExecProbe
from pointsman_agent.probe.failed_connection import classify_failed_connection
from pointsman_agent.probe.network_probes import GrpcProbe, HttpProbe
from pointsman_agent.probe.prober import Prober
from pointsman_agent.probe.redis_probe import RedisProbe
from tests.kit.agent.probed_servers import SERVERS, grpc_server, http_server
from tests.kit.broker.redis.process import RedisProcess, free_port, redis_process
from tests.kit.waiting import eventually

FALL = 2
OTHER_MACHINE = "203.0.113.7:9"
"""Reserved for documentation (RFC 5737)."""


def new_keeper() -> VerdictKeeper:
    return VerdictKeeper(rise=1, fall=FALL)


async def evidence(probe: Probe, keeper: VerdictKeeper, *, looks: int = FALL) -> Evidence:
    """The evidence after some more checks."""
    for _ in range(looks):
        keeper.record(await probe.check())
    return keeper.verdict.evidence


async def has_passed(probe: Probe) -> VerdictKeeper:
    """A keeper whose probe has passed once."""
    keeper = new_keeper()
    assert keeper.record(await probe.check()).ever_passed
    return keeper


# --- refused connections -------------------------------------------------------------------------------------------


def plain_probe(kind: str, target: str) -> Probe:
    probe = build_plain_probe(ProbeSection(kind=kind), target)
    assert probe is not None
    return probe


@pytest.fixture
def target() -> str:
    """An address at which nothing listens before the test's own server."""
    return f"127.0.0.1:{free_port()}"


@pytest.mark.parametrize("kind", list(SERVERS))
async def test_a_connection_refused_fall_times_after_a_pass_is_strong(kind: str, target: str) -> None:
    probe = plain_probe(kind, target)
    async with SERVERS[kind](target):
        keeper = await has_passed(probe)

    assert await evidence(probe, keeper, looks=FALL - 1) is Evidence.UNSPECIFIED
    assert await evidence(probe, keeper, looks=1) is Evidence.STRONG


@pytest.mark.parametrize("kind", list(SERVERS))
async def test_a_connection_refused_before_any_pass_is_weak_as_a_wrong_port_is(kind: str, target: str) -> None:
    keeper = new_keeper()

    assert await evidence(plain_probe(kind, target), keeper, looks=2 * FALL) is Evidence.WEAK
    assert keeper.verdict.ever_passed is False


@pytest.mark.redis
async def test_a_redis_that_was_killed_is_strong_after_a_pass_and_weak_before_any(tmp_path: Path) -> None:
    async with redis_process(tmp_path) as redis:
        probe = RedisProbe(redis.addr)
        passed_before = await has_passed(probe)
        redis.kill()

        assert await evidence(probe, passed_before) is Evidence.STRONG
        assert await evidence(probe, new_keeper()) is Evidence.WEAK


def interface_address() -> str:
    """An address of this machine that is not a loopback address."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as unsent:
            unsent.connect(("203.0.113.1", 9))
            return str(unsent.getsockname()[0])
    except OSError:
        pytest.skip("this machine has no network interface with a route")


def has_ipv6_loopback() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as unused:
            unused.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.9", "localhost", "[::1]"])
async def test_a_refusal_at_a_loopback_address_is_this_machines(host: str) -> None:
    if host == "[::1]" and not has_ipv6_loopback():
        pytest.skip("this machine has no IPv6")

    assert await classify_failed_connection(f"{host}:{free_port()}") is ProbeFailure.CONNECTION_REFUSED_LOCALLY


async def test_a_refusal_at_an_address_of_an_interface_is_this_machines() -> None:
    target = f"{interface_address()}:{free_port()}"

    assert await classify_failed_connection(target) is ProbeFailure.CONNECTION_REFUSED_LOCALLY


async def test_a_failed_connection_to_another_machine_proves_little_and_is_not_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(failed_connection, "_connect_error", None)

    assert await classify_failed_connection(OTHER_MACHINE) is ProbeFailure.OTHER


async def test_a_name_that_does_not_resolve_proves_little() -> None:
    assert await classify_failed_connection("no-such-host.invalid:80") is ProbeFailure.OTHER


async def test_where_every_address_can_be_bound_only_loopback_addresses_are_this_machines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(failed_connection, "_can_bind", lambda *_: True)

    assert await classify_failed_connection(OTHER_MACHINE) is ProbeFailure.OTHER
    assert await classify_failed_connection(f"127.0.0.1:{free_port()}") is ProbeFailure.CONNECTION_REFUSED_LOCALLY


async def test_a_port_that_accepts_connections_refuses_none(target: str) -> None:
    async with http_server(target):
        assert await classify_failed_connection(target) is ProbeFailure.OTHER


# --- responses -----------------------------------------------------------------------------------------------------


@pytest.mark.redis
async def test_a_redis_that_loads_its_data_is_strong(tmp_path: Path) -> None:
    snapshot = ["--appendonly", "no", "--rdbcompression", "no"]
    async with redis_process(tmp_path, options=snapshot) as redis:
        for number in range(100):
            await redis.command("SET", f"key-{number}", "x" * 2_000)
        await redis.command("SAVE")
        redis.add_options("--key-load-delay", "200000", "--loading-process-events-interval-bytes", "1024")
        probe, keeper = RedisProbe(redis.addr), new_keeper()
        restarting = asyncio.create_task(redis.restart())
        async with asyncio.timeout(60):
            while "loading" not in keeper.verdict.detail:
                await evidence(probe, keeper, looks=1)
                await asyncio.sleep(0.02)
        restarting.cancel()
        await asyncio.wait({restarting})

    assert keeper.verdict.evidence is Evidence.STRONG
    assert keeper.verdict.ever_passed is False


@pytest.mark.redis
async def test_a_replica_that_serves_no_stale_data_is_strong_without_its_master(tmp_path: Path) -> None:
    async with redis_process(tmp_path, options=["--replica-serve-stale-data", "no"]) as orphan:
        await orphan.replica_of(RedisProcess(tmp_path / "never-started"))
        keeper = new_keeper()

        assert await evidence(RedisProbe(orphan.addr), keeper) is Evidence.STRONG

    assert "Link with MASTER is down" in keeper.verdict.detail


@pytest.mark.redis
async def test_a_redis_that_rejects_the_login_is_weak_also_after_a_pass(tmp_path: Path) -> None:
    async with redis_process(tmp_path) as redis:
        without_password = RedisProbe(redis.addr)
        keeper = await has_passed(without_password)
        await redis.command("CONFIG", "SET", "requirepass", "secret")

        assert await evidence(without_password, keeper) is Evidence.WEAK
        assert await evidence(RedisProbe(redis.addr, password="wrong"), new_keeper()) is Evidence.WEAK


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ("400 Bad Request", Evidence.WEAK),
        ("401 Unauthorized", Evidence.WEAK),
        ("404 Not Found", Evidence.WEAK),
        ("499 x", Evidence.WEAK),
        ("500 Internal Server Error", Evidence.STRONG),
        ("503 Service Unavailable", Evidence.STRONG),
        ("599 x", Evidence.STRONG),
    ],
)
async def test_a_status_from_500_on_is_strong_and_one_below_weak(target: str, status: str, expected: Evidence) -> None:
    async with http_server(target, status=status):
        assert await evidence(HttpProbe(target), new_keeper()) is expected


async def test_a_server_that_does_not_speak_http_is_weak_evidence(target: str) -> None:
    async with grpc_server(target):
        assert await evidence(HttpProbe(target), new_keeper()) is Evidence.WEAK


async def test_grpc_not_serving_is_strong_and_an_unknown_service_weak(target: str) -> None:
    servicer = health.aio.HealthServicer()
    async with grpc_server(target, servicer):
        await servicer.set("broker", health_pb2.HealthCheckResponse.NOT_SERVING)
        not_serving = await evidence(GrpcProbe(target, service="broker"), new_keeper())
        await servicer.set("broker", health_pb2.HealthCheckResponse.UNKNOWN)
        unknown_status = await evidence(GrpcProbe(target, service="broker"), new_keeper())
        unknown_service = await evidence(GrpcProbe(target, service="other"), new_keeper())

    assert not_serving is Evidence.STRONG
    assert (unknown_status, unknown_service) == (Evidence.WEAK, Evidence.WEAK)


class Unavailable(health_pb2_grpc.HealthServicer):  # type: ignore[misc]  # without types
    """A server that is reached, and responds UNAVAILABLE."""

    async def Check(self, request, context):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201, ARG002, N802  # grpc's names
        await context.abort(grpc.StatusCode.UNAVAILABLE, "as the test says")


async def test_grpc_unavailable_from_a_server_that_accepts_connections_is_weak(target: str) -> None:
    probe = GrpcProbe(target)
    async with grpc_server(target):
        keeper = await has_passed(probe)
    async with grpc_server(target, Unavailable()):
        assert await evidence(probe, keeper) is Evidence.WEAK


async def test_the_exit_code_of_a_program_is_weak_also_after_a_pass(tmp_path: Path) -> None:
    file = tmp_path / "healthy"
    file.touch()
    probe = ExecProbe(["/usr/bin/test", "-e", str(file)])
    keeper = await has_passed(probe)
    file.unlink()

    assert await evidence(probe, keeper) is Evidence.WEAK


async def test_a_timeout_is_weak_also_after_a_pass(target: str) -> None:
    probe, verdicts = HttpProbe(target), list[Verdict]()
    async with http_server(target):
        keeper = await has_passed(probe)
    host, _, port = target.rpartition(":")
    with socket.create_server((host, int(port))):  # accepts, and never responds
        prober = Prober(
            probe,
            clock=SystemClock(),
            interval=0.01,
            timeout=0.1,
            keeper=keeper,
            on_result=lambda _, verdict: verdicts.append(verdict),
        )
        probing = asyncio.create_task(prober.run())
        await eventually(lambda: len(verdicts) == FALL)
        probing.cancel()
        await asyncio.wait({probing})

    assert (verdicts[-1].detail, verdicts[-1].evidence) == ("no response within 0.1 s", Evidence.WEAK)
    assert verdicts[-1].ever_passed
