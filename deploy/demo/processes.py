"""The processes of the demo: started, killed, restarted, and never left behind."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

HOST = "127.0.0.1"
START_SECONDS = 120.0
"""A slow machine starts Python, Redis and the name servers in this time."""
STOP_SECONDS = 15.0
POLL_SECONDS = 0.05
START_TRIES = 5

NAME_SERVER = """\
[server]
listen = "127.0.0.1:0"
node = "{node}"
warm_up_seconds = 0.0
[monitoring]
listen = "127.0.0.1:0"
[liveness]
stream_grace_seconds = 1.0
[history]
directory = "{folder}/history/{node}"
[snapshot]
directory = "{folder}/state/{node}"
"""

AGENT = """\
[broker]
cluster = "demo"
name = "{name}"
id = {broker_id}
addr = "{addr}"
zone = "{zone}"
[name_servers]
addrs = [{name_servers}]
[heartbeat]
interval_seconds = 1.0
expiry_seconds = 4.0
timeout_seconds = 1.0
[probe]
kind = "redis"
interval_seconds = 0.3
timeout_seconds = 1.0
fall = 2
[rpc]
listen = "127.0.0.1:{port}"
[groups]
warm_up_seconds = 2.0
[offsets]
path = "{folder}/offsets.db"
[monitoring]
listen = "127.0.0.1:0"
[[topics.topic]]
name = "orders"
read_queues = 4
write_queues = 4
"""


class ProcessFailed(Exception):
    """A process did not do what it was started for; the message names its log."""


@asynccontextmanager
async def patience(seconds: float, what: str) -> AsyncIterator[None]:
    """Bound a wait; raise ProcessFailed that names it."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise ProcessFailed(f"timed out after {seconds:g} s waiting for {what}") from None


@dataclass
class Program:
    """One child process and its log, over restarts."""

    name: str
    command: list[str]
    log: Path
    environment: dict[str, str] = field(default_factory=dict)
    """In addition to the demo's configuration."""
    process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start it; its output is appended to its log."""
        with self.log.open("ab") as output:
            environment = os.environ | self.environment
            self.process = await asyncio.create_subprocess_exec(
                *self.command, stdout=output, stderr=output, env=environment
            )

    async def kill(self) -> None:
        """Send SIGKILL."""
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()

    async def stop(self) -> None:
        """SIGTERM, and SIGKILL if that does not help."""
        if self.process is None or self.process.returncode is not None:
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await self.process.wait()
        except TimeoutError:
            await self.kill()

    def check_alive(self) -> None:
        """Raise ProcessFailed if it has ended."""
        if self.process is None or self.process.returncode is not None:
            raise ProcessFailed(f"{self.name} ended too early; its log is {self.log}")

    def said(self) -> list[dict[str, object]]:
        """The JSON lines of its log."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines() if self.log.exists() else []
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]


@dataclass
class Redis(Program):
    """A redis-server with an append-only file; keeps its port."""

    port: int = 0

    @property
    def addr(self) -> str:
        """Where it listens."""
        return f"{HOST}:{self.port}"

    async def answers(self) -> bool:
        """Whether it answers PING."""
        try:
            reader, writer = await asyncio.open_connection(HOST, self.port)
        except OSError:
            return False
        try:
            writer.write(b"PING\r\n")
            return (await reader.readline()).startswith(b"+PONG")
        finally:
            writer.close()


