"""A fleet: its size, its brokers and where they run, and how often each fault happens."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum

from pointsman_namesrv.core.model import BrokerIdentity, QueueConfig

DAY = 86_400.0
REPLICAS = 2
BROKERS_A_HOST = 4
GROUPS_A_TOPIC = 4


class Kind(StrEnum):
    """The label of a fault."""

    SINGLE = "single"
    """One outage, as every broker has now and then."""
    RESTART_LOOP = "restart_loop"
    """For hours, a new process each 30 seconds to 5 minutes."""
    BURST = "burst"
    """Some outages within the hour, hours of quiet, and again, for days."""
    SLOW_FLAP = "slow_flap"
    """An outage each one to four hours, for days."""
    CHRONIC = "chronic"
    """About one outage a day, every day."""
    ZONE_CUT = "zone_cut"
    """The network of a part of a zone is down for minutes."""
    OVERLOAD = "overload"
    """Late heartbeats for half an hour, then an outage."""
    DEPLOY = "deploy"
    """A cluster gets a new version, broker by broker."""
    MAINTENANCE = "maintenance"
    """An announced window."""
    DEAD = "dead"
    """It never comes back."""


SHOULD_BE_FLAGGED = frozenset({Kind.RESTART_LOOP, Kind.BURST, Kind.SLOW_FLAP, Kind.CHRONIC})
"""Kinds in which the broker itself flaps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultRates:
    """Rates of faults; none was chosen with knowledge of a detector's parameters."""

    outages_a_broker_day: float = 0.03
    """Single outages; each broker has its own rate, which spreads around this one (gamma, shape 2)."""
    shares: tuple[tuple[Kind, float], ...] = (
        (Kind.RESTART_LOOP, 0.3),
        (Kind.BURST, 0.25),
        (Kind.SLOW_FLAP, 0.25),
        (Kind.CHRONIC, 0.2),
    )
    """Faults of the flapping share."""
    flapping_every_minute: int = 0
    """Number of additional brokers that restart every minute from the start to the end."""
    overloads_a_broker_day: float = 0.002
    zone_cuts_a_day: float = 0.3
    deploys_a_cluster_week: float = 1.0
    maintenances_a_cluster_week: float = 1.0
    dead_share: float = 0.002


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """A fleet over some days. The same fields give the same bytes."""

    brokers: int = 100
    """Replicas, two of each broker name."""
    clusters: int = 2
    zones: int = 3
    nodes: int = 2
    days: int = 1
    first_day: date = date(2026, 3, 2)
    seed: int = 7
    flapping_share: float = 0.01
    """Share of brokers that flap in one of the ways that should be flagged."""
    heartbeats: bool = True
    """Whether nodes write HEARTBEATS rows, nine in ten of all rows."""
    queue_stats: bool = False
    topics_a_broker: int = 8
    faults: FaultRates = field(default_factory=FaultRates)

    @property
    def began_at(self) -> datetime:
        return datetime.combine(self.first_day, time(), UTC)

    @property
    def last_day(self) -> date:
        return self.first_day + timedelta(days=self.days - 1)

    @property
    def seconds(self) -> float:
        """How long it lasts."""
        return self.days * DAY

    def moment(self, at: float) -> datetime:
        """Seconds since its beginning, as a wall clock shows them."""
        return self.began_at + timedelta(seconds=at)


@dataclass(frozen=True, slots=True)
class Broker:
    """One replica and where it runs."""

    identity: BrokerIdentity
    zone: str
    host: str
    topics: dict[str, QueueConfig]


def brokers_of(fleet: Fleet) -> list[Broker]:
    """All brokers, cluster by cluster; replicas of one name run in different zones."""
    groups = -(-fleet.brokers // REPLICAS)
    in_zone: dict[tuple[int, int], int] = {}
    found = []
    for number in range(fleet.brokers):
        group, broker_id = divmod(number, REPLICAS)
        cluster = group * fleet.clusters // groups
        zone = (group + broker_id) % fleet.zones
        place = in_zone[cluster, zone] = in_zone.get((cluster, zone), -1) + 1
        addr = f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}:6379"
        found.append(
            Broker(
                BrokerIdentity(f"cluster-{cluster + 1}", f"broker-{group + 1:05d}", broker_id, addr),
                f"zone-{zone + 1}",
                f"host-{cluster + 1}-{zone + 1}-{place // BROKERS_A_HOST + 1:04d}",
                _topics(fleet, group),
            )
        )
    return found


def _topics(fleet: Fleet, group: int) -> dict[str, QueueConfig]:
    # Four neighbours have the same topics, so that a topic is on several broker names.
    first = group // GROUPS_A_TOPIC * fleet.topics_a_broker
    return {f"topic-{first + n + 1:05d}": QueueConfig(4, 4, 6) for n in range(fleet.topics_a_broker)}
