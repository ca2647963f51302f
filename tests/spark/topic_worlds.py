"""Random small worlds of topics: brokers that change them, name servers that record it, lose rows and restart.

A version stands for one set: brokers never go back to a version with other topics.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from tests.spark.histories import NameServer, Row, broker, moment
from tests.spark.topic_days import Stretch

DAYS = 3
NAMES = ("t1", "t2", "t3", "t4")
WEIGHT = {"t3": (3,)}
"""A fifth number of a topic, if it is not 1."""
Topics = dict[str, list[int]]


@dataclass
class Held:
    """A broker's topics in each version."""

    about: Row
    topics: Topics = field(default_factory=dict)
    number: int = 0

    @property
    def version(self) -> str:
        return f"0.7.{self.number}"

    def change(self, rng: random.Random) -> tuple[Topics, list[str], str]:
        """Change some; return new or changed topics, removed ones, and the previous version."""
        before, base = self.topics, self.version
        names = [name for name in NAMES if rng.random() < 0.6]
        self.topics = {
            name: [4, rng.choice((0, 4, 4, 8)), rng.choice((4, 6, 6)), 0, *WEIGHT.get(name, ())] for name in names
        }
        for name in names:
            if name in before and rng.random() < 0.5:
                self.topics[name] = before[name]
        self.number += 1
        changed = {name: queues for name, queues in self.topics.items() if before.get(name) != queues}
        return changed, [name for name in before if name not in self.topics], base


def say_topics(
    server: NameServer,
    at: datetime,
    held: Held,
    *,
    delta: tuple[Topics, list[str], str] | None = None,
    reason: str | None = None,
) -> None:
    """Write a full set or a change, in parts of two topics."""
    changed, removed, base = delta or (held.topics, [], None)
    entries: list[tuple[str, list[int] | None]] = [*changed.items(), *((name, None) for name in removed)]
    parts = max(1, -(-len(entries) // 2))
    for part in range(1, parts + 1):
        chunk = entries[2 * part - 2 : 2 * part]
        detail: dict[str, Any] = {"part": part, "parts": parts, "full": base is None, "base": base}
        detail["topics"] = {name: queues for name, queues in chunk if queues is not None}
        detail["removed"] = [name for name, queues in chunk if queues is None]
        server.say("TOPICS", at, held.about, reason=reason, data_version=held.version, detail=detail)


def worlds(count: int, *, seed: int) -> list[Row]:
    """Rows of this number of independent worlds; about a twentieth of them lost."""
    rows: list[Row] = []
    for number in range(count):
        rng = random.Random(f"{seed}/{number}")
        rows += [row for row in _world(number, rng) if row["event"] != "TOPICS" or rng.random() > 0.05]
    return rows


class _World:
    """A cluster of two broker names, one of them with a slave, and one or two name servers."""

    def __init__(self, number: int, rng: random.Random) -> None:
        self._rng = rng
        cluster = f"w{number}"
        nodes = [f"{cluster}-ns{n}:9876" for n in range(rng.randint(1, 2))]
        self._servers = [NameServer(node=node).start(moment(0)) for node in nodes]
        self.lives = list(self._servers)
        members = (("a", 0), ("a", 1), ("b", 0))
        self._fleet = [Held(broker(name, cluster=cluster, broker_id=broker_id)) for name, broker_id in members]
        self._away: set[int] = set()
        self._known: set[tuple[int, int]] = set()
        """Which name server knows which broker."""

    def begin_day(self, day: int) -> None:
        for place, server in enumerate(self._servers):
            if self._rng.random() < 0.8:
                for n, held in enumerate(self._fleet):
                    if (place, n) in self._known:
                        say_topics(server, moment(0.5, day=day), held, reason="DAY")

    def step(self, at: datetime) -> None:
        """Something happens to one of the brokers, or to a name server."""
        rng = self._rng
        n = rng.randrange(len(self._fleet))
        if n in self._away:
            self._away.discard(n)
            if rng.random() < 0.5:
                self._fleet[n].change(rng)
            for place in range(len(self._servers)):
                self._register(place, n, at)
        elif rng.random() < 0.4 and (0, n) in self._known:
            self._away.add(n)
            self._known -= {(place, n) for place in range(len(self._servers))}
        elif rng.random() < 0.1:
            self._restart(rng.randrange(len(self._servers)), at)
        else:
            delta = self._fleet[n].change(rng)
            for place, server in enumerate(self._servers):
                late = at + timedelta(seconds=rng.choice((0, 0, 3)))
                if (place, n) in self._known:
                    say_topics(server, late, self._fleet[n], delta=delta)
                else:
                    self._register(place, n, late)

    def _register(self, place: int, n: int, at: datetime) -> None:
        say_topics(self._servers[place], at, self._fleet[n])
        self._known.add((place, n))

    def _restart(self, place: int, at: datetime) -> None:
        """A name server restarts with a snapshot."""
        server = NameServer(node=self._servers[place].node, boot_id=f"later{len(self.lives)}").start(at)
        self._servers[place] = server
        self.lives.append(server)
        for n, held in enumerate(self._fleet):
            if (place, n) in self._known:
                say_topics(server, at, held, reason="START")


def _world(number: int, rng: random.Random) -> list[Row]:
    world = _World(number, rng)
    minute, begun = 0, 0
    while (minute := minute + rng.choice((1, 7, 60, 300))) < DAYS * 1_440:
        while begun < minute // 1_440:
            begun += 1
            world.begin_day(begun)
        world.step(moment(60 * minute))
    return [row for server in world.lives for row in server.rows]


def stretches(rows: list[Row], *, seed: int) -> list[Stretch]:
    """When each broker of these rows was up, down and down by plan, with unknown times in between."""
    rng = random.Random(seed)
    about = {(row["cluster"], row["broker_name"], row["broker_id"]): row for row in rows if row.get("broker_name")}
    found = []
    for cluster, name, broker_id in sorted(about):
        minute = rng.randint(0, 100)
        while minute < DAYS * 1_440:
            until = min(minute + rng.choice((5, 300, 1_500)), DAYS * 1_440)
            state = rng.choice(("up", "up", "down", "left"))
            identity = broker(name, cluster=cluster, broker_id=broker_id)
            found.append(Stretch(identity, state, moment(60 * minute), moment(60 * until)))
            minute = until + rng.choice((0, 0, 0, 30))
    return found


def incidents(found: list[Stretch], *, seed: int) -> list[dict[str, Any]]:
    """One of the outages of each cluster in which any began, within its day."""
    rng = random.Random(seed)
    by_cluster: dict[str, list[Stretch]] = {}
    for stretch in found:
        if stretch.state == "down":
            by_cluster.setdefault(stretch.about["cluster"], []).append(stretch)
    recorded = []
    for cluster, downs in by_cluster.items():
        first = rng.choice(downs)
        members = [one for one in downs if abs(one.from_at - first.from_at) <= timedelta(hours=2)]
        members = [one for one in members if one.from_at.date() == first.from_at.date()]
        back = max(one.to_at for one in members)
        recorded.append(
            {
                "dt": first.from_at.date(),
                "incident_id": f"{cluster}-1",
                "cluster": cluster,
                "from_at": min(one.from_at for one in members),
                "back_at": back if back.date() == first.from_at.date() else None,
                "members": [(one.about["broker_name"], one.about["broker_id"], one.from_at) for one in members],
            }
        )
    return recorded
