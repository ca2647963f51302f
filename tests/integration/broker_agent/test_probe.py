"""Probes against real sockets and real redis-server processes."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from broker_agent.core.probe_verdict import Role
from broker_agent.probe.redis import RedisProbe
from broker_agent.probe.tcp import TcpProbe
from pointsman.v1 import broker_pb2
from tests.fakes.redis_process import RedisProcess, free_port, redis_process
from tests.fakes.running_agent import agent_config, running_agent, with_probe
from tests.fakes.scripted_registration_server import scripted_registration_server


async def test_tcp_passes_where_somebody_listens() -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        result = await TcpProbe(f"127.0.0.1:{listening.getsockname()[1]}").look()

    assert result.passed
    assert (result.incarnation, result.role) == ("", Role.UNKNOWN)


async def test_tcp_fails_where_nobody_listens_and_says_why() -> None:
    target = f"127.0.0.1:{free_port()}"

    result = await TcpProbe(target).look()

    assert not result.passed
    assert result.detail.startswith(f"tcp {target}: ")
    assert "refused" in result.detail or "Connect call failed" in result.detail


async def test_tcp_fails_where_the_name_does_not_resolve() -> None:
    assert not (await TcpProbe("no-such-host.invalid:80").look()).passed


@pytest.mark.redis
async def test_redis_tells_its_process_and_its_role(tmp_path: Path) -> None:
    async with redis_process(tmp_path / "master") as master, redis_process(tmp_path / "replica") as replica:
        await replica.replica_of(master)

        of_master, of_replica = await RedisProbe(master.addr).look(), await RedisProbe(replica.addr).look()

    assert (of_master.passed, of_master.role) == (True, Role.MASTER)
    assert (of_replica.passed, of_replica.role) == (True, Role.SLAVE)
    assert len(of_master.incarnation) == len(of_replica.incarnation) == 40
    assert of_master.incarnation != of_replica.incarnation


@pytest.mark.redis
async def test_redis_has_a_new_incarnation_after_a_restart_and_the_same_without_one(tmp_path: Path) -> None:
    async with redis_process(tmp_path) as redis:
        probe = RedisProbe(redis.addr)
        first, again = await probe.look(), await probe.look()
        redis.kill()
        dead = await probe.look()
        await redis.restart()
        back = await probe.look()

    assert first == again
    assert not dead.passed
    assert back.passed
    assert back.incarnation not in {"", first.incarnation}


@pytest.mark.redis
async def test_redis_with_a_password_fails_without_it_and_passes_with_it(tmp_path: Path) -> None:
    async with redis_process(tmp_path, options=["--requirepass", "secret"]) as redis:
        without = await RedisProbe(redis.addr).look()
        wrong = await RedisProbe(redis.addr, password="wrong").look()
        right = await RedisProbe(redis.addr, password="secret").look()

    assert not without.passed
    assert without.detail.endswith("Authentication required.")
    assert not wrong.passed
    assert right.passed


@pytest.mark.redis
async def test_redis_that_refuses_only_info_passes_without_an_incarnation(tmp_path: Path) -> None:
    acl = ["--user", "probe", "on", ">secret", "+ping", "+auth"]
    async with redis_process(tmp_path, options=acl) as redis:
        result = await RedisProbe(redis.addr, username="probe", password="secret").look()

    assert result.passed
    assert result.incarnation == ""
    assert "not INFO" in result.detail


@pytest.mark.parametrize("answer", [b":abc\r\n", b"$abc\r\n", b"+PO\xffNG\r\n", b"x" * 70_000, b""])
async def test_whatever_answers_instead_of_a_redis_is_a_failed_look_and_no_fault_of_the_agent(answer: bytes) -> None:
    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(answer)
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(speak, "127.0.0.1", 0) as server:
        result = await RedisProbe(f"127.0.0.1:{server.sockets[0].getsockname()[1]}").look()
    assert not result.passed


async def test_something_that_is_no_redis_fails() -> None:
    async def answer_nonsense(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(answer_nonsense, "127.0.0.1", 0) as server:
        result = await RedisProbe(f"127.0.0.1:{server.sockets[0].getsockname()[1]}").look()

    assert not result.passed


@pytest.mark.redis
async def test_an_agent_beside_a_redis_reports_its_death_its_return_and_its_new_process(tmp_path: Path) -> None:
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
    assert dead.health.status == broker_pb2.PROBE_STATUS_FAILING
    assert again.broker.incarnation not in {"", first.broker.incarnation}
    assert alive.health.status == broker_pb2.PROBE_STATUS_PASSING


@pytest.mark.redis
async def test_a_configured_master_that_became_a_replica_keeps_its_id_and_says_so(tmp_path: Path) -> None:
    async with redis_process(tmp_path / "a") as redis, redis_process(tmp_path / "b") as other:
        await redis.replica_of(other)
        async with scripted_registration_server() as server:
            config = with_probe(agent_config([server.addr]), kind="redis", interval_seconds=0.1)
            async with running_agent(config, probe=RedisProbe(redis.addr)) as agent:
                told = await server.next_registration()
                conflict = agent.agent.metrics.registry.get_sample_value("agent_broker_role_conflict")

    assert told.broker.identity.broker_id == 0
    assert told.broker.health.status == broker_pb2.PROBE_STATUS_PASSING
    assert "says it is a replica" in told.broker.health.detail
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
