"""The fleet as all observed name servers list it together."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from pointsman_namesrv.core.model import Position
from pointsman_namesrv.core.replica_state import Phase
from pointsman_namesrv.observe.fleet_view import FleetView, Listed
from pointsman_namesrv.observe.observed_server import Hooks, ObservedServer
from pointsman_namesrv.observe.polled_events import Watch
from pointsman_namesrv.observe.whole_fleet import WholeFleet

A, B = Position("c", "a", 0), Position("c", "b", 0)
AT = datetime(2026, 11, 29, tzinfo=UTC)


class Observed:
    """Two name servers, polled by hand."""

    def __init__(self, *addrs: str) -> None:
        self.servers = {addr: ObservedServer(addr, boot=1, now=0.0) for addr in addrs}
        self.whole = WholeFleet(self.servers, now=0.0)
        self.watches: dict[str, Watch] = {}
        self.known: dict[str, dict[Position, Listed]] = {addr: {} for addr in addrs}
        self.now = 0.0
        for server in self.servers.values():
            server.hooks = Hooks(lambda event, now: self.whole.took(event, now=now, at=self.at))

    @property
    def at(self) -> datetime:
        return AT + timedelta(seconds=self.now)

    def polled(self, addr: str, *positions: Position, times: int = 2) -> None:
        """Respond twice with these brokers: after that one that is not listed has departed."""
        for _ in range(times):
            self.now += 1
            watch = self.watches.setdefault(addr, Watch(self.known[addr]))
            had_begun = watch.is_ready
            view = FleetView({each: Listed(f"{each.broker_name}:1", "") for each in positions})
            events = watch.answered(view, now=self.now)
            if watch.is_ready and not had_begun:
                self.servers[addr].begin(now=self.now)
            self.servers[addr].happened(events, now=self.now)

    def left(self, addr: str) -> None:
        """Stop responding."""
        self.now += 1
        watch = self.watches.pop(addr, None)
        if watch is not None:
            self.known[addr] = watch.known
        self.servers[addr].not_watched("connection refused", now=self.now)
        self.whole.went_away(addr, now=self.now, at=self.at)

    @property
    def up(self) -> set[str]:
        return {replica.identity.broker_name for _, replica in self.whole.brokers.members()}

    def events(self, name: str) -> list[tuple[str, str]]:
        records = self.whole.recent.of(name, cluster="c")
        return [(each.event.kind.value, each.event.broker.state.phase.value) for each in records if each.event.broker]


def test_a_broker_that_one_name_server_ceases_to_list_is_up_until_the_others_agree() -> None:
    fleet = Observed("ns1", "ns2")
    fleet.polled("ns1", A, B)
    fleet.polled("ns2", A, B)
    fleet.polled("ns2", A)
    assert fleet.up == {"a", "b"}
    fleet.polled("ns2", A, B)
    assert fleet.events("b") == [("CHECKPOINT", "UP")], "it was up all the time"
    fleet.polled("ns2", A)
    fleet.polled("ns1", A)
    assert fleet.up == {"a"}
    assert fleet.events("b") == [("CHECKPOINT", "UP"), ("EXPIRED", "GONE")]
    fleet.polled("ns2", A, B)
    assert fleet.up == {"a", "b"}
    assert fleet.events("b")[-1] == ("REGISTERED", "UP")


def test_a_name_server_that_does_not_respond_takes_no_broker_with_it() -> None:
    fleet = Observed("ns1", "ns2")
    fleet.polled("ns1", A, B)
    fleet.polled("ns2", A, B)
    fleet.left("ns1")
    assert fleet.up == {"a", "b"}
    fleet.left("ns2")
    assert fleet.up == {"a", "b"}, "the state of all is unknown, and not that all are lost"
    fleet.polled("ns1", A, B)
    assert fleet.events("a") == [("CHECKPOINT", "UP")], "nothing has departed or returned"


def test_those_that_respond_decide_when_another_name_server_leaves() -> None:
    fleet = Observed("ns1", "ns2")
    fleet.polled("ns1", A, B)
    fleet.polled("ns2", A)
    assert fleet.up == {"a", "b"}
    fleet.left("ns1")
    assert fleet.up == {"a"}
    [record] = [each for each in fleet.whole.recent.of("b", cluster="c") if each.event.kind.value == "EXPIRED"]
    assert record.event.detail["no_longer_watched"] == "ns1"
    fleet.polled("ns1", A, B)
    assert fleet.up == {"a", "b"}


def test_the_penalty_is_the_highest_at_a_name_server() -> None:
    fleet = Observed("ns1", "ns2")
    fleet.polled("ns1", A)
    fleet.polled("ns2", A)
    fleet.polled("ns1")
    fleet.polled("ns1", A)
    for _ in range(4):
        fleet.polled("ns2")
        fleet.polled("ns2", A)
    penalties = fleet.whole.brokers.penalties
    score = penalties.score(A, now=fleet.now)
    assert score is not None
    assert score.outages == 4
    assert [(each.position, each.outages) for each in penalties.top(now=fleet.now)] == [(A, 4)]
    assert penalties.flapping_count(now=fleet.now) == 1
    assert not penalties.top(now=fleet.now, cluster="another")


def test_what_an_earlier_run_saw_depart_is_remembered_unless_it_is_listed() -> None:
    fleet = Observed("ns1", "ns2")
    fleet.polled("ns1", A, B)
    fleet.polled("ns1")
    again = Observed("ns1", "ns2")
    for lost in fleet.servers["ns1"].brokers.departed.all():
        again.servers["ns1"].brokers.absences.restore(lost._replace(at=-100.0), now=0.0)
    again.polled("ns2", A)
    again.whole.read_back(now=again.now)
    assert again.whole.brokers.departed.get(B) is not None
    assert again.whole.brokers.departed.get(A) is None


STEPS = st.lists(
    st.tuples(st.sampled_from(["ns1", "ns2", "ns3"]), st.none() | st.sets(st.sampled_from([A, B]))), max_size=15
)


@given(STEPS)
def test_up_is_what_a_watched_name_server_lists_and_stays_as_it_was_while_none_is(
    steps: list[tuple[str, set[Position] | None]],
) -> None:
    fleet = Observed("ns1", "ns2", "ns3")
    expected: set[str] = set()
    for addr, positions in steps:
        if positions is None:
            fleet.left(addr)
        else:
            fleet.now += 100  # a watch that waits for brokers has waited long enough
            fleet.polled(addr, *positions, times=1)
            fleet.now += 100
            fleet.polled(addr, *positions)
        watched = [server for server in fleet.servers.values() if server.is_watched]
        if watched:
            expected = {replica.identity.broker_name for server in watched for _, replica in server.brokers.members()}
        assert fleet.up == expected
        for record in fleet.whole.recent.latest(1):
            assert record.event.broker is not None
            is_up = record.event.broker.identity.broker_name in fleet.up
            assert is_up == (record.event.broker.state.phase is Phase.UP)
