"""Unmodified RocketMQ processes from Maven Central, each in its folder, for ``make demo-rocketmq`` and the tests."""

from __future__ import annotations

import fcntl
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from deploy.demo.processes import ProcessFailed
from pointsman.names import split_addr

HERE = Path(__file__).parent
JVM = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xms64m", "-Xmx256m"]
OPEN = [
    "-XX:MaxDirectMemorySize=256m",
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.misc=ALL-UNNAMED",
    "-Drocketmq.broker.diskSpaceWarningLevelRatio=0.98",
    "-Drocketmq.broker.diskSpaceCleanForciblyRatio=0.97",
]
LISTEN_PORTS = range(20_000, 32_000, 4)
LOGBACK = """<configuration><appender name="out" class="ch.qos.logback.core.ConsoleAppender"><encoder>
<pattern>%d %p %t - %m%n</pattern></encoder></appender>
<root level="INFO"><appender-ref ref="out"/></root></configuration>"""
"""4.9 does not start without such a file; 5.x has one in its jar, and takes a property."""


def missing_programs() -> str:
    """Return in one line what to install; empty: nothing is missing."""
    absent = [program for program in ("java", "javac", "mvn") if shutil.which(program) is None]
    if not absent:
        return ""
    return (
        f"needs {', '.join(absent)}: install JDK 17 and Maven (Debian: apt-get install openjdk-17-jdk-headless maven)"
    )


def missing_go() -> str:
    """Return in one line what RocketMQ's client for Go needs; empty: nothing is missing."""
    return "" if shutil.which("go") else "needs go: install Go 1.20 or later (https://go.dev/dl) into the PATH"


def fetched(version: str, cache: Path) -> Path:
    """Return the folder with RocketMQ's jars and the compiled clients, fetched from Maven Central the first time."""
    folder = cache / version
    with alone(cache):
        if not (folder / f"rocketmq-namesrv-{version}.jar").exists():
            partial = cache / f"{version}.partial"
            options = ["-DincludeScope=runtime", f"-Drocketmq.version={version}", f"-DoutputDirectory={partial}"]
            run_program(["mvn", "-q", "-B", "-f", str(HERE / "pom.xml"), "dependency:copy-dependencies", *options])
            shutil.rmtree(folder, ignore_errors=True)
            partial.rename(folder)
        for source in sorted(HERE.glob("*.java")):
            if not is_newer(folder / f"{source.stem}.class", source):
                run_program(["javac", "-nowarn", "-proc:none", "-cp", f"{folder}/*", "-d", str(folder), str(source)])
    return folder


def built_go_client(cache: Path) -> Path:
    """Return the client for Go, built the first time with modules from the Go module proxy."""
    program = cache / "go-client"
    with alone(cache):
        if not all(is_newer(program, HERE / "go" / name) for name in ("client.go", "go.mod")):
            command = ["go", "build", "-buildvcs=false", "-mod=readonly", "-o", str(program), "."]
            run_program(command, seconds=300.0, cwd=HERE / "go")
    return program


def is_newer(built: Path, source: Path) -> bool:
    """Return whether a file was built after its source changed."""
    return built.exists() and built.stat().st_mtime >= source.stat().st_mtime


