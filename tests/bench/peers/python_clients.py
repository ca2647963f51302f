"""The clients that a Python team would pick instead, each in its own process, with what it needs besides the broker.

Their packages are in a virtual environment of the bench; jars come from Maven Central.
"""

from __future__ import annotations

import asyncio
import base64
import shutil
import socket
import sys
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path

from deploy.demo.processes import ProcessFailed
from deploy.rocketmq.processes import RocketMQ, Running, alone, free_port, run_program
from pointsman.names import split_addr
from tests.bench.peers.load_process import LoadProcess, load_process

HERE = Path(__file__).parent
CACHE = Path(__file__).parents[3] / ".build" / "bench-peers"
PACKAGES = {
    "rocketmq": ("rocketmq-python-client==5.1.2",),
    "kafka": ("aiokafka==0.14.0", "uvloop==0.23.0"),
}
INSTALL_SECONDS = 300.0
START_SECONDS = 60.0

Peer = tuple[str, LoadProcess]


async def started(stack: AsyncExitStack, starting: AbstractAsyncContextManager[Peer]) -> tuple[Peer, ...]:
    """Start a client until the stack ends; without it, say why in one line."""
    try:
        return (await stack.enter_async_context(starting),)
    except ProcessFailed as error:
        print(f"  a peer is skipped: {' '.join(str(error).split())[:200]}", flush=True)
        return ()


@asynccontextmanager
async def rocketmq_python_client(folder: Path, namesrv: str, *, jvm: Sequence[str]) -> AsyncIterator[Peer]:
    """Run RocketMQ's own client for Python and the proxy that it needs, before a broker that is registered.

    Raises ProcessFailed where they cannot be had or do not start.
    """
    python, jars = _environment("rocketmq"), _jars("rocketmq")
    addr = f"127.0.0.1:{free_port()}"
    proxy = RocketMQ(jars, folder, namesrv).proxy(addr, jvm=jvm)
    try:
        await _accepts(addr, proxy)
        # It logs to its user's home.
        command = [str(python), str(HERE / "rocketmq_load.py"), addr]
        async with load_process(command, "rocketmq-python-client", {"HOME": str(folder)}) as client:
            yield "rocketmq-python-client, through RocketMQ's proxy", client
    finally:
        proxy.end()


@asynccontextmanager
async def aiokafka(folder: Path, *, jvm: Sequence[str]) -> AsyncIterator[Peer]:
    """Run aiokafka and a broker of Kafka.

    Raises ProcessFailed where they cannot be had or do not start.
    """
    python, jars = _environment("kafka"), _jars("kafka")
    home, port = folder / "kafka", free_port()
    home.mkdir()
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{port + 1}",
        "controller.quorum.voters": f"1@127.0.0.1:{port + 1}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": f"{home}/logs",
        "num.partitions": "4",
        "offsets.topic.replication.factor": "1",
    }
    conf = home / "server.properties"
    conf.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    java = ["java", *jvm, "-cp", f"{jars}/*"]
    cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    run_program([*java, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(conf)])
    broker = Running([*java, "kafka.Kafka", str(conf)], home)
    try:
        await _accepts(f"127.0.0.1:{port}", broker)
        command = [str(python), str(HERE / "kafka_load.py"), f"127.0.0.1:{port}"]
        async with load_process(command, "aiokafka") as client:
            yield "aiokafka, to a broker of Kafka 3.9.1", client
    finally:
        broker.end()


def _environment(peer: str) -> Path:
    """Return the Python of a virtual environment with a peer's packages, made the first time."""
    folder, packages = CACHE / f"{peer}-python", PACKAGES[peer]
    installed, python = folder / "packages", folder / "bin" / "python"
    uv = str(Path(sys.executable).with_name("uv"))
    with alone(CACHE):
        if not installed.exists() or installed.read_text().split() != [*packages]:
            shutil.rmtree(folder, ignore_errors=True)
            _fetched([uv, "venv", "--quiet", "--python", sys.executable, str(folder)])
            _fetched([uv, "pip", "install", "--quiet", "--python", str(python), *packages])
            installed.write_text("\n".join(packages))
    return python


def _jars(peer: str) -> Path:
    """Return the folder with the jars of a peer's server, fetched the first time."""
    folder, partial = CACHE / f"{peer}-jars", CACHE / f"{peer}-jars.partial"
    with alone(CACHE):
        if not folder.exists():
            options = ["-DincludeScope=runtime", f"-DoutputDirectory={partial}"]
            _fetched(["mvn", "-q", "-B", "-f", str(HERE / f"{peer}.pom.xml"), "dependency:copy-dependencies", *options])
            partial.rename(folder)
    return folder


def _fetched(command: list[str]) -> None:
    try:
        run_program(command, seconds=INSTALL_SECONDS)
    except OSError as error:
        raise ProcessFailed(f"{command[0]}: {error}") from error


async def _accepts(addr: str, process: Running) -> None:
    """Wait until a process accepts connections."""
    deadline = time.monotonic() + START_SECONDS
    while process.is_alive and time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(split_addr(addr)) == 0:
                return
        await asyncio.sleep(0.2)
    raise ProcessFailed(f"it does not accept connections: {(process.said() or [''])[-1]}")
