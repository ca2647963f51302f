"""Probes against real sockets and real redis-server processes."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import grpc.aio
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from pointsman.deadline import within
from pointsman.manual_clock import ManualClock
from pointsman.v1 import broker_pb2
from pointsman_agent.config import HeartbeatSection, ProbeSection
from pointsman_agent.core.probe_verdict import ProbeResult, Role
from pointsman_agent.probe.configured import build_plain_probe
from pointsman_agent.probe.exec import MAX_OUTPUT_BYTES, ExecProbe
from pointsman_agent.probe.network_probes import GrpcProbe, HttpProbe, TcpProbe
from pointsman_agent.probe.redis_probe import RedisProbe
from tests.kit.agent.in_process import agent_config, running_agent, with_probe
from tests.kit.broker.redis.process import RedisProcess, free_port, redis_process
from tests.kit.name_server.scripted_registration import scripted_registration_server
from tests.kit.waiting import eventually


async def test_tcp_passes_where_a_server_listens() -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        result = await TcpProbe(f"127.0.0.1:{listening.getsockname()[1]}").check()

    assert result.passed
    assert (result.incarnation, result.role) == ("", Role.UNKNOWN)


async def test_tcp_fails_where_no_server_listens_and_gives_the_reason() -> None:
    target = f"127.0.0.1:{free_port()}"

    result = await TcpProbe(target).check()

    assert not result.passed
    assert result.detail.startswith(f"tcp {target}: ")
    assert "refused" in result.detail or "Connect call failed" in result.detail


async def test_tcp_fails_where_the_name_does_not_resolve() -> None:
    assert not (await TcpProbe("no-such-host.invalid:80").check()).passed


@pytest.mark.redis
async def test_redis_reports_its_process_and_its_role(tmp_path: Path) -> None:
    async with redis_process(tmp_path / "master") as master, redis_process(tmp_path / "replica") as replica:
        await replica.replica_of(master)

        of_master, of_replica = await RedisProbe(master.addr).check(), await RedisProbe(replica.addr).check()

    assert (of_master.passed, of_master.role) == (True, Role.MASTER)
    assert (of_replica.passed, of_replica.role) == (True, Role.SLAVE)
    assert len(of_master.incarnation) == len(of_replica.incarnation) == 40
    assert of_master.incarnation != of_replica.incarnation


@pytest.mark.redis
async def test_redis_has_a_new_incarnation_after_a_restart_and_the_same_without_one(tmp_path: Path) -> None:
    async with redis_process(tmp_path) as redis:
        probe = RedisProbe(redis.addr)
        first, again = await probe.check(), await probe.check()
        redis.kill()
        dead = await probe.check()
        await redis.restart()
        back = await probe.check()

    assert first == again
    assert not dead.passed
    assert back.passed
    assert back.incarnation not in {"", first.incarnation}


@pytest.mark.redis
async def test_redis_with_a_password_fails_without_it_and_passes_with_it(tmp_path: Path) -> None:
    async with redis_process(tmp_path, options=["--requirepass", "secret"]) as redis:
        without = await RedisProbe(redis.addr).check()
        wrong = await RedisProbe(redis.addr, password="wrong").check()
        right = await RedisProbe(redis.addr, password="secret").check()

    assert not without.passed
    assert without.detail.endswith("Authentication required.")
    assert not wrong.passed
    assert right.passed


@pytest.mark.redis
async def test_redis_that_refuses_only_info_passes_without_an_incarnation(tmp_path: Path) -> None:
    acl = ["--user", "probe", "on", ">secret", "+ping", "+auth"]
    async with redis_process(tmp_path, options=acl) as redis:
        result = await RedisProbe(redis.addr, username="probe", password="secret").check()

    assert result.passed
    assert result.incarnation == ""
    assert "INFO failed" in result.detail


@pytest.mark.parametrize("answer", [b":abc\r\n", b"$abc\r\n", b"+PO\xffNG\r\n", b"x" * 70_000, b""])
async def test_a_response_that_is_not_redis_protocol_is_a_failed_probe_and_not_an_internal_error(answer: bytes) -> None:
    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(answer)
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(speak, "127.0.0.1", 0) as server:
        result = await RedisProbe(f"127.0.0.1:{server.sockets[0].getsockname()[1]}").check()
    assert not result.passed


async def test_a_server_that_is_not_redis_fails() -> None:
    async def answer_nonsense(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(answer_nonsense, "127.0.0.1", 0) as server:
        result = await RedisProbe(f"127.0.0.1:{server.sockets[0].getsockname()[1]}").check()

    assert not result.passed


@pytest.mark.redis
async def test_an_agent_next_to_a_redis_reports_its_crash_its_return_and_its_new_process(tmp_path: Path) -> None:
    async with redis_process(tmp_path) as redis, scripted_registration_server() as server:
        config = with_probe(
            agent_config([server.addr]), kind="redis", target=redis.addr, interval_seconds=0.1, timeout_seconds=1.0
        )
        async with running_agent(config, probe=RedisProbe(redis.addr)):
            first = await server.next_registration()
            await server.next_beat()

            redis.kill()
            dead = await server.next_beat()

            await redis.restart()
            again = await server.next_registration()
            alive = await server.next_beat()

    assert first.broker.health.status == broker_pb2.PROBE_STATUS_PASSING
    assert first.broker.health.ever_passed
    assert dead.health.status == broker_pb2.PROBE_STATUS_FAILING
    assert dead.health.evidence == broker_pb2.PROBE_EVIDENCE_STRONG
    assert again.broker.incarnation not in {"", first.broker.incarnation}
    assert alive.health.status == broker_pb2.PROBE_STATUS_PASSING


@pytest.mark.redis
async def test_a_configured_master_that_became_a_replica_keeps_its_id_and_reports_the_conflict(tmp_path: Path) -> None:
    async with redis_process(tmp_path / "a") as redis, redis_process(tmp_path / "b") as other:
        await redis.replica_of(other)
        async with scripted_registration_server() as server:
            config = with_probe(agent_config([server.addr]), kind="redis", interval_seconds=0.1)
            async with running_agent(config, probe=RedisProbe(redis.addr)) as agent:
                registered = await server.next_registration()
                conflict = agent.agent.metrics.registry.get_sample_value("pointsman_agent_broker_role_conflict")

    assert registered.broker.identity.broker_id == 0
    assert registered.broker.health.status == broker_pb2.PROBE_STATUS_PASSING
    assert "reports that it is a replica" in registered.broker.health.detail
    assert conflict == 1.0


@pytest.mark.redis
async def test_a_redis_process_of_the_tests_keeps_its_data_over_a_kill(tmp_path: Path) -> None:
    redis = RedisProcess(tmp_path)
    await redis.start()
    try:
        assert await redis.command("SET", "k", "v") == "+OK"
        assert await redis.command("WAITAOF", "1", "0", "1000") != ""
        await redis.restart()
        assert await redis.command("EXISTS", "k") == ":1"
    finally:
        redis.kill()


# --- http ----------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def answering(answer: bytes, *, closes: bool = True) -> AsyncIterator[tuple[str, list[bytes]]]:
    """A server that responds ``answer`` to any request; yields its address, and what it received."""
    requests: list[bytes] = []
    held: list[asyncio.StreamWriter] = []

    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(await reader.read(4_096))
        writer.write(answer)
        if closes:
            writer.close()
        held.append(writer)

    async with await asyncio.start_server(speak, "127.0.0.1", 0) as server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}", requests
        for writer in held:
            writer.transport.abort()


@pytest.mark.parametrize(
    ("status", "passes"),
    [
        ("200 OK", True),
        ("204", True),
        ("302 Found", True),
        ("399 x", True),
        ("400 Bad Request", False),
        ("503 ", False),
    ],
)
async def test_http_passes_with_a_status_below_400(status: str, *, passes: bool) -> None:
    async with answering(f"HTTP/1.1 {status}\r\nLocation: http://elsewhere/\r\n\r\n".encode()) as (target, requests):
        result = await HttpProbe(target, path="/health?deep=1").check()

    assert (result.passed, result.detail) == (passes, f"http {target}/health?deep=1: status {status[:3]}")
    assert requests == [
        f"GET /health?deep=1 HTTP/1.1\r\nHost: {target}\r\nUser-Agent: pointsman-agent\r\n"
        "Accept: */*\r\nConnection: close\r\n\r\n".encode()
    ]


async def test_http_reads_no_more_than_the_status_line_of_an_endless_response() -> None:
    async with answering(b"HTTP/1.1 200 OK\r\n" + b"x" * 1_000_000, closes=False) as (target, _):
        assert (await HttpProbe(target).check()).passed


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b"", "connection closed without a response"),
        (b"+PONG\r\n", "the response is not HTTP/1"),
        (b"HTTP/1.1 20\r\n\r\n", "the response is not HTTP/1"),
        (b"HTTP/1.1 200 OK", "the response is not HTTP/1"),
        (b"HTTP/1.1 200 " + b"x" * 100_000, "limit"),
    ],
    ids=["nothing", "not-http", "no-status", "cut-off", "endless-line"],
)
async def test_http_fails_on_an_invalid_response(answer: bytes, message: str) -> None:
    async with answering(answer) as (target, _):
        first, again = await HttpProbe(target).check(), await HttpProbe(target).check()

    assert not first.passed
    assert message in first.detail
    assert first == again


async def test_http_fails_where_no_server_listens_and_gives_the_reason() -> None:
    target = f"127.0.0.1:{free_port()}"

    result = await HttpProbe(target).check()

    assert not result.passed
    assert result.detail.startswith(f"http {target}/: ")


async def test_a_path_cannot_inject_headers() -> None:
    async with answering(b"HTTP/1.1 200 OK\r\n") as (target, requests):
        await HttpProbe(target, path="/a b\r\nHost: other").check()

    assert requests[0].startswith(b"GET /a%20b%0D%0AHost:%20other HTTP/1.1\r\n")


# --- grpc ----------------------------------------------------------------------------------------------------------


async def test_grpc_checks_the_health_of_the_server_or_of_one_service() -> None:
    servicer = health.aio.HealthServicer()
    server = grpc.aio.server()
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    target = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    try:
        await servicer.set("broker", health_pb2.HealthCheckResponse.NOT_SERVING)
        whole = await GrpcProbe(target).check()
        ill = await GrpcProbe(target, service="broker").check()
        await servicer.set("broker", health_pb2.HealthCheckResponse.SERVING)
        well = await GrpcProbe(target, service="broker").check()
        unknown = await GrpcProbe(target, service="other").check()
    finally:
        await server.stop(None)

    assert (whole.passed, whole.detail) == (True, f"grpc {target}: SERVING")
    assert (ill.passed, ill.detail) == (False, f"grpc {target} service 'broker': NOT_SERVING")
    assert (well.passed, well.detail) == (True, f"grpc {target} service 'broker': SERVING")
    assert (unknown.passed, unknown.detail) == (False, f"grpc {target} service 'other': service 'other' is unknown")


async def test_grpc_fails_without_a_health_service_or_a_server_always_with_the_same_text() -> None:
    server = grpc.aio.server()
    target = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    without = await GrpcProbe(target).check()
    await server.stop(None)
    dead, still_dead = await GrpcProbe(target).check(), await GrpcProbe(target).check()

    assert (without.passed, without.detail) == (False, f"grpc {target}: has no health service")
    assert (dead.passed, dead.detail) == (False, f"grpc {target}: cannot be reached")
    assert dead == still_dead


# --- exec ----------------------------------------------------------------------------------------------------------


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def is_alive(pid: int) -> bool:
    status = Path(f"/proc/{pid}/stat")
    try:
        return status.read_text(encoding="ascii").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize(
    ("command", "passes", "message"),
    [
        (["/bin/sh", "-c", "echo fine"], True, "exec /bin/sh: exit code 0"),
        (["/bin/sh", "-c", "echo no disk >&2; exit 3"], False, "exec /bin/sh: exit code 3: no disk"),
        (["/bin/sh", "-c", "exit 1"], False, "exec /bin/sh: exit code 1"),
        (["/bin/sh", "-c", "kill -9 $$"], False, "exec /bin/sh: killed by signal 9"),
        (["/no/such/program"], False, "exec /no/such/program: No such file or directory"),
        (["/"], False, "exec /: Permission denied"),
    ],
    ids=["zero", "three", "silent", "killed", "missing", "no-program"],
)
async def test_exec_passes_with_exit_code_0(command: list[str], message: str, *, passes: bool) -> None:
    first, again = await ExecProbe(command).check(), await ExecProbe(command).check()

    assert (first.passed, first.detail) == (passes, message)
    assert first == again


async def test_exec_gives_the_program_its_arguments_and_no_shell() -> None:
    result = await ExecProbe([*python("import sys; print(sys.argv[1:]); sys.exit(1)"), "a b", "$HOME"]).check()

    assert result.detail.endswith("exit code 1: ['a b', '$HOME']")


async def test_exec_keeps_the_beginning_of_a_long_output() -> None:
    result = await ExecProbe(python("print('x' * 5_000_000); raise SystemExit(1)")).check()

    assert result.detail == f"exec {sys.executable}: exit code 1: {'x' * MAX_OUTPUT_BYTES}"


async def test_exec_kills_the_program_and_its_children_at_the_deadline(clock: ManualClock, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    code = (
        "import os, signal, subprocess, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = subprocess.Popen(['sleep', '600'])\n"
        f"open({str(pids) + '.new'!r}, 'w').write(f'{{os.getpid()}} {{child.pid}}')\n"
        f"os.rename({str(pids) + '.new'!r}, {str(pids)!r})\n"
        "time.sleep(600)"
    )
    looking = asyncio.create_task(within(clock, 2.0, ExecProbe(python(code)).check()))
    await eventually(pids.exists)
    program, child = map(int, pids.read_text().split())
    assert is_alive(program)
    assert is_alive(child)

    await clock.advance(2.0)
    with pytest.raises(TimeoutError):
        await looking
    await eventually(lambda: not is_alive(program) and not is_alive(child))


async def test_exec_does_not_wait_for_a_child_that_keeps_the_output_open_and_ends_it(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    async with asyncio.timeout(60):
        result = await ExecProbe(["/bin/sh", "-c", f"sleep 600 & echo $! > {pid}; exit 0"]).check()

    assert result.passed
    await eventually(lambda: not is_alive(int(pid.read_text())))


async def test_exec_leaves_no_descriptor_open() -> None:
    probe = ExecProbe(["/bin/sh", "-c", "exit 1"])
    await probe.check()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        await probe.check()
    assert len(os.listdir("/proc/self/fd")) <= before


async def test_a_program_that_hangs_delays_no_heartbeat_and_ends_as_a_failed_probe() -> None:
    async with scripted_registration_server() as server:
        config = replace(
            with_probe(
                agent_config([server.addr]),
                kind="exec",
                command=("sleep", "600"),
                interval_seconds=0.5,
                timeout_seconds=1.0,
                fall=1,
            ),
            heartbeat=HeartbeatSection(interval_seconds=0.05, expiry_seconds=10.0),
        )
        probe = SlowToHang()
        async with running_agent(config, probe=probe):
            await server.next_registration()
            while not probe.hangs:
                await server.next_beat()
            beats = [await server.next_beat()]
            while beats[-1].health.status != broker_pb2.PROBE_STATUS_FAILING:
                beats.append(await server.next_beat())

    # It hangs for a second, during which twenty heartbeats are sent.
    assert [beat.health.status for beat in beats[:2]] == [broker_pb2.PROBE_STATUS_PASSING] * 2
    assert beats[-1].health.detail == "no response within 1 s"


class SlowToHang:
    """Passes once; from then on its program never ends."""

    def __init__(self) -> None:
        self.looks = 0

    @property
    def hangs(self) -> bool:
        return self.looks > 1

    async def check(self) -> ProbeResult:
        self.looks += 1
        return await ExecProbe(["sleep", "600"] if self.hangs else ["true"]).check()


# --- what is configured --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("section", "kind"),
    [
        (ProbeSection(kind="tcp"), TcpProbe),
        (ProbeSection(kind="http", path="/health"), HttpProbe),
        (ProbeSection(kind="grpc", service="broker"), GrpcProbe),
        (ProbeSection(kind="exec", command=("true",)), ExecProbe),
        (ProbeSection(kind="none"), type(None)),
        (ProbeSection(kind="redis"), type(None)),
    ],
)
def test_the_probe_is_as_configured(section: ProbeSection, kind: type[object]) -> None:
    assert type(build_plain_probe(section, "127.0.0.1:1")) is kind