@contextmanager
def alone(cache: Path) -> Iterator[None]:
    """Let one process at a time build in the cache."""
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def run_program(command: list[str], *, seconds: float = 180.0, cwd: Path | None = None) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False, cwd=cwd)
    except subprocess.TimeoutExpired:
        raise ProcessFailed(f"timed out after {seconds:g} s waiting for {command[0]} to end") from None
    if done.returncode:
        raise ProcessFailed(f"{command[0]} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return done.stdout + done.stderr


def free_port() -> int:
    """Return a port whose neighbours are free as well: a broker takes two below and one above (HA) too.

    It is below those that the system gives to connections, which would take it while a broker is down.
    """
    while True:
        port = random.choice(LISTEN_PORTS)
        try:
            for near in (port - 2, port, port + 1):
                with socket.socket() as probe:
                    probe.bind(("", near))
        except OSError:
            continue
        return port


class Running:
    """A process, what it prints to a file, and how it ends."""

    def __init__(self, command: list[str], folder: Path, environment: Mapping[str, str] | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.out = folder / "out"
        with self.out.open("ab") as out:
            self._process = subprocess.Popen(
                command, cwd=folder, stdout=out, stderr=subprocess.STDOUT, env={**os.environ, **(environment or {})}
            )

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    @property
    def pid(self) -> int:
        return self._process.pid

    def said(self) -> list[str]:
        """Return the lines that it printed, of earlier processes in this folder as well."""
        return self.out.read_text(errors="replace").splitlines()

    def end_sending(self) -> None:
        """Have a producer end after the message that it is sending."""
        (self.out.parent / "stop").touch()

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def end(self, number: signal.Signals = signal.SIGKILL, *, seconds: float = 30.0) -> None:
        """Send a signal, and wait for the end."""
        if self.is_alive:
            self._process.send_signal(number)
        self._process.wait(seconds)


class Clients(ABC):
    """Producers and consumers of one kind, which know the name servers ``host:port;host:port``."""

    def __init__(self, folder: Path, namesrv: str, *, group: str) -> None:
        self._folder = folder
        self._namesrv = namesrv
        self._group = group
        self._clients = 0

    @abstractmethod
    def _client_command(self, home: Path) -> list[str]:
        """What starts a client in its folder."""

    def producer(self, topic: str, count: int, *, millis: int = 100) -> Running:
        """Start a producer of numbered messages."""
        return self._client("produce", topic, str(count), str(millis))

    def kinds(self, topic: str) -> Running:
        """Start a Java producer of a message with tag, keys and property, a compressed one and a batch."""
        return self._client("kinds", topic)

    def consumer(self, topic: str, *, group: str = "", selector: Sequence[str] = ()) -> Running:
        """Start a consumer, in its own group unless one is named, from the first message.

        ``selector``: of Java's clients, TAG or SQL92 and an expression.
        """
        return self._client("consume", topic, *selector, group=group)

    def requester(self, topic: str, count: int) -> Running:
        """Start a Java producer of requests, which prints their replies."""
        return self._client("request", topic, str(count))

    def answerer(self, topic: str) -> Running:
        """Start a Java consumer that replies to each message."""
        return self._client("answer", topic)

    def pop_consumer(self, topic: str, group: str) -> Running:
        """Start a Java consumer that uses POP, in a group for which the broker has that mode."""
        return self._client("pop", topic, group=group)

    def _client(self, what: str, topic: str, *more: str, group: str = "") -> Running:
        self._clients += 1
        home = self._folder / f"client-{self._clients}"
        command = self._client_command(home)
        return Running([*command, what, self._namesrv, topic, group or f"{self._group}-{self._clients}", *more], home)


class GoClients(Clients):
    """Clients for Go."""

    def __init__(self, program: Path, folder: Path, namesrv: str) -> None:
        super().__init__(folder, namesrv, group="Go")
        self._program = program

    def _client_command(self, _: Path) -> list[str]:
        return [str(self._program)]


class PythonClients(Clients):
    """This project's clients."""

    def __init__(self, folder: Path, namesrv: str) -> None:
        super().__init__(folder, namesrv, group="Python")

    def _client_command(self, _: Path) -> list[str]:
        return [sys.executable, str(HERE / "python_client.py")]


class RocketMQ(Clients):
    """Processes of one version of RocketMQ, and Java clients."""

    def __init__(
        self,
        lib: Path,
        folder: Path,
        namesrv: str,
        *,
        address_server: str = "",
        poll_millis: int = 2_000,
        inside: Sequence[str] = (),
        namespace: str = "",
    ) -> None:
        """``address_server``: host:port of ``/rocketmq/nsaddr``, asked where ``namesrv`` is empty.

        ``poll_millis``: interval at which clients ask for routes; RocketMQ's is 30,000. ``inside``: a command that runs
        another one, such as ``ip netns exec NAME``. ``namespace``: of producers and consumers; empty: none.
        """
        super().__init__(folder, namesrv, group=f"G{lib.name.replace('.', '')}")
        self.version = lib.name
        self.is_4 = lib.name.startswith("4.")
        self._lib = lib
        self._address_server = address_server
        self._poll_millis = poll_millis
        self._inside = inside
        self._namespace = namespace

    def _java(self, home: Path, kind: str, *options: str, jvm: Sequence[str] = JVM) -> list[str]:
        (home / "conf").mkdir(parents=True, exist_ok=True)
        (home / "conf" / f"logback_{kind}.xml").write_text(LOGBACK)
        logback = f"-Drmq.logback.configurationFile={home}/conf/logback_{kind}.xml"
        homes = [f"-Duser.home={home}", f"-Drocketmq.home.dir={home}"]
        if self._address_server:
            homes.append(f"-Drocketmq.namesrv.domain={self._address_server}")
        return [*self._inside, "java", *jvm, *options, *homes, logback, "-cp", f"{self._lib}/*:{self._lib}"]

    def name_server(self, addr: str, *, jvm: Sequence[str] = JVM, **settings: str) -> Running:
        """Start RocketMQ's own name server at host:port. It is ready when its port accepts.

        5.x logs to ``logs/rocketmqlogs`` in its folder, 4.9 to its output.
        """
        host, port = split_addr(addr)
        home = self._folder / f"namesrv-{port}"
        java = self._java(home, "namesrv", jvm=jvm)
        conf = {"listenPort": str(port), "kvConfigPath": f"{home}/kvConfig.json"}
        if not self.is_4:
            conf["bindAddress"] = host
            java.append("-Drmq.logback.configurationFile=rmq.namesrv.logback.xml")
        (home / "namesrv.conf").write_text("".join(f"{key}={value}\n" for key, value in (conf | settings).items()))
        return Running([*java, "org.apache.rocketmq.namesrv.NamesrvStartup", "-c", str(home / "namesrv.conf")], home)

    def broker(self, name: str, broker_id: int = 0, *, jvm: Sequence[str] = JVM, **settings: str) -> Broker:
        """Start a broker."""
        home = self._folder / f"{name}-{broker_id}"
        mapped = "maped" if self.is_4 else "mapped"
        port = free_port()
        conf = {
            "brokerClusterName": "C",
            "brokerName": name,
            "brokerId": str(broker_id),
            "brokerRole": "SLAVE" if broker_id else "ASYNC_MASTER",
            "brokerIP1": "127.0.0.1",
            "brokerIP2": "127.0.0.1",
            "bindAddress": "127.0.0.1",
            "listenPort": str(port),
            **({"namesrvAddr": self._namesrv} if self._namesrv else {"fetchNamesrvAddrByAddressServer": "true"}),
            "registerNameServerPeriod": "10000",
            "storePathRootDir": f"{home}/store",
            "storePathCommitLog": f"{home}/store/commitlog",
            f"{mapped}FileSizeCommitLog": "16777216",
            f"{mapped}FileSizeConsumeQueue": "300000",
            "maxIndexNum": "50000",
            "maxHashSlotNum": "10000",
            "diskMaxUsedSpaceRatio": "95",
            # Else an idle 5.x broker takes a fifth of a core: it writes its timer wheel, 37 MB, each second.
            "timerFlushIntervalMs": "10000",
        } | settings
        main = ["org.apache.rocketmq.broker.BrokerStartup", "-c", str(home / "broker.conf")]
        return Broker([*self._java(home, "broker", *OPEN, jvm=jvm), *main], home, conf)

    def proxy(self, addr: str, *, jvm: Sequence[str] = JVM) -> Running:
        """Start a proxy for gRPC clients at host:port, for the brokers of cluster C; one of them must be registered.

        Its jars are not those that :func:`fetched` returns. It is ready when its port accepts; it logs to ``logs`` in
        its folder, and listens for clients of RocketMQ's wire at the next port.
        """
        _, port = split_addr(addr)
        home = self._folder / "proxy"
        java = [*self._java(home, "proxy", *OPEN, jvm=jvm), "-Drmq.logback.configurationFile=rmq.proxy.logback.xml"]
        conf = {
            "proxyMode": "cluster",
            "rocketMQClusterName": "C",
            "namesrvAddr": self._namesrv,
            "grpcServerPort": port,
            "remotingListenPort": port + 1,
        }
        file = home / "conf" / "rmq-proxy.json"
        file.write_text(json.dumps(conf))
        return Running([*java, "org.apache.rocketmq.proxy.ProxyStartup", "-pc", str(file)], home)

    def topics_on_disk(self, name: str, broker_id: int, topics: list[str]) -> None:
        """Give a broker topics before its first start."""
        config = {
            topic: {
                "order": False,
                "perm": 6,
                "readQueueNums": 4,
                "topicFilterType": "SINGLE_TAG",
                "topicName": topic,
                "topicSysFlag": 0,
                "writeQueueNums": 4,
            }
            for topic in topics
        }
        file = self._folder / f"{name}-{broker_id}" / "store" / "config" / "topics.json"
        file.parent.mkdir(parents=True)
        version = {"counter": 1, "stateVersion": 0, "timestamp": 1_700_000_000_000}
        file.write_text(json.dumps({"dataVersion": version, "topicConfigTable": config}))

    def in_namespace(self, namespace: str) -> RocketMQ:
        """Return the same for clients in a namespace."""
        return RocketMQ(self._lib, self._folder / namespace, self._namesrv, namespace=namespace)

    def load_command(self, *, jvm: Sequence[str]) -> list[str]:
        """Return what starts a client that loads a broker: see Load.java."""
        home = self._folder / "load"
        return [*self._java(home, "client", f"-Drocketmq.client.logRoot={home}", jvm=jvm), "Load", self._namesrv]

    def _client_command(self, home: Path) -> list[str]:
        options = [f"-Drocketmq.client.logRoot={home}", "-Drocketmq.client.rebalance.waitInterval=2000"]
        options += [f"-DpollMillis={self._poll_millis}", f"-Dnamespace={self._namespace}"]
        return [*self._java(home, "client", *options), "Client"]

    def admin(self, *command: str) -> str:
        """Run mqadmin and return what it printed."""
        return run_program(self.admin_command(*command), seconds=60.0, cwd=self._folder / "admin")

    def admin_command(self, *command: str) -> list[str]:
        """Return what starts mqadmin; without arguments it lists its commands."""
        home = self._folder / "admin"
        java = self._java(home, "tools", f"-Djava.io.tmpdir={home}")
        java.append("org.apache.rocketmq.tools.command.MQAdminStartup")
        return [*java, command[0], "-n", self._namesrv, *command[1:]] if command else java


class Broker(Running):
    """A broker that may be started again with the same store, and other settings."""

    def __init__(self, command: list[str], folder: Path, conf: Mapping[str, str]) -> None:
        self.addr = f"127.0.0.1:{conf['listenPort']}"
        self._again = command
        self.folder = folder
        self._conf = dict(conf)
        self.start_again()

    def start_again(self, **settings: str) -> None:
        self._conf |= settings
        (self.folder / "broker.conf").write_text("".join(f"{key}={value}\n" for key, value in self._conf.items()))
        super().__init__(self._again, self.folder)


def sent(client: Running) -> set[str]:
    """Return the messages that a producer could send."""
    return {line.split()[1] for line in client.said() if line.startswith("sent ")}


def sent_to(client: Running) -> set[tuple[str, int]]:
    """Return broker name and id of the queues that a Java producer sent to."""
    lines = (line.split() for line in client.said() if line.startswith("sent "))
    return {(line[2], int(line[3])) for line in lines}


def failed(client: Running) -> list[str]:
    """Return what a producer could not send, each message as often as that happened."""
    return [line for line in client.said() if line.startswith("failed ")]


def got(client: Running) -> list[str]:
    """Return the messages that a consumer got."""
    return [line.split()[1] for line in client.said() if line.startswith("got ")]
