"""A session against a naive name server: after any loss, delay or restart the server has the agent's state."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.backoff import FullJitterBackoff
from pointsman_agent.core.own_state import OwnState
from pointsman_agent.core.probe_verdict import ProbeStatus, Role, Verdict
from pointsman_agent.core.registration_session import (
    Beat,
    BeatStatus,
    Failure,
    Finish,
    Register,
    RegistrationState,
    Session,
    Unregister,
    Update,
    Wait,
)
from pointsman_agent.core.topic_set import DataVersion, TopicConfig, TopicSet

T = TypeVar("T")

ADDR = "10.0.0.1:10911"
OTHER = "10.0.0.2:10911"
INTERVAL = 30.0
EXPIRY = 120.0


@dataclass
class Held:
    """One registration."""

    addr: str
    generation: int
    version: DataVersion
    topics: dict[str, TopicConfig]
    incarnation: str
    role: Role
    heard_at: float


@dataclass
class NaiveServer:
    """A table of positions and their holders, with only the rules of the wire."""

    table: dict[int, Held] = field(default_factory=dict)
    generations: itertools.count[int] = field(default_factory=lambda: itertools.count(100))
    saved: dict[int, Held] = field(default_factory=dict)

    def register(self, own: OwnState, *, addr: str, now: float) -> int:
        self.table = {i: held for i, held in self.table.items() if held.addr != addr}
        generation = next(self.generations)
        topics = {each.topic: each for each in own.topics.topics}
        verdict = own.verdict
        self.table[own.broker_id] = Held(
            addr, generation, own.data_version, topics, verdict.incarnation, verdict.role, now
        )
        return generation

    def update(self, step: Update, own: OwnState, generation: int) -> str | None:
        """Apply a change; None, or the address that holds the position instead (empty: none, or on another base)."""
        held = self.table.get(own.broker_id)
        if held is None or (held.generation == generation and held.version != step.delta.base):
            return ""
        if held.generation != generation:
            return held.addr
        assert set(step.delta.removed) <= set(held.topics)
        held.topics = {name: each for name, each in held.topics.items() if name not in step.delta.removed}
        held.topics |= {each.topic: each for each in step.delta.changed}
        held.version = own.data_version
        return None

    def beat(
        self, own: OwnState, broker_id: int, generation: int, *, now: float
    ) -> tuple[BeatStatus, str, DataVersion]:
        held = self.table.get(broker_id)
        if held is None:
            return BeatStatus.UNKNOWN_BROKER, "", DataVersion()
        if held.generation != generation or held.addr != ADDR:
            return BeatStatus.STALE_GENERATION, held.addr, DataVersion()
        held.heard_at = now
        status = BeatStatus.OK if held.version == own.data_version else BeatStatus.TOPICS_OUT_OF_DATE
        return status, "", held.version

    def expire(self, *, now: float) -> None:
        self.table = {i: held for i, held in self.table.items() if now - held.heard_at <= EXPIRY}

    def save(self) -> None:
        self.saved = {i: replace(held, topics=dict(held.topics)) for i, held in self.table.items()}

    def restart(self, *, now: float) -> None:
        """Restart from the last snapshot, generations included; each broker gets one expiry for a heartbeat."""
        self.table = {i: replace(held, topics=dict(held.topics), heard_at=now) for i, held in self.saved.items()}


class Fate(Enum):
    """The outcome of a call."""

    ANSWERED = "answered"
    LOST = "the request never arrives"
    UNHEARD = "the answer never arrives"
    LATE = "the caller has timed out when the request arrives"
    TEMPORARY_ERROR = "the server cannot do it now"


class Agent:
    """A session that runs its steps against the server, by its own clock."""

    def __init__(self, server: NaiveServer, own: OwnState) -> None:
        self.server = server
        self.own = own
        self.now = 1_000.0
        self.late: list[Callable[[], object]] = []
        self.session = Session(
            own_addr=ADDR,
            interval=INTERVAL,
            expiry=EXPIRY,
            reconnect=FullJitterBackoff(middle, cap=3.0),
            repeat=FullJitterBackoff(middle, cap=INTERVAL),
            draw=middle,
        )

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.server.expire(now=self.now)

    def turn(self, fate: Fate, *, longest: float) -> None:
        """Do the next step, or let at most ``longest`` seconds pass in a wait."""
        step = self.session.next_step(self.own, now=self.now)
        match step:
            case Wait(seconds):
                assert seconds > 0
                self.pass_time(min(seconds, longest))
            case Register():
                self._register(fate)
            case Update():
                self._update(step, fate)
            case Beat():
                self._beat(fate)
            case Unregister() | Finish():
                raise AssertionError("it was not asked to leave")

    def _register(self, fate: Fate, /) -> None:
        own = self.own
        generation = self._reach(fate, lambda: self.server.register(own, addr=ADDR, now=self.now), seconds=10.0)
        if isinstance(generation, Failure):
            self.session.on_register_failure(generation, now=self.now)
        else:
            self.session.on_registered(generation, own, interval=INTERVAL, expiry=EXPIRY, now=self.now)

    def _update(self, step: Update, fate: Fate, /) -> None:
        own, generation = self.own, self.session.generation
        holder = self._reach(fate, lambda: self.server.update(step, own, generation), seconds=10.0)
        if isinstance(holder, Failure):
            self.session.on_update_failure(holder, now=self.now)
        elif holder is None:
            self.session.on_updated(own, now=self.now)
        else:
            self.session.on_update_failure(Failure.REFUSED, now=self.now, holder_addr=holder)

    def _beat(self, fate: Fate, /) -> None:
        own, broker_id, generation, sent_at = self.own, self.session.broker_id, self.session.generation, self.now
        response = self._reach(fate, lambda: self.server.beat(own, broker_id, generation, now=self.now), seconds=3.0)
        if isinstance(response, Failure):
            self.session.on_beat_failure(response, now=self.now)
        else:
            status, holder, held = response
            self.session.on_beat_response(
                status,
                own,
                holder_addr=holder,
                held_version=held if status is BeatStatus.TOPICS_OUT_OF_DATE else None,
                sent_at=sent_at,
            )

    def _reach(self, fate: Fate, call: Callable[[], T], *, seconds: float) -> T | Failure:
        if fate is Fate.ANSWERED:
            return call()
        if fate is Fate.TEMPORARY_ERROR:
            return Failure.TEMPORARY_ERROR
        if fate is Fate.UNHEARD:
            call()
        if fate is Fate.LATE:
            self.late.append(call)
        self.pass_time(seconds)
        return Failure.UNREACHABLE


def middle(low: float, high: float) -> float:
    return (low + high) / 2


# --- convergence ---------------------------------------------------------------------------------------------------


def own_state(names: str, *, queues: int, incarnation: str, role: Role, epoch: int) -> OwnState:
    topics = TopicSet.from_content([TopicConfig(name, queues, queues, 6) for name in names], state_version=0)
    verdict = Verdict(ProbeStatus.PASSING, "answers", incarnation=incarnation, role=role, master_epoch=epoch)
    return OwnState(1, topics, verdict, replica_id=1)


OWNS = st.builds(
    own_state,
    st.sampled_from(["abcdefgh", "abcdefgi", "abcdefg", "abcdefghi", "b", ""]),
    queues=st.sampled_from([4, 8]),
    incarnation=st.sampled_from(["run-1", "run-1", "run-2"]),
    role=st.sampled_from([Role.SLAVE, Role.SLAVE, Role.MASTER]),
    epoch=st.sampled_from([1, 2]),
)


class FleetEvent(Enum):
    """Events between two steps."""

    NOTHING = "nothing"
    SAVE = "the server writes its snapshot"
    RESTART = "the server restarts from it"
    LOSS = "the server restarts without one"
    RIVAL = "another broker registers our position"
    RIVAL_GONE = "and leaves it again"
    LATE_ARRIVAL = "a request arrives after its caller has timed out"


TURNS = st.lists(
    st.tuples(
        st.sampled_from([Fate.ANSWERED] * 4 + list(Fate)),
        st.sampled_from([FleetEvent.NOTHING] * 8 + list(FleetEvent)),
        st.none() | OWNS,
        st.sampled_from([0.5, 5.0, 30.0, 120.0]),
    ),
    max_size=60,
)


def happen(what: FleetEvent, server: NaiveServer, agent: Agent) -> None:
    match what:
        case FleetEvent.SAVE:
            server.save()
        case FleetEvent.RESTART:
            server.restart(now=agent.now)
        case FleetEvent.LOSS:
            server.table = {}
        case FleetEvent.RIVAL:
            server.register(agent.own, addr=OTHER, now=agent.now)
        case FleetEvent.RIVAL_GONE:
            server.table = {i: held for i, held in server.table.items() if held.addr != OTHER}
        case FleetEvent.LATE_ARRIVAL if agent.late:
            agent.late.pop()()
        case _:
            pass


@given(own=OWNS, turns=TURNS)
def test_when_faults_end_the_server_has_exactly_the_agents_state(
    own: OwnState, turns: list[tuple[Fate, FleetEvent, OwnState | None, float]]
) -> None:
    server = NaiveServer()
    agent = Agent(server, own)
    for fate, what, change, longest in turns:
        happen(what, server, agent)
        if change is not None:
            agent.own = change
        agent.turn(fate, longest=longest)

    while agent.late:
        agent.late.pop()()
    ends_at = agent.now + 2 * EXPIRY + INTERVAL
    while agent.now < ends_at:
        agent.turn(Fate.ANSWERED, longest=INTERVAL)

    own = agent.own
    (held,) = server.table.values()
    assert set(server.table) == {own.broker_id}
    assert (held.addr, held.generation) == (ADDR, agent.session.generation)
    assert held.topics == {each.topic: each for each in own.topics.topics}
    assert (held.version, held.incarnation, held.role) == (
        own.data_version,
        own.verdict.incarnation,
        own.verdict.role,
    )
    assert agent.session.state is RegistrationState.REGISTERED


@given(own=OWNS, changes=st.lists(OWNS, min_size=1, max_size=20))
def test_without_faults_every_change_is_one_call_and_nothing_is_sent_twice(
    own: OwnState, changes: list[OwnState]
) -> None:
    server = NaiveServer()
    agent = Agent(server, own)
    for change in [own, *changes]:
        before = agent.own.registration_key
        agent.own = change
        sent = 0
        for _ in range(4):
            sent += isinstance(agent.session.next_step(agent.own, now=agent.now), Register | Update)
            agent.turn(Fate.ANSWERED, longest=INTERVAL)
        assert sent == (change.registration_key != before or change is own)


# --- storms --------------------------------------------------------------------------------------------------------

FIVE, SIX = (own_state(names, queues=4, incarnation="run-1", role=Role.SLAVE, epoch=1) for names in ("abcde", "abcdef"))
ANSWERS = [*Failure, *((status, "") for status in BeatStatus), (BeatStatus.STALE_GENERATION, ADDR)]


class Stubborn(Agent):
    """Its server always responds in the same way to each kind of call."""

    def __init__(
        self, registering: Failure | None, updating: Failure | None, beating: Failure | tuple[BeatStatus, str]
    ) -> None:
        super().__init__(NaiveServer(), FIVE)
        self.calls: list[float] = []
        self.whole: list[float] = []
        self._answers = registering, updating, beating

    def _register(self, _: Fate) -> None:
        self.calls.append(self.now)
        self.whole.append(self.now)
        failure = self._answers[0]
        if failure is not None:
            self.session.on_register_failure(failure, now=self.now, holder_addr=OTHER)
        else:
            self.session.on_registered(7, self.own, interval=INTERVAL, expiry=EXPIRY, now=self.now)

    def _update(self, _: Update, fate: Fate) -> None:  # noqa: ARG002  # the one way, whatever it is
        self.calls.append(self.now)
        failure = self._answers[1]
        if failure is not None:
            self.session.on_update_failure(failure, now=self.now)
        else:
            self.session.on_updated(self.own, now=self.now)

    def _beat(self, _: Fate) -> None:
        self.calls.append(self.now)
        answer = self._answers[2]
        if isinstance(answer, Failure):
            self.session.on_beat_failure(answer, now=self.now)
        else:
            status, holder = answer
            self.session.on_beat_response(
                status, self.own, holder_addr=holder, held_version=SIX.data_version, sent_at=self.now
            )


def most_in_a_minute(moments: list[float]) -> int:
    return max((sum(start <= each < start + 60 for each in moments) for start in moments), default=0)


@pytest.mark.parametrize("changes_each", [10.0, 1e9], ids=["topics-change", "topics-stay"])
def test_no_repeated_response_causes_a_storm_of_calls(changes_each: float, full: bool) -> None:
    """Waits here are half as long as they may be, as they are on average."""
    for registering, updating, beating in itertools.product([None, *Failure], [None, *Failure], ANSWERS):
        agent = Stubborn(registering, updating, beating)
        until_change = agent.now + changes_each
        while agent.now < 1_000 + (900 if full else 400):
            agent.turn(Fate.ANSWERED, longest=5.0)
            if agent.now >= until_change:
                agent.own = SIX if agent.own is FIVE else FIVE
                until_change += changes_each
        settled = [each for each in agent.calls if each > 1_120]
        whole = [each for each in agent.whole if each > 1_120]
        which = (registering, updating, beating)
        assert most_in_a_minute(settled) <= 45, which
        assert most_in_a_minute(whole) <= 8, which
