"""The program as operators start it: a process, its arguments, its signals and its exit code."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from pointsman.v1 import registration_service_pb2 as wire
from pointsman_agent import __version__
from pointsman_agent.__main__ import main
from tests.kit.broker.redis.process import free_port
from tests.kit.name_server.scripted_registration import Odd, ScriptedRegistrationServer, scripted_registration_server

pytestmark = pytest.mark.e2e

CONFIG = """
[broker]
cluster = "c1"
name = "a"
addr = "10.0.0.1:10911"
[name_servers]
addrs = ["{name_server}"]
[monitoring]
listen = "127.0.0.1:0"
[[topics.topic]]
name = "orders"
read_queues = 4
write_queues = 4
{more}
"""


def write_config(directory: Path, name_server: str = "127.0.0.1:9876", more: str = "") -> Path:
    file = directory / "agent.toml"
    file.write_text(CONFIG.format(name_server=name_server, more=more))
    return file


@asynccontextmanager
async def program(*arguments: object, prelude: str = "") -> AsyncIterator[asyncio.subprocess.Process]:
    command = ["-m", "pointsman_agent"]
    if prelude:
        command = ["-c", f"{prelude}; from pointsman_agent.__main__ import main; sys.exit(main(sys.argv[1:]))"]
    process = await asyncio.create_subprocess_exec(
        sys.executable, *command, *map(str, arguments), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def ended(process: asyncio.subprocess.Process) -> tuple[int, str, str]:
    async with asyncio.timeout(90):
        out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def run(*arguments: object, prelude: str = "") -> tuple[int, str, str]:
    async with program(*arguments, prelude=prelude) as process:
        return await ended(process)


def run_here(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    """Run a command that starts no server in this process; return exit code, stdout and stderr."""
    code = main(list(map(str, arguments)))
    output = capsys.readouterr()
    return code, output.out, output.err


async def registered(server: ScriptedRegistrationServer) -> None:
    await server.next_registration()
    await server.next_beat()


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
async def test_sigterm_hands_the_broker_over_and_exits_0(tmp_path: Path, loop: str) -> None:
    async with scripted_registration_server() as server:
        file = write_config(tmp_path, server.addr)
        async with program("--config", file, "--loop", loop) as process:
            await registered(server)
            process.send_signal(signal.SIGTERM)
            last = await server.next_beat()
            code, out, err = await ended(process)

    assert last.hand_over
    assert code == 0, err
    assert out == ""
    assert all(line.startswith('{"at": "') for line in err.splitlines()), err


async def test_sigterm_after_the_broker_crashed_unregisters_it(tmp_path: Path) -> None:
    with socket.socket() as broker:
        broker.bind(("127.0.0.1", 0))
        broker.listen()
        target = f"127.0.0.1:{broker.getsockname()[1]}"
        async with scripted_registration_server() as server:
            file = write_config(
                tmp_path, server.addr, f'[probe]\nkind = "tcp"\ntarget = "{target}"\ninterval_seconds = 60'
            )
            async with program("--config", file) as process:
                await registered(server)
                broker.close()
                process.send_signal(signal.SIGTERM)
                assert isinstance(await server.next_call(), wire.UnregisterBrokerRequest)
                code, _, err = await ended(process)

    assert code == 0, err


async def test_a_second_signal_exits_immediately_with_130(tmp_path: Path) -> None:
    async with scripted_registration_server() as server:
        server.unregister_outcomes.append(Odd.HANG)
        more = '[stop]\nunprobed = "unregister"\ntimeout_seconds = 60\n[heartbeat]\ntimeout_seconds = 60'
        file = write_config(tmp_path, server.addr, more)
        async with program("--config", file) as process:
            await registered(server)
            process.send_signal(signal.SIGTERM)
            await server.next_unregister()
            process.send_signal(signal.SIGINT)
            code, _, err = await ended(process)

    assert code == 130, err


def test_every_configuration_error_is_listed_and_the_exit_code_is_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "agent.toml"
    file.write_text(
        """
        [broker]
        cluster = "no good"
        name = "a"
        addr = "10.0.0.1"
        colour = "red"
        [name_servers]
        addrs = []
        [heartbeat]
        interval_seconds = 60
        [[topics.topic]]
        name = "orders"
        read_queues = 70000
        write_queues = -1
        perm = "x"
        [[topics.topic]]
        name = "orders"
        read_queues = 1
        write_queues = 1
        """
    )

    for arguments in (["--config", file], ["config", "check", "--config", file]):
        code, out, err = run_here(capsys, *arguments)
        assert (code, out) == (2, ""), err
        named = {line.split(": ")[1] for line in err.splitlines()}
        assert named == {
            "broker.colour",
            "broker.cluster",
            "broker.addr",
            "name_servers.addrs",
            "heartbeat.expiry_seconds",
            "topics.topic[0].read_queues",
            "topics.topic[0].write_queues",
            "topics.topic[0].perm",
            "topics.topic[1].name",
        }


async def test_config_check_and_print_show_what_applies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_PROBE__PASSWORD", "secret")
    file = write_config(tmp_path, more='[probe]\nkind = "redis"')

    code, out, _ = await run("config", "check", "--config", file)
    assert (code, out) == (0, f"{file}: ok\n")

    code, out, _ = await run("--config", file, "--log-level", "ERROR", "config", "print")
    assert code == 0
    assert 'level = "ERROR"' in out
    assert 'kind = "redis"' in out
    assert "(hidden)" in out
    assert "secret" not in out


async def test_a_redis_probe_without_the_redis_package_is_one_clear_line(tmp_path: Path) -> None:
    file = write_config(tmp_path, more='[probe]\nkind = "redis"')

    code, out, err = await run("--config", file, prelude="import sys; sys.modules['redis'] = None")

    assert (code, out) == (2, ""), err
    assert (
        err == "pointsman-agent: a probe of kind redis needs the redis package: pip install 'pointsman-agent[redis]'\n"
    )


async def test_a_monitoring_port_in_use_is_one_log_line_and_exit_1(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        file = write_config(tmp_path)
        file.write_text(file.read_text().replace("127.0.0.1:0", listen))
        code, _, err = await run("--config", file)

    assert code == 1
    assert len(err.splitlines()) == 1
    assert listen in err


def test_arguments_teach(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_here(capsys, "--version") == (0, f"pointsman-agent {__version__}\n", "")

    code, out, _ = run_here(capsys, "--help")
    assert code == 0
    assert all(word in out for word in ("agent.toml", "config check", "SIGTERM", "Exit codes", "AGENT_SECTION__KEY"))

    code, _, err = run_here(capsys)
    assert code == 2
    assert "--config FILE is required" in err

    code, _, err = run_here(capsys, "--config", f"/nowhere/{free_port()}")
    assert code == 2
    assert "cannot be read" in err
