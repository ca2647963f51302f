"""``make demo``: a small fleet on this machine, faults injected, and the nightly report that must show them.

Name servers, agents, redis-server processes, signals, files and Spark are real. Only the intervals are short:
heartbeats every second, an expiry of four seconds, a grace of one.
"""

from __future__ import annotations

import asyncio
import sys
import time
from datetime import UTC, datetime

from deploy.demo.processes import Redis
from deploy.demo.story import PATIENCE_SECONDS, DemoFailed, Story, run_as_program
from deploy.demo.traffic import traffic
from deploy.demo.verdict import AGENT_LOST, PROCESS_DIED, Instance
from pointsman_client import NameServerClient

FLAPS = 5
START_LENIENCE_SECONDS = 5.0
"""Within an expiry after its start, a name server grants a broken stream the complete expiry."""
PAUSE_SECONDS = 1.2
"""Pause between two faults, so that the client, which polls twice per second, sees each."""

A, A_REPLICA, B, C = ("broker-a", 0), ("broker-a", 1), ("broker-b", 0), ("broker-c", 0)


class Demo(Story):
    """One run."""

    name = "demo"
    topic = "orders"
    brokers = frozenset({A, A_REPLICA, B, C})
    flapping = C

    async def run(self) -> None:
        """Run all steps. Raises DemoFailed."""
        servers = [await self.fleet.name_server(f"namesrv-{number}") for number in (1, 2)]
        self.say(f"two name servers serve at {' and '.join(servers)}")
        serving_since = time.monotonic()
        redis = await self._brokers(servers)
        async with self.clients(servers) as clients:
            await self.until(clients, self.brokers, "all four brokers are in the routes")
            await asyncio.sleep(max(0.0, serving_since + START_LENIENCE_SECONDS - time.monotonic()))
            async with traffic(servers, self.topic) as messages:
                self.say(f"a producer and a group of two consumers work on {self.topic}")
                await self._faults(clients, redis)
                self.say(await messages.settled(seconds=PATIENCE_SECONDS))
        await self._stop()
        await self.report(also="broker-c flaps")

    async def _brokers(self, servers: list[str]) -> dict[Instance, Redis]:
        redis: dict[Instance, Redis] = {A: await self.fleet.redis("redis-a-master")}
        redis[A_REPLICA] = await self.fleet.redis("redis-a-replica", replica_of=redis[A])
        redis[B] = await self.fleet.redis("redis-b")
        redis[C] = await self.fleet.redis("redis-c")
        self.agents = {
            instance: await self.fleet.agent(*instance, redis[instance], servers, zone=f"zone-{number}")
            for number, instance in enumerate((A, A_REPLICA, B, C), 1)
        }
        self.say("four redis-server processes run, each with an agent: broker-a with a replica, broker-b, broker-c")
        return redis

    async def _faults(self, clients: list[NameServerClient], redis: dict[Instance, Redis]) -> None:
        await self._kill_and_bring_back(clients, A, "the redis master", redis[A])
        self.say("SIGKILL the agent of broker-b")
        self.deeds.note(B, datetime.now(UTC), cause=AGENT_LOST)
        await self.agents[B].kill()
        await self.until(clients, self.brokers - {B}, "broker-b is out of the routes")
        await self.agents[B].start()
        await self.until(clients, self.brokers, "its next agent has registered it again")
        for number in range(1, FLAPS + 1):
            await self._kill_and_bring_back(clients, C, f"the redis, {number} of {FLAPS},", redis[C])

    async def _kill_and_bring_back(
        self, clients: list[NameServerClient], instance: Instance, what: str, redis: Redis
    ) -> None:
        name = instance[0]
        self.say(f"SIGKILL {what} of {name}")
        self.deeds.note(instance, datetime.now(UTC), cause=PROCESS_DIED)
        await redis.kill()
        await self.until(clients, self.brokers - {instance}, f"{name}/{instance[1]} is out of the routes")
        await asyncio.sleep(PAUSE_SECONDS)
        await redis.start()
        if not await self.fleet.until_redis_responds(redis):
            raise DemoFailed(f"redis of {name} did not start again; its log is {redis.log}")
        await self.until(clients, self.brokers, f"{name}/{instance[1]} is back")
        await asyncio.sleep(PAUSE_SECONDS)

    async def _stop(self) -> None:
        for kind in ("agent", "namesrv", "redis"):
            await self.fleet.stop(kind)
        self.say("everything is stopped")


if __name__ == "__main__":
    sys.exit(run_as_program(Demo))
