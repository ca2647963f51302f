"""One uninterrupted watch of a name server: from its responses to history events. Pure; time is an argument.

A watch lasts as long as one connection. After a reconnect the name server may still be filling its table, which starts
empty. So the next watch begins only when every broker known before is listed again, or after SETTLE_SECONDS. Between
two watches the state of the fleet is unknown, which NAMESRV_STOPPED marks in the history.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pointsman_namesrv.core.events import BrokerFacts, Event, EventKind
from pointsman_namesrv.core.model import BrokerIdentity, DataVersion, Position, Reason
from pointsman_namesrv.core.replica_state import UP, Phase, ReplicaState
from pointsman_namesrv.observe.fleet_view import FleetView, Listed

SOURCE = "observe"
"""``detail.source`` of every row: heartbeats, probes, processes and versions are unknown."""
SETTLE_SECONDS = 90.0
"""Brokers register with a restarted name server within their period, 10 to 60 s (``registerNameServerPeriod``)."""
PAUSED_AFTER_SECONDS = 5.0
"""Longest time between two responses on one connection; a longer one is a pause of the observer or the name server."""


class _Replica:
    __slots__ = ("listed", "since")

    def __init__(self, listed: Listed, since: float | None) -> None:
        self.listed = listed
        self.since = since
        """When it was first listed; None: before the watch began."""


class Watch:
    """The state seen on one connection. ``before``: what the last watch of that name server knew at its end."""

    def __init__(self, before: Mapping[Position, Listed], *, poll_seconds: float = 1.0) -> None:
        self._before = dict(before)
        self.polled_every(poll_seconds)
        self._replicas: dict[Position, _Replica] = {}
        self._missing: frozenset[Position] = frozenset()
        """Listed before, but not in the last response."""
        self._view: FleetView | None = None
        self._first_at: float | None = None
        self._last_at = 0.0
        self.is_ready = False
        """Whether the watch has begun; nothing is recorded before."""

    def polled_every(self, seconds: float) -> None:
        """Expect responses at this interval from now on."""
        self._paused_after = max(PAUSED_AFTER_SECONDS, 3 * seconds)

    @property
    def known(self) -> dict[Position, Listed]:
        """Return what the next watch has to expect."""
        if not self.is_ready:
            return dict(self._before)
        return {position: replica.listed for position, replica in self._replicas.items()}

    @property
    def expected(self) -> int:
        """Return the number of brokers of the last watch that are not listed yet; 0 once the watch has begun."""
        return 0 if self.is_ready else len(self._missing)

    def answered(self, view: FleetView, *, now: float) -> list[Event]:
        """Record a response to 106."""
        events = list(self._took(view, now) if self.is_ready else self._began(view, now))
        self._last_at = now
        return events

    def checkpoint(self, reason: Reason, *, now: float) -> list[Event]:
        """Return a row for each broker in its current state."""
        return [
            Event(
                kind=EventKind.CHECKPOINT,
                reason=reason,
                broker=self._facts(position, replica.listed, UP, replica.since, now),
                detail={"source": SOURCE, "i": number, "n": len(self._replicas)},
            )
            for number, (position, replica) in enumerate(sorted(self._replicas.items()), 1)
        ]

    def facts(self, position: Position, *, data_version: DataVersion, now: float) -> BrokerFacts | None:
        """Return a broker of the watch with this version of its topics; None: it is not listed."""
        replica = self._replicas.get(position)
        if replica is None:
            return None
        return self._facts(position, replica.listed, UP, replica.since, now, data_version)

    def was_listed(self, position: Position, *, since: float) -> bool:
        """Return whether every response since then listed a broker."""
        replica = self._replicas.get(position)
        return replica is not None and position not in self._missing and (replica.since or since) <= since

    def topic_holders(self) -> Iterator[Position]:
        """Return for each broker name the replica whose topics a route shows: the lowest id."""
        lowest: dict[tuple[str, str], Position] = {}
        for position in sorted(self._replicas):
            lowest.setdefault(position[:2], position)
        yield from lowest.values()

    def ended(self, problem: str) -> list[Event]:
        """Return the last row; none if nothing was recorded."""
        if not self.is_ready:
            return []
        detail = {"source": SOURCE} | ({"problem": problem} if problem else {})
        return [Event(kind=EventKind.NAMESRV_STOPPED, detail=detail)]

    def _began(self, view: FleetView, now: float) -> Iterator[Event]:
        self._first_at = now if self._first_at is None else self._first_at
        self._missing = frozenset(self._before.keys() - view.brokers.keys())
        if self._missing and now - self._first_at < SETTLE_SECONDS:
            return
        self.is_ready = True
        gone, self._missing, self._view = self._missing, frozenset[Position](), view
        self._replicas = {position: _Replica(listed, None) for position, listed in view.brokers.items()}
        yield Event(kind=EventKind.NAMESRV_READY, detail={"source": SOURCE})
        yield from self.checkpoint(Reason.START, now=now)
        for position in sorted(gone):
            # It left while the name server could not be polled, at an unknown time.
            yield self._left(position, self._before[position], now, between_watches=True)

    def _took(self, view: FleetView, now: float) -> Iterator[Event]:
        if now - self._last_at > self._paused_after:
            detail: dict[str, object] = {"source": SOURCE, "seconds": round(now - self._last_at, 3)}
            yield Event(kind=EventKind.NAMESRV_PAUSED, detail=detail)
        if view is self._view and not self._missing:
            return
        self._view = view
        missing = frozenset(self._replicas.keys() - view.brokers.keys())
        yield from self._appeared(view, missing, now)
        # A name server that shuts down closes its brokers' connections, and may list fewer just before it closes this
        # one. So a broker has departed when a second response on the same connection does not list it.
        for position in sorted(missing & self._missing & self._replicas.keys()):
            yield self._left(position, self._replicas.pop(position).listed, now)
        self._missing = missing & self._replicas.keys()

    def _appeared(self, view: FleetView, missing: frozenset[Position], now: float) -> Iterator[Event]:
        held = {(position, replica.listed) for position, replica in self._replicas.items()}
        vacated = {(*position[:2], self._replicas[position].listed.addr): position for position in missing}
        for position, listed in sorted(view.brokers.items() - held):
            replica = self._replicas.get(position)
            before = vacated.get((*position[:2], listed.addr))
            detail: dict[str, object] = {"source": SOURCE}
            if replica is not None:
                is_moved = replica.listed.addr != listed.addr
                kind = EventKind.ADDRESS_CHANGED if is_moved else EventKind.REREGISTERED
                detail |= {"previous_addr": replica.listed.addr} if is_moved else {}
                replica.listed = listed
            else:
                kind = EventKind.REGISTERED
                if before is not None:
                    kind = EventKind.ROLE_CHANGED
                    detail["previous_broker_id"] = before.broker_id
                    yield self._left(before, self._replicas.pop(before).listed, now, superseded=True)
                replica = self._replicas[position] = _Replica(listed, now)
            yield Event(kind=kind, broker=self._facts(position, listed, UP, replica.since, now), detail=detail)

    def _left(
        self,
        position: Position,
        listed: Listed,
        now: float,
        *,
        superseded: bool = False,
        between_watches: bool = False,
    ) -> Event:
        reason = Reason.SUPERSEDED if superseded else None
        state = ReplicaState(Phase.GONE, reason, planned=superseded)
        detail: dict[str, object] = {"source": SOURCE} | ({"between_watches": True} if between_watches else {})
        return Event(
            kind=EventKind.UNREGISTERED if superseded else EventKind.EXPIRED,
            reason=reason,
            broker=self._facts(position, listed, state, now, now),
            detail=detail,
        )

    @staticmethod
    def _facts(
        position: Position,
        listed: Listed,
        state: ReplicaState,
        since: float | None,
        now: float,
        data_version: DataVersion | None = None,
    ) -> BrokerFacts:
        return BrokerFacts(
            identity=BrokerIdentity(*position, listed.addr),
            generation=None,
            incarnation=None,
            zone=listed.zone,
            host="",
            broker_version="",
            data_version=data_version,
            state=state,
            state_for=None if since is None else now - since,
        )
