"""Random small worlds: a cluster, up to three name servers that start, stop and crash, brokers that come and go.

Name servers pause, guard their cluster, are told of maintenance and lose rows. Times lie on a coarse grid and gather
around midnights, so that ties and carried state are common.
"""

from __future__ import annotations

import random
from datetime import datetime, timedelta

from tests.spark.histories import NameServer, Row, broker, moment

DAYS = 3
_EVENTS: tuple[tuple[str, str | None, int], ...] = (
    ("REGISTERED", None, 6),
    ("EXPIRED", "SILENCE", 5),
    ("PROBE_FAILED", None, 3),
    ("UNREGISTERED", "SHUTDOWN", 2),
    ("RECOVERED", "HEARTBEAT", 2),
    ("RECOVERED", "PROBE", 2),
    ("SUSPECTED", "SILENCE", 1),
    ("LATE_HEARTBEAT", None, 2),
    ("RESTARTED", None, 1),
    ("ADDRESS_CHANGED", None, 1),
    ("ROLE_CHANGED", None, 1),
    ("HEARTBEATS", None, 2),
    ("CHECKPOINT", "DAY", 1),
    ("REJECTED", None, 1),
    ("NAMESRV_PAUSED", None, 1),
    ("GUARD_ON", "SHARE", 2),
    ("GUARD_OFF", "SHARE", 2),
    ("MAINTENANCE_ON", "ADMIN", 2),
    ("MAINTENANCE_OFF", "ADMIN", 1),
)
_OF_ITSELF = ("NAMESRV_PAUSED", "GUARD_ON", "GUARD_OFF", "MAINTENANCE_ON", "MAINTENANCE_OFF")


def worlds(count: int, *, seed: int) -> list[Row]:
    """Rows of so many worlds that know nothing of each other."""
    rows: list[Row] = []
    for number in range(count):
        rows += _world(number, random.Random(f"{seed}/{number}"))
    return rows


def _world(number: int, rng: random.Random) -> list[Row]:
    cluster = f"w{number}"
    brokers = [broker(name, cluster=cluster) for name in ("a", "b")]
    rows: list[Row] = []
    for observer in range(rng.randint(1, 3)):
        at = moment(60 * rng.randint(0, 600))
        for life in range(rng.randint(1, 3)):
            until = at + timedelta(minutes=rng.choice((5, 200, 1_000, 2_000)))
            if rng.random() < 0.2:
                until = max(until, moment(-120, day=rng.randint(1, DAYS - 1)))
            server = NameServer(node=f"{cluster}-ns{observer}:9876", boot_id=f"b{life}", began_at=at)
            _live(server, at, min(until, moment(-1, day=DAYS)), brokers, rng)
            rows += _arrived(server.rows, rng)
            at = until + timedelta(minutes=rng.choice((0, 1, 30)))
            if at >= moment(0, day=DAYS) - timedelta(minutes=10):
                break
    return rows


def _live(server: NameServer, at: datetime, until: datetime, brokers: list[Row], rng: random.Random) -> None:
    server.say("NAMESRV_STARTED", at)
    ready_after = rng.choice((0, 0, 2))
    told_whole = [day for day in range(1, DAYS) if at < moment(0, day=day) < until]
    checkpoints, alive = ({moment(second, day=day) for day in told_whole} for second in (1, 181))
    times = [_moment_between(at, until, rng) for _ in range(rng.randint(1, 25))]
    ready = False
    for moment_ in sorted([*times, *(checkpoints | alive)]):
        if moment_ > until:
            break
        if not ready and moment_ >= at + timedelta(minutes=ready_after):
            server.say("NAMESRV_READY", max(at, moment_ - timedelta(minutes=1)))
            ready = True
        if moment_ in checkpoints:
            for about in rng.sample(brokers, rng.randint(1, 2)):
                _tell_of_a_broker(server, "CHECKPOINT", moment_, about, rng, reason="DAY")
            continue
        if moment_ in alive:
            server.say("NAMESRV_ALIVE", moment_, detail={"rows_dropped": 0})
            continue
        event, reason, _ = rng.choices(_EVENTS, weights=[weight for *_, weight in _EVENTS])[0]
        if event in _OF_ITSELF:
            _tell_of_itself(server, event, moment_, brokers, rng)
        else:
            _tell_of_a_broker(server, event, moment_, rng.choice(brokers), rng, reason=reason)
    if not ready:
        server.say("NAMESRV_READY", until)
    server.say("NAMESRV_ALIVE", until, detail={"rows_dropped": rng.randint(0, 3)})
    if rng.random() < 0.5:
        server.stop(until)


def _tell_of_itself(server: NameServer, event: str, at: datetime, brokers: list[Row], rng: random.Random) -> None:
    cluster = {"cluster": brokers[0]["cluster"]}
    if event == "NAMESRV_PAUSED":
        server.say(event, at, detail={"seconds": rng.choice((30.5, 60, 600, 7_200))})
    elif event.startswith("GUARD"):
        server.say(event, at, cluster, reason="SHARE")
    else:
        name = rng.choice(({}, {"broker_name": "a"}, {"broker_name": "b"}))
        detail = {"seconds": rng.choice((300, 7_200, 90_000))} if event == "MAINTENANCE_ON" else {}
        server.say(event, at, cluster | name, reason="ADMIN", detail=detail)


def _tell_of_a_broker(
    server: NameServer, event: str, at: datetime, about: Row, rng: random.Random, *, reason: str | None
) -> None:
    said: Row = {
        "reason": reason,
        "incarnation": rng.choice(("i1", "i2", None)),
        "interval_ms": rng.choice((1_000, 90_000)),
        "broker_version": rng.choice(("1.0", "1.1", "")),
        "data_version": rng.choice(("0.0.1", "0.0.2")),
        "host": rng.choice(("h1", "h1", "h2")),
    }
    if event == "ADDRESS_CHANGED":
        said["broker_addr"] = rng.choice(("x:1", "y:1"))
    if event == "ROLE_CHANGED":
        said["detail"] = {"previous_broker_id": rng.choice((1, 2))}
    if event == "CHECKPOINT":
        said["detail"] = {"state": rng.choice(("UP", "UP", "SUSPECT", "PROVISIONAL", "PROBE_FAILED", "PROTECTED"))}
    server.say(event, at, about, **said)


def _arrived(rows: list[Row], rng: random.Random) -> list[Row]:
    """What a history holds of the rows: of some lives not all, now this one and that, now some in a row."""
    lost = rng.choice((0.0, 0.12, 0.25))
    first = rng.choice((0, 0, rng.randint(1, len(rows))))
    stretch = range(first, first + rng.randint(1, 4)) if first else range(0)
    own_life = {"NAMESRV_STARTED", "NAMESRV_READY", "NAMESRV_STOPPED"}
    arrives = {n for n, row in enumerate(rows) if row["event"] in own_life or rng.random() >= lost}
    return [row for n, row in enumerate(rows) if n in arrives and (row["event"] in own_life or n not in stretch)]


def _moment_between(at: datetime, until: datetime, rng: random.Random) -> datetime:
    minutes = int((until - at).total_seconds() // 60)
    if rng.random() < 0.3:
        # Around the midnights in reach, to the minute.
        near = [moment(60 * offset, day=day) for day in range(1, DAYS) for offset in (-2, -1, 0, 1)]
        within = [candidate for candidate in near if at <= candidate <= until]
        if within:
            return rng.choice(within)
    return at + timedelta(minutes=rng.randint(0, max(0, minutes)))