@dataclass
class Fleet:
    """All processes of one run, in its own folder."""

    folder: Path
    programs: list[Program] = field(default_factory=list)

    def __post_init__(self) -> None:
        (self.folder / "logs").mkdir(parents=True)

    def _log(self, name: str) -> Path:
        return self.folder / "logs" / f"{name}.log"

    async def name_server(self, node: str, *, settings: Mapping[str, str] | None = None) -> str:
        """Start a name server and return its address; ``settings`` (``section.key``) override its configuration."""
        config = self.folder / f"{node}.toml"
        config.write_text(NAME_SERVER.format(node=node, folder=self.folder), encoding="utf-8")
        program = Program(node, [_command("pointsman-namesrv"), "--config", str(config)], self._log(node))
        program.environment = {_variable(name): value for name, value in (settings or {}).items()}
        await self._begin(program)
        return await self._until_serving(program, starts=1)

    async def restart_name_server(self, node: str, addr: str) -> None:
        """SIGTERM, and start it again on the same address."""
        (program,) = (program for program in self.programs if program.name == node)
        starts = len(_served(program))
        program.environment[_variable("server.listen")] = addr
        await program.stop()
        await program.start()
        await self._until_serving(program, starts=starts + 1)

    async def _until_serving(self, program: Program, *, starts: int) -> str:
        async with patience(START_SECONDS, f"{program.name} to serve; its log is {program.log}"):
            while len(addrs := _served(program)) < starts:
                program.check_alive()
                await asyncio.sleep(POLL_SECONDS)
        return addrs[-1]

    async def redis(self, name: str, *, replica_of: Redis | None = None) -> Redis:
        """Start a redis-server on a free port."""
        executable = shutil.which("redis-server")
        if executable is None:
            raise ProcessFailed("redis-server is needed: run 'make setup', or install it")
        data = self.folder / name
        data.mkdir()
        for _ in range(START_TRIES):
            # Another process may take the port before the start; then the next port is tried.
            port = _free_port()
            command = [executable, "--bind", HOST, "--port", str(port), "--dir", str(data), "--appendonly", "yes"]
            if replica_of is not None:
                command += ["--replicaof", HOST, str(replica_of.port)]
            redis = Redis(name, command, self._log(name), port=port)
            await self._begin(redis)
            if await self.until_redis_responds(redis):
                return redis
        raise ProcessFailed(f"{name} does not start; its log is {redis.log}")

    async def until_redis_responds(self, redis: Redis) -> bool:
        """Wait until it responds to PING; return False if it exited."""
        async with patience(START_SECONDS, f"{redis.name} to respond to PING; its log is {redis.log}"):
            while not await redis.answers():
                if redis.process is None or redis.process.returncode is not None:
                    return False
                await asyncio.sleep(POLL_SECONDS)
        return True

    async def agent(self, name: str, broker_id: int, redis: Redis, name_servers: list[str], *, zone: str) -> Program:
        """Start the agent of a broker."""
        label = f"agent-{name}-{broker_id}"
        config = self.folder / f"{label}.toml"
        config.write_text(
            AGENT.format(
                folder=self.folder,
                name=name,
                broker_id=broker_id,
                addr=redis.addr,
                zone=zone,
                # Not 0: the next agent of the same broker must have the same address.
                port=_free_port(),
                name_servers=", ".join(f'"{addr}"' for addr in name_servers),
            ),
            encoding="utf-8",
        )
        program = Program(label, [_command("pointsman-agent"), "--config", str(config)], self._log(label))
        await self._begin(program)
        return program

    async def _begin(self, program: Program) -> None:
        self.programs.append(program)
        await program.start()

    async def stop(self, *kinds: str) -> None:
        """Stop, together, the programs whose name begins with one of ``kinds``."""
        await asyncio.gather(*(program.stop() for program in self.programs if program.name.startswith(kinds)))

    async def kill_all(self) -> None:
        """Leave nothing running."""
        await asyncio.gather(*(program.kill() for program in self.programs))


def _served(program: Program) -> list[str]:
    """Where a name server served, one address for each start."""
    return [str(line["addr"]) for line in program.said() if line["message"] == "serving"]


def _variable(setting: str) -> str:
    """The environment variable of a name server's ``section.key``."""
    return f"NAMESRV_{setting.replace('.', '__').upper()}"


def _command(name: str) -> str:
    """A command of the environment that runs this demo."""
    return os.path.join(os.path.dirname(sys.executable), name)  # resolving would leave the venv


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])
