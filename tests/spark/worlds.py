"""Random small worlds: a cluster, up to three name servers that start, stop and crash, brokers that come and go.

Each name server sees its own truth. It pauses, guards its cluster, gets maintenance windows and loses rows. Times lie
on a coarse grid and gather around midnights, so that ties and carried state are common.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import datetime, timedelta

from tests.spark.histories import NameServer, Row, broker, moment

DAYS = 3
OWN_RUN = frozenset({"NAMESRV_STARTED", "NAMESRV_READY", "NAMESRV_STOPPED", "NAMESRV_PAUSED"})
"""Rows that show when an observer was running."""

_OF_ITSELF = (
    *("NAMESRV_PAUSED", "MAINTENANCE_ON", "MAINTENANCE_ON", "MAINTENANCE_OFF"),
    *("GUARD_ON", "GUARD_ON", "GUARD_OFF", "GUARD_OFF", "REJECTED"),
)
_REPEATS = ("HEARTBEATS", "HEARTBEATS", "LATE_HEARTBEAT", "LATE_HEARTBEAT")
_STAYS = (*_REPEATS, "RESTARTED", "ADDRESS_CHANGED", "ROLE_CHANGED", "REREGISTERED")
_LEAVES = ("EXPIRED", "EXPIRED", "EXPIRED", "PROBE_FAILED", "PROBE_FAILED", "UNREGISTERED", "PROTECTED")
_NEXT = {
    None: ("REGISTERED",),
    "PROVISIONAL": ("REREGISTERED", "REREGISTERED", "EXPIRED", "UNREGISTERED"),
    "UP": (*_STAYS, *_LEAVES, "SUSPECTED", "SUSPECTED"),
    "SUSPECT": (*_REPEATS, *_LEAVES, "RECOVERED", "RECOVERED", "RECOVERED"),
    "OUT": (*_REPEATS, "PROBE_FAILED", "PROTECTED", "EXPIRED", "UNREGISTERED", "RECOVERED", "RECOVERED", "RECOVERED"),
    "PROTECTED": (*_REPEATS, "PROTECTED", "PROBE_FAILED", "EXPIRED", "UNREGISTERED", "RECOVERED", "RECOVERED"),
}
"""Possible events of a replica in each state."""
_TOPICS: Row = {"part": 1, "parts": 1, "full": True, "topics": {}, "removed": []}
_REASONS = {
    "PROBE_FAILED": ("REFUSED", "PROBE"),
    "EXPIRED": ("SILENCE", "STREAM_BROKEN"),
    "UNREGISTERED": ("SHUTDOWN", "ADMIN"),
    "SUSPECTED": ("SILENCE", "STREAM_BROKEN"),
    "PROTECTED": ("SILENCE", "STREAM_BROKEN", "PROBE"),
}


@dataclass
class Replica:
    """A replica as one name server holds it; ``state`` None: not registered, ``is_lost``: it expired and may return."""

    about: Row
    state: str | None = None
    why: str | None = None
    planned: bool = False
    since: datetime | None = None
    is_lost: bool = False


def worlds(
    count: int, *, seed: int, losses: bool = True, observers: int = 3, alive: timedelta | None = None
) -> list[Row]:
    """Rows of this number of independent worlds with at most ``observers`` name servers each.

    ``alive``: they state this interval and write NAMESRV_ALIVE rows in it, but some fall silent for a time.
    """
    rows: list[Row] = []
    for number in range(count):
        rows += _world(number, random.Random(f"{seed}/{number}"), losses=losses, observers=observers, alive=alive)
    return rows


def _world(
    number: int, rng: random.Random, *, losses: bool, observers: int, alive: timedelta | None = None
) -> list[Row]:
    cluster = f"w{number}"
    rows: list[Row] = []
    for observer in range(rng.randint(1, observers)):
        at = moment(60 * rng.randint(0, 600))
        replicas = [Replica(broker(name, cluster=cluster)) for name in ("a", "b")]
        for life in range(rng.randint(1, 3)):
            until = at + timedelta(minutes=rng.choice((5, 200, 1_000, 2_000)))
            if rng.random() < 0.2:
                until = max(until, moment(-120, day=rng.randint(1, DAYS - 1)))
            server = NameServer(node=f"{cluster}-ns{observer}:9876", boot_id=f"b{life}", began_at=at)
            _live(server, at, min(until, moment(-1, day=DAYS)), replicas, rng, alive)
            rows += _arrived(server.rows, rng) if losses else server.rows
            at = until + timedelta(minutes=rng.choice((0, 1, 30)))
            if at >= moment(0, day=DAYS) - timedelta(minutes=10):
                break
    return rows


def _live(
    server: NameServer,
    at: datetime,
    until: datetime,
    replicas: list[Replica],
    rng: random.Random,
    alive: timedelta | None,
) -> None:
    server.say("NAMESRV_STARTED", at, detail={} if alive is None else {"alive_seconds": alive.total_seconds()})
    _restart(server, at, replicas, rng)
    ready_at = at + timedelta(minutes=rng.choice((0, 0, 2)))
    # Rows of a warm-up over midnight are known only from the checkpoint after it.
    ready_at = ready_at if ready_at.date() == at.date() else at
    checkpoints_at = {moment(1, day=day) for day in range(1, DAYS) if at < moment(0, day=day) < until}
    times = [_moment_between(at, until, rng) for _ in range(rng.randint(1, 25))]
    alive_at = set() if alive is None else _alive_between(at, until, alive)
    silent_from = _moment_between(at, until, rng) if alive is not None and rng.random() < 0.5 else until
    silent_to = silent_from + timedelta(hours=rng.randint(1, 30)) if silent_from < until else until
    ready = False
    for moment_ in sorted([*times, *checkpoints_at, *alive_at, until]):
        if moment_ > until:
            break
        if silent_from < moment_ < silent_to and moment_ != until:
            continue
        if not ready and moment_ >= ready_at:
            server.say("NAMESRV_READY", ready_at)
            ready = True
        if moment_ in alive_at:
            server.say("NAMESRV_ALIVE", moment_, detail={"rows_dropped": 0})
        elif moment_ in checkpoints_at:
            _checkpoint(server, moment_, replicas, "DAY", rng)
        elif rng.random() < 0.03:
            _checkpoint(server, moment_, replicas, "DROPPED", rng)
        elif rng.random() < 0.25:
            _record_itself(server, rng.choice(_OF_ITSELF), moment_, replicas, rng)
        else:
            _happen(server, moment_, rng.choice(replicas), rng)
    server.say("NAMESRV_ALIVE", until, detail={"rows_dropped": rng.randint(0, 3)})
    if rng.random() < 0.5:
        server.stop(until)


def _alive_between(at: datetime, until: datetime, alive: timedelta) -> set[datetime]:
    return {at + n * alive for n in range(1, int((until - at) / alive) + 1)}


def _restart(server: NameServer, at: datetime, replicas: list[Replica], rng: random.Random) -> None:
    """With a snapshot, or with nothing."""
    from_snapshot = rng.random() < 0.6
    for replica in replicas:
        replica.is_lost = replica.is_lost and from_snapshot
        if replica.is_lost:
            continue
        known = replica.state is not None and from_snapshot
        replica.state, replica.why, replica.planned, replica.since = "PROVISIONAL" if known else None, None, False, None
    _checkpoint(server, at, replicas, "START", rng)


def _checkpoint(server: NameServer, at: datetime, replicas: list[Replica], reason: str, rng: random.Random) -> None:
    named = [replica for replica in replicas if replica.state is not None or replica.is_lost]
    for i, replica in enumerate(named, 1):
        detail: Row = {"i": i, "n": len(named)}
        if replica.is_lost:
            _record(server, "CHECKPOINT", at, replica, rng, reason=reason, detail=detail | {"gone_reason": replica.why})
        else:
            _record(server, "CHECKPOINT", at, replica, rng, reason=reason, detail=detail)


def _record_itself(server: NameServer, event: str, at: datetime, replicas: list[Replica], rng: random.Random) -> None:
    cluster = {"cluster": replicas[0].about["cluster"]}
    if event == "NAMESRV_PAUSED":
        server.say(event, at, detail={"seconds": rng.choice((30.5, 60, 600, 7_200))})
    elif event == "REJECTED":
        server.say(event, at, replicas[0].about)
    elif event.startswith("GUARD"):
        server.say(event, at, cluster, reason="SHARE")
    else:
        name = rng.choice(({}, {"broker_name": "a"}, {"broker_name": "b"}))
        detail = {"seconds": rng.choice((300, 7_200, 90_000))} if event == "MAINTENANCE_ON" else {}
        server.say(event, at, cluster | name, reason="ADMIN", detail=detail)


def _happen(server: NameServer, at: datetime, replica: Replica, rng: random.Random) -> None:
    """Something that may happen to a replica in its state."""
    before, why = replica.state, replica.why
    event = rng.choice(_NEXT[before])
    if replica.is_lost and rng.random() < 0.4:
        _stay_away(server, at, replica, rng)
        return
    replica.is_lost = event == "EXPIRED"
    reason = rng.choice(_REASONS[event]) if event in _REASONS else None
    if event in {"REGISTERED", "REREGISTERED"}:
        state, reason = rng.choice((("UP", None), ("UP", None), ("OUT", "REFUSED"), ("PROTECTED", "PROBE")))
        _become(replica, state, reason, at, planned=False)
        if before == "PROVISIONAL":
            replica.since, reason = None, "SNAPSHOT"
    elif event in {"EXPIRED", "UNREGISTERED"}:
        _become(replica, "GONE", reason, at, planned=event == "UNREGISTERED" or rng.random() < 0.2)
    elif event == "PROBE_FAILED":
        _become(replica, "OUT", reason, at, planned=rng.random() < 0.2)
    elif event == "PROTECTED":
        _become(replica, "PROTECTED", reason, at, planned=False)
    elif event == "SUSPECTED":
        _become(replica, "SUSPECT", reason, at, planned=False)
    elif event == "RECOVERED":
        _become(replica, "UP", None, at, planned=False)
        reason = "PROBE" if why in {"PROBE", "REFUSED"} else "HEARTBEAT"
    _record(server, event, at, replica, rng, reason=reason)
    if event == "REGISTERED":
        _record(server, "TOPICS", at, replica, rng, reason=None, detail=_TOPICS)
    if replica.state == "GONE":
        replica.state = None


def _stay_away(server: NameServer, at: datetime, replica: Replica, rng: random.Random) -> None:
    """A lost replica is evicted, or its maintenance window ends."""
    replica.since = at
    if replica.planned and rng.random() < 0.7:
        replica.planned = False
        _record(server, "EXPIRED", at, replica, rng, reason=replica.why, detail={"outlived_window": True})
    else:
        replica.planned = True
        _record(server, "UNREGISTERED", at, replica, rng, reason="ADMIN")
        replica.is_lost = False


def _become(replica: Replica, state: str, why: str | None, at: datetime, *, planned: bool) -> None:
    if replica.state != state:
        replica.since = at
    replica.state, replica.why, replica.planned = state, why, planned


def _record(
    server: NameServer,
    event: str,
    at: datetime,
    replica: Replica,
    rng: random.Random,
    *,
    reason: str | None,
    detail: Row | None = None,
) -> None:
    failing = {"probe": "it fails"} if replica.why in {"PROBE", "REFUSED"} else {}
    stated: Row = {
        "reason": reason,
        "state": "GONE" if replica.is_lost else replica.state,
        "since_ms": None if replica.since is None else round((at - replica.since).total_seconds() * 1_000),
        "planned": replica.planned,
        "incarnation": rng.choice(("i1", "i2", None)),
        "interval_ms": rng.choice((1_000, 90_000)),
        "broker_version": rng.choice(("1.0", "1.1", "")),
        "data_version": rng.choice(("0.0.1", "0.0.2")),
        "host": rng.choice(("h1", "h1", "h2")),
        "detail": failing | (detail or {}),
    }
    if event == "ADDRESS_CHANGED":
        stated["broker_addr"] = rng.choice(("x:1", "y:1"))
    if event == "ROLE_CHANGED":
        stated["detail"] |= {"previous_broker_id": rng.choice((1, 2))}
    server.say(event, at, replica.about, **stated)


def _arrived(rows: list[Row], rng: random.Random) -> list[Row]:
    """The rows of a history with losses: in some runs single rows are missing, in others several in a row."""
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
