"""``make demo-rocketmq``: unmodified RocketMQ on two of our name servers, faults, and the report that must show them.

Brokers, clients and mqadmin are RocketMQ's, from Maven Central. A broker registers every ten seconds, and on this wire
nothing probes it: what is seen of a kill is the end of its connection.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import signal
import sys
import time
from collections.abc import Collection
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from deploy.demo.processes import HOST, ProcessFailed
from deploy.demo.story import ROOT, DemoFailed, Story, run_as_program
from deploy.demo.verdict import STREAM_BROKEN, UNKNOWN, Instance, message_faults, wipe_faults
from deploy.rocketmq.processes import (
    Broker,
    Clients,
    GoClients,
    RocketMQ,
    Running,
    built_go_client,
    failed,
    fetched,
    free_port,
    got,
    missing_go,
    missing_programs,
    sent,
)
from pointsman_client import NameServerClient, PointsmanError

VERSION = "5.3.3"
CACHE = ROOT / ".build" / "rocketmq"
NODES = ("namesrv-1", "namesrv-2")
EXPIRY_SECONDS = 30.0
"""For as long after its start, a name server does not judge a broker by the end of its connection."""
SETTINGS = {"liveness.max_heartbeat_interval_seconds": "10", "liveness.max_expiry_seconds": f"{EXPIRY_SECONDS:g}"}
GO_TOPIC = "payments"
MORE_THAN_ARE_SENT = 1_000_000
MILLISECONDS_BETWEEN = 20
LAST = 20
"""Messages that show which brokers a producer uses."""

A, A_SLAVE, B = ("broker-a", 0), ("broker-a", 1), ("broker-b", 0)


class RocketMQDemo(Story):
    """One run."""

    name = "demo-rocketmq"
    topic = "orders"
    brokers = frozenset({A, A_SLAVE, B})
    flapping = None

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._running: list[Running] = []
        self._clients: dict[str, tuple[Running, Running]] = {}
        """Producer and consumer by language."""

    async def kill_all(self) -> None:
        """Leave nothing running."""
        for running in self._running:
            running.end()
        await super().kill_all()

    async def run(self) -> None:
        """The whole story. Raises DemoFailed."""
        missing = missing_programs()
        if missing:
            raise ProcessFailed(missing)
        self.say(f"RocketMQ {VERSION} from Maven Central (83 MB the first time), with Java clients")
        jars = await asyncio.to_thread(fetched, VERSION, CACHE)
        wires = [f"{HOST}:{free_port()}" for _ in NODES]
        servers = [
            await self.fleet.name_server(node, settings=SETTINGS | {"remoting.listen": wire})
            for node, wire in zip(NODES, wires, strict=True)
        ]
        self._serving_since = time.monotonic()
        self.say(f"two name servers serve RocketMQ's wire at {' and '.join(wires)}")
        rocketmq = RocketMQ(jars, self.folder / "rocketmq", ";".join(wires))
        brokers = self._brokers(rocketmq)
        async with self.clients(servers) as clients:
            await self.until(clients, self.brokers, "all three brokers have registered")
            await self._start_clients(rocketmq, ";".join(wires))
            await self._kill_and_bring_back(clients, A, brokers[A])
            self.say(f"SIGTERM {NODES[0]}")
            await self.fleet.restart_name_server(NODES[0], servers[0])
            self._serving_since = time.monotonic()
            await self.until(clients, self.brokers, "it is back, and knows all brokers")
            await self._wipe(clients, rocketmq)
            await self._kill_and_bring_back(clients, B, brokers[B])
            await self._settle()
            for running in self._running:
                running.send(signal.SIGTERM)
            await self.until(clients, frozenset(), "SIGTERM everything of RocketMQ: all brokers have unregistered")
        await self.fleet.stop(*NODES)
        rows = _rows(self.folder / "history")
        if wrong := list(wipe_faults(rows, B[0], nodes=NODES)):
            raise DemoFailed("\n".join(wrong))
        self.say("both histories have the wiped permission, and that it was given back")
        await self.report(also="no broker flaps; the right cause is 'unknown', for nothing probes a broker here")

    def _ended_with_the_demo(self, running: Running) -> Running:
        self._running.append(running)
        return running

    async def _start_clients(self, rocketmq: RocketMQ, namesrv: str) -> None:
        """A producer and a consumer in Java, and in Go where it is installed, each pair with its topic."""
        pairs: dict[str, tuple[Clients, str]] = {"Java": (rocketmq, self.topic)}
        if missing := missing_go():
            self.say(f"without RocketMQ's client for Go, which {missing}")
        else:
            program = await asyncio.to_thread(built_go_client, CACHE)
            pairs["Go"] = GoClients(program, self.folder / "rocketmq" / "go", namesrv), GO_TOPIC
        for language, (clients, topic) in pairs.items():
            consumer = self._ended_with_the_demo(clients.consumer(topic))
            producer = self._ended_with_the_demo(
                clients.producer(topic, MORE_THAN_ARE_SENT, millis=MILLISECONDS_BETWEEN)
            )
            self._clients[language] = producer, consumer
        languages = " and ".join(self._clients)
        await self._until_sent_to({A[0], B[0]}, f"a producer each in {languages} sends to both masters")

    def _brokers(self, rocketmq: RocketMQ) -> dict[Instance, Broker]:
        found = {}
        for name, broker_id in sorted(self.brokers):
            # From the start, for a slave copies the topics of its master once a minute only.
            rocketmq.topics_on_disk(name, broker_id, [self.topic, GO_TOPIC])
            found[name, broker_id] = rocketmq.broker(name, broker_id)
            self._ended_with_the_demo(found[name, broker_id])
        printed = self.folder / "rocketmq" / "*" / "out"
        self.say(f"three brokers start, two masters and a slave of broker-a; what RocketMQ prints is in {printed}")
        return found

    async def _kill_and_bring_back(self, clients: list[NameServerClient], instance: Instance, broker: Broker) -> None:
        rest = self._serving_since + EXPIRY_SECONDS + 1 - time.monotonic()
        if rest > 0:
            self.say(f"for {rest:.0f} s more, a name server has just started and does not judge by connections")
            await asyncio.sleep(rest)
        self.say(f"SIGKILL the master of {instance[0]}")
        self.deeds.note(instance, datetime.now(UTC), cause=UNKNOWN, reason=STREAM_BROKEN)
        broker.end()
        await self.until(clients, self.brokers - {instance}, "it is out of the routes")
        broker.start_again()
        await self.until(clients, self.brokers, "it is back")

    async def _wipe(self, clients: list[NameServerClient], rocketmq: RocketMQ) -> None:
        for command, writable, brokers in (
            ("wipeWritePerm", frozenset({A[0]}), "broker-a alone"),
            ("addWritePerm", frozenset({A[0], B[0]}), "both"),
        ):
            self.say(f"mqadmin {command} -b {B[0]}")
            await asyncio.to_thread(rocketmq.admin, command, "-b", B[0])

            async def is_done(writable: frozenset[str] = writable) -> bool:
                return all([await self._writable(client) == writable for client in clients])

            await self.wait_for(is_done, f"writable on both name servers: {', '.join(sorted(writable))}")
            await self._until_sent_to(writable, f"what is sent goes to {brokers}")

    async def _writable(self, client: NameServerClient) -> set[str]:
        try:
            route = await client.fetch_route(self.topic)
        except PointsmanError:
            return set()
        return {queues.broker_name for queues in route.queue_datas if queues.is_writable}

    async def _until_sent_to(self, brokers: Collection[str], what: str) -> None:
        async def is_so() -> bool:
            for producer, _ in self._clients.values():
                if not producer.is_alive:
                    raise DemoFailed(f"a producer ended too early; see {producer.out}")
                lines = [line for line in producer.said() if line.startswith("sent ")][-LAST:]
                if len(lines) < LAST or {line.split()[2] for line in lines} != set(brokers):
                    return False
            return True

        await self.wait_for(is_so, what)

    async def _settle(self) -> None:
        for language, (producer, consumer) in self._clients.items():
            producer.end_sending()

            async def all_arrived(producer: Running = producer, consumer: Running = consumer) -> bool:
                return not producer.is_alive and sent(producer) <= set(got(consumer))

            await self.wait_for(
                all_arrived, f"the producer in {language} has ended, and all its messages were consumed"
            )
            produced, consumed = sent(producer), got(consumer)
            unsure = [line.split()[1] for line in failed(producer)]
            if wrong := list(message_faults(produced, unsure, consumed)):
                raise DemoFailed("\n".join(wrong))
            self.say(
                f"{len(produced):,} messages produced, {len(set(consumed)):,} consumed, "
                f"{len(consumed) - len(set(consumed))} of them twice; {len(unsure)} sends failed and were repeated"
            )


def _rows(history: Path) -> list[dict[str, Any]]:
    """The rows of closed histories, in their order."""
    rows = []
    for file in history.rglob("*.jsonl*"):
        text = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
        rows += [json.loads(line) for line in text.splitlines()]
    return sorted(rows, key=lambda row: (row["event_at"], row["seq"]))


if __name__ == "__main__":
    sys.exit(run_as_program(RocketMQDemo))
