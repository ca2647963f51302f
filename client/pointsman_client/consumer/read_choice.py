"""Which broker of a replica group a consumer reads from: the master, else the slave of the lowest id. Pure.

A broker that failed is passed over for a while, so reads go on at a slave before the route says that the master is
gone, and return to the master when it is back.
"""

from __future__ import annotations

from pointsman_client.route import BrokerData

PASSED_OVER_SECONDS = 10.0
"""As long as a producer isolates a broker that failed."""


class ReadChoice:
    """Failures of brokers, by address."""

    def __init__(self) -> None:
        self._passed_over_until: dict[str, float] = {}

    def choose(self, broker: BrokerData | None, *, now: float) -> str | None:
        """Return the address to read from; the master's if every one failed; None: the group is in no route."""
        if broker is None or not broker.replicas:
            return None
        replicas = sorted(broker.replicas, key=lambda replica: replica.broker_id)
        healthy = [each for each in replicas if self._passed_over_until.get(each.addr, now) <= now]
        return (healthy or replicas)[0].addr

    def failed(self, addr: str, *, now: float) -> None:
        """Note that a broker could not be read from."""
        self._passed_over_until = {each: until for each, until in self._passed_over_until.items() if until > now}
        self._passed_over_until[addr] = now + PASSED_OVER_SECONDS

    def succeeded(self, addr: str) -> None:
        """Note an answer."""
        self._passed_over_until.pop(addr, None)
