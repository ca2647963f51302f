"""What a start reads back equals what a name server that never stopped knows."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from pointsman_namesrv.core.flap_penalties import Penalties, ReplayedPenalties
from pointsman_namesrv.core.model import Evidence, Health, Position, ProbeVerdict, Reason
from pointsman_namesrv.core.name_server import NameServer
from pointsman_namesrv.core.replica_state import ROUTED
from tests.kit.history.recorded_fleet import NAMES, RecordedFleet, restarted

Step = Callable[[RecordedFleet], None]
NAME = st.sampled_from(NAMES)
HEALTH = st.sampled_from(
    [
        Health(ProbeVerdict.PASSING, ever_passed=True),
        Health(ProbeVerdict.FAILING, "timeout", Evidence.WEAK, ever_passed=True),
        Health(ProbeVerdict.FAILING, "LOADING", Evidence.STRONG, ever_passed=True),
    ]
)
LEAVE = st.sampled_from([Reason.SHUTDOWN, Reason.DRAIN])
SECONDS = st.sampled_from([0.5, 10.0, 50.0, 76.0, 130.0, 400.0, 1_800.0])
WINDOW = st.sampled_from([None, 30.0, 300.0, 3_600.0])


def _register(name: str, incarnation: str) -> Step:
    return lambda fleet: fleet.register(name, incarnation=incarnation)


def _rename(name: str, to: str) -> Step:
    return lambda fleet: fleet.register(to, addr=name)


def _beat(name: str, health: Health) -> Step:
    return lambda fleet: fleet.beat(name, health)


def _leave(name: str, reason: Reason) -> Step:
    return lambda fleet: fleet.leave(name, reason)


def _maintain(name: str, seconds: float | None) -> Step:
    return lambda fleet: fleet.maintain(name, seconds)


def _wait(seconds: float) -> Step:
    return lambda fleet: fleet.wait(seconds)


BROKERS = (
    st.builds(_register, NAME, st.sampled_from(["", "r1", "r2"])),
    st.builds(_rename, NAME, NAME),
    st.builds(_beat, NAME, HEALTH),
    st.builds(_beat, NAME, HEALTH),
    st.builds(_leave, NAME, LEAVE),
    st.builds(_maintain, NAME, WINDOW),
    st.builds(_wait, SECONDS),
    st.builds(_wait, SECONDS),
)
STEPS = st.lists(st.one_of(*BROKERS), max_size=40)


def _restart(fleet: RecordedFleet) -> None:
    fleet.restart()


@given(steps=st.lists(st.one_of(*BROKERS, st.just(_restart)), max_size=60), since=STEPS)
def test_penalties_equal_those_of_a_run_that_never_ended(steps: list[Step], since: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        fleet = RecordedFleet(Path(folder))
        for step in steps:
            step(fleet)
        earlier, known = fleet.earlier(), len(fleet.events)
        for step in since:
            step(fleet)
    lasting, replayed = Penalties(), ReplayedPenalties()
    for event, at, in_window in fleet.events:
        lasting.record(event, now=at, in_window=in_window)
    for each in reversed(earlier):
        replayed.add_earlier(each.event, at=each.at)
    for event, at, in_window in fleet.events[known:]:
        replayed.penalties.record(event, now=at, in_window=in_window)
    for name in NAMES:
        position = Position("c1", name, 0)
        one, other = lasting.score(position, now=fleet.now), replayed.penalties.score(position, now=fleet.now)
        assert (one is None) == (other is None)
        if one is not None and other is not None:
            assert abs(one.penalty - other.penalty) < 1e-6 * max(1.0, one.penalty)
            assert (one.flapping, one.outages, one.last_event) == (other.flapping, other.outages, other.last_event)
            assert abs(one.last_event_at - other.last_event_at) < 1e-6


def _states(core: NameServer) -> dict[Position, str]:
    """Of each position whether clients are sent to it, and why not."""
    states = {
        replica.identity.position: "routed" if replica.state.phase in ROUTED else f"OUT {replica.state.reason}"
        for _, replica in core.members()
    }
    return states | {each.registration.identity.position: f"GONE {each.reason}" for each in core.departed.all()}


@given(before=STEPS, after=st.lists(st.one_of(*BROKERS), max_size=15))
def test_states_after_a_restart_are_those_at_the_kill_although_the_snapshot_is_older(
    before: list[Step], after: list[Step]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        fleet = RecordedFleet(Path(folder))
        for step in before:
            step(fleet)
        snapshot = fleet.snapshot()
        for step in after:
            step(fleet)
        core, last = restarted(fleet, snapshot)
    core.check_invariants()
    expected, found = _states(fleet.core), _states(core)
    generations = {replica.identity.position: replica.generation for _, replica in fleet.core.members()}
    restored = {registration.identity.position: generation for registration, generation in snapshot.brokers}
    for position, state in expected.items():
        if position in generations and restored.get(position) != generations[position]:
            continue  # it registered after the snapshot: its agent registers again
        assert found.pop(position) == state, position
    unknown = {position for position in found if position not in expected}
    assert all(position in restored and position not in last for position in unknown), unknown
    for lost_one in fleet.core.departed.all():
        again = core.departed.get(lost_one.registration.identity.position)
        assert again is not None
        assert abs(again.at - lost_one.at) < 0.01
        assert again.planned == lost_one.planned
