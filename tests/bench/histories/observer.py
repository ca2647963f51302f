"""One name server: the events it records, and when, by the rules of `pointsman_namesrv.core.liveness`."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

from pointsman_namesrv.core.events import BrokerFacts, Event, EventKind, TopicsPayload
from pointsman_namesrv.core.liveness import (
    LATE_AFTER_INTERVALS,
    MAX_SWEEP_SECONDS,
    SUSPECT_AFTER_INTERVALS,
    LivenessRules,
)
from pointsman_namesrv.core.model import DataVersion, QueueConfig, Reason
from pointsman_namesrv.core.replica_state import UP, Phase, ReplicaState
from tests.bench.histories.beats import Beats
from tests.bench.histories.faults import FleetEvent, How
from tests.bench.histories.fleet import DAY, Broker, Fleet
from tests.bench.histories.truth import Fact, Process, first_process

BEAT, EXPIRY = 30.0, 120.0
GRACE = LivenessRules().stream_grace
ALIVE_EACH = 60.0
READY_AFTER = 40.0
"""Warm-up: a node without a snapshot waits until every agent had its turn."""


Emit = Callable[[float, Event], None]


class Sign(NamedTuple):
    """An event that a node will record at a moment."""

    at: float
    broker: int
    """-1: of the node itself."""
    kind: EventKind
    reason: Reason | None = None
    last_seen: float = math.nan
    process: Process | None = None
    planned: bool = False


class Observer:
    """A node through the days; it gets the true events of each day."""

    def __init__(self, fleet: Fleet, brokers: list[Broker], *, number: int, emit: Emit) -> None:
        self._fleet = fleet
        self._brokers = brokers
        self._emit = emit
        self._rng = random.Random(f"{fleet.seed}/node-{number}")
        self._beats = Beats(fleet, self._rng)
        self._held: list[BrokerFacts | None] = [None] * len(brokers)
        self._states: list[tuple[ReplicaState, float] | None] = [None] * len(brokers)
        """Each broker's state, and since when."""
        self._since = [0.0] * len(brokers)
        self._counts: Counter[str] = Counter()
        self._pending = self._start()

    def live(self, day: int, facts: list[Fact]) -> None:
        """Record all events of this node on a day (from 0)."""
        began, ended = day * DAY, (day + 1) * DAY
        for happening, process in facts:
            self._pending += self._signs(happening, process)
        self._pending += (Sign(began + minute, -1, EventKind.NAMESRV_ALIVE) for minute in self._minutes())
        # Stable, and never down to fields that do not compare.
        self._pending.sort(key=lambda sign: sign.at)
        if day:
            self._checkpoint(began)
        due = sum(sign.at < ended for sign in self._pending)
        signs, self._pending = iter(self._pending[:due]), self._pending[due:]
        sign = next(signs, None)
        for at, number in self._beats.turns(began):
            while sign is not None and sign.at <= at:
                self._record(sign)
                sign = next(signs, None)
            held = self._held[number]
            if held is not None:
                for event in self._beats.rows(self._in_state(number, at), number, at=at, since=self._since[number]):
                    self._emit(at, event)
        while sign is not None:
            self._record(sign)
            sign = next(signs, None)

    def _start(self) -> list[Sign]:
        self._emit(0.0, Event(kind=EventKind.NAMESRV_STARTED, detail={"version": "0.1.0"}))
        signs = [Sign(READY_AFTER, -1, EventKind.NAMESRV_READY)]
        for number in range(len(self._brokers)):
            at = self._rng.uniform(1, READY_AFTER - 5)
            signs.append(Sign(at, number, EventKind.REGISTERED, process=first_process(number)))
        return signs

    def _minutes(self) -> Iterator[float]:
        first = self._rng.uniform(0, ALIVE_EACH)
        return (first + ALIVE_EACH * number for number in range(round(DAY / ALIVE_EACH)))

    # --- what it observes ---------------------------------------------------------------------------------------

    def _signs(self, happening: FleetEvent, process: Process) -> Iterator[Sign]:
        at, number, how, until = happening[:4]
        back = until + self._rng.uniform(0.01, 1)
        last_seen = at - self._rng.uniform(0, BEAT)
        if how is How.LATE:
            yield Sign(back, number, EventKind.LATE_HEARTBEAT, last_seen=at)
        elif how is How.CRASH:
            yield from self._crashed(at, number, back, last_seen, process)
        elif how is How.SILENCE:
            yield from self._silent(number, back, last_seen, process)
        elif how is How.PROBE:
            failed = at + self._rng.uniform(0.1, BEAT)
            if failed < until:
                yield Sign(failed, number, EventKind.PROBE_FAILED, Reason.PROBE, failed - BEAT)
                yield Sign(back, number, EventKind.RECOVERED, Reason.PROBE, back - BEAT)
        else:
            planned = how is How.MAINTENANCE
            if planned:
                yield Sign(at, number, EventKind.MAINTENANCE_ON, Reason.ADMIN)
                yield Sign(back + 5, number, EventKind.MAINTENANCE_OFF, Reason.ADMIN)
            left = at + self._rng.uniform(0.01, 0.2)
            if planned:
                yield Sign(left, number, EventKind.EXPIRED, Reason.STREAM_BROKEN, last_seen, planned=True)
            else:
                yield Sign(left, number, EventKind.UNREGISTERED, Reason.SHUTDOWN, last_seen, planned=True)
            yield Sign(back, number, EventKind.REGISTERED, process=process)

    def _crashed(self, at: float, number: int, back: float, last_seen: float, process: Process) -> Iterator[Sign]:
        suspected = at + self._sweep()
        expired = at + GRACE + self._sweep()
        if suspected < back:
            yield Sign(suspected, number, EventKind.SUSPECTED, Reason.STREAM_BROKEN, last_seen)
        if back <= expired:
            yield Sign(back, number, EventKind.RESTARTED, None, last_seen, process)
            return
        yield Sign(expired, number, EventKind.EXPIRED, Reason.STREAM_BROKEN, last_seen)
        if not math.isinf(back):
            yield Sign(back, number, EventKind.REGISTERED, process=process)

    def _silent(self, number: int, back: float, last_seen: float, process: Process) -> Iterator[Sign]:
        suspected = last_seen + SUSPECT_AFTER_INTERVALS * BEAT + self._sweep()
        expired = last_seen + EXPIRY + self._sweep()
        if back <= suspected:
            if back - last_seen > LATE_AFTER_INTERVALS * BEAT:
                yield Sign(back, number, EventKind.LATE_HEARTBEAT, None, last_seen)
            return
        yield Sign(suspected, number, EventKind.SUSPECTED, Reason.SILENCE, last_seen)
        if back <= expired:
            yield Sign(back, number, EventKind.RECOVERED, Reason.HEARTBEAT, last_seen)
            return
        yield Sign(expired, number, EventKind.EXPIRED, Reason.SILENCE, last_seen)
        yield Sign(back, number, EventKind.REGISTERED, process=process)

    def _sweep(self) -> float:
        """Until the sweep that notices."""
        return self._rng.uniform(0, MAX_SWEEP_SECONDS)

    # --- what it records ----------------------------------------------------------------------------------------

    def _record(self, sign: Sign) -> None:
        at, number, kind = sign.at, sign.broker, sign.kind
        if number < 0:
            self._say_of_itself(sign)
        elif kind in {EventKind.MAINTENANCE_ON, EventKind.MAINTENANCE_OFF}:
            key = self._brokers[number].identity.group_key
            detail: dict[str, object] = {"note": "disk", "by": "operator"}
            self._emit(at, Event(kind=kind, reason=sign.reason, group=key, detail=detail))
        elif kind in {EventKind.REGISTERED, EventKind.RESTARTED}:
            self._register(sign)
        else:
            facts = self._note(sign)
            interval = max(0.0, at - max(sign.last_seen, self._since[number]))
            self._emit(at, Event(kind=kind, reason=sign.reason, broker=facts, interval=interval))

    def _register(self, sign: Sign) -> None:
        broker, process = self._brokers[sign.broker], sign.process
        assert process is not None
        was_held = self._held[sign.broker] is not None
        version = DataVersion(1, int(self._fleet.began_at.timestamp() * 1000), 1)
        facts = BrokerFacts(
            broker.identity,
            self._rng.getrandbits(64),
            process.incarnation,
            broker.zone,
            broker.host,
            process.version,
            version,
            UP,
            0.0,
        )
        self._held[sign.broker] = facts
        interval = max(0.0, sign.at - max(sign.last_seen, self._since[sign.broker])) if was_held else None
        facts = self._enter(sign.broker, UP, sign.at)
        self._since[sign.broker] = sign.at
        detail = {"topics": len(broker.topics)}
        self._emit(sign.at, Event(kind=sign.kind, broker=facts, interval=interval, detail=detail))
        if not was_held:
            topics: dict[str, QueueConfig] = broker.topics
            self._emit(sign.at, Event(kind=EventKind.TOPICS, broker=facts, topics=TopicsPayload(topics)))

    def _note(self, sign: Sign) -> BrokerFacts:
        match sign.kind:
            case EventKind.EXPIRED | EventKind.UNREGISTERED:
                return self._enter(sign.broker, ReplicaState(Phase.GONE, sign.reason, sign.planned), sign.at)
            case EventKind.PROBE_FAILED:
                return self._enter(sign.broker, ReplicaState(Phase.OUT, sign.reason), sign.at)
            case EventKind.SUSPECTED:
                return self._enter(sign.broker, ReplicaState(Phase.SUSPECT, sign.reason), sign.at)
            case EventKind.LATE_HEARTBEAT:
                self._beats.late(sign.broker, sign.at, sign.at - sign.last_seen)
                return self._in_state(sign.broker, sign.at)
            case _:
                return self._enter(sign.broker, UP, sign.at)

    def _enter(self, number: int, state: ReplicaState, at: float) -> BrokerFacts:
        before = self._states[number]
        if before is not None:
            self._counts[before[0].phase] -= 1
        since = before[1] if before is not None and before[0].phase is state.phase else at
        self._states[number] = (state, since)
        self._counts[state.phase] += 1
        facts = self._in_state(number, at)
        if state.phase is Phase.GONE:
            self._held[number] = self._states[number] = None
            self._counts[Phase.GONE] = 0
        return facts

    def _in_state(self, number: int, at: float) -> BrokerFacts:
        held, known = self._held[number], self._states[number]
        assert held is not None
        assert known is not None
        state, since = known
        return replace(held, state=state, state_for=at - since)

    def _say_of_itself(self, sign: Sign) -> None:
        detail: dict[str, object] = {}
        if sign.kind is EventKind.NAMESRV_ALIVE:
            state = "READY" if sign.at >= READY_AFTER else "WARMING"
            detail = {"state": state, "brokers": dict(+self._counts), "rows_dropped": 0}
        self._emit(sign.at, Event(kind=sign.kind, detail=detail))

    def _checkpoint(self, at: float) -> None:
        """Record the first rows of a day: all brokers that it holds."""
        registered = [number for number, held in enumerate(self._held) if held is not None]
        for i, number in enumerate(registered, 1):
            held = self._in_state(number, at)
            topics = self._brokers[number].topics
            detail: dict[str, object] = {
                "i": i,
                "n": len(registered),
                "brings_topics": held.identity.broker_id == 0,
                "writable": True,
                "topics": len(topics),
                "ha_addr": "",
                "agent_addr": "",
                "heartbeat_interval_ms": round(BEAT * 1000),
                "expiry_ms": round(EXPIRY * 1000),
            }
            seen = self._rng.uniform(0, BEAT)
            row = Event(kind=EventKind.CHECKPOINT, reason=Reason.DAY, broker=held, interval=seen, detail=detail)
            self._emit(at, row)
            payload = TopicsPayload(topics)
            self._emit(at, Event(kind=EventKind.TOPICS, reason=Reason.DAY, broker=held, topics=payload))
