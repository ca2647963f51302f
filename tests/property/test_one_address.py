"""Three name servers hear the agents of one address in different orders, and end with the same registrations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pointsman_namesrv.core.broker_responses import BeatStatus
from pointsman_namesrv.core.events import Event, EventKind
from pointsman_namesrv.core.guard import GuardRules
from pointsman_namesrv.core.liveness import LivenessRules
from pointsman_namesrv.core.model import BrokerIdentity, QueueConfig, Reason, Registration
from pointsman_namesrv.core.name_server import NameServer

NODES = 3
START = 1_000.0
INTERVAL = 30.0
TOPICS = {"orders": QueueConfig(4, 4, 6)}
GROUPS = [("home", "b"), ("home", "b-new"), ("away", "b"), ("away", "b-new"), ("west", "b")]
ENDS = st.sampled_from(["hand over", "break", "unregister"])


@dataclass(frozen=True)
class Agent:
    """One agent, with what it sends until it ends, if it does."""

    number: int
    """Of its keep-alive stream."""
    group: tuple[str, str]
    broker_id: int
    incarnation: str
    host: str
    end: str | None
    beats: int

    @property
    def identity(self) -> BrokerIdentity:
        return BrokerIdentity(*self.group, self.broker_id, "10.0.0.1:6379")

    def messages(self) -> list[str]:
        last = {"hand over": ["hand over", "break"], "break": ["break"], "unregister": ["unregister"]}
        return ["register", *["beat"] * self.beats, *last.get(self.end or "", [])]


class Node:
    """One name server, and the agents' view of it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.now = START
        self.generations: dict[Agent, int] = {}
        self.events: list[Event] = []
        self.boots = 0
        self.core = self.boot()

    def boot(self) -> NameServer:
        rules, guard = LivenessRules(), GuardRules(enabled=False)
        # Generations of another boot are others, as random ones are.
        first, self.boots = 1_000 * self.number + 100 * self.boots, self.boots + 1
        # The start is long ago: the end of a stream counts.
        return NameServer(rules=rules, guard_rules=guard, first_generation=first, started_at=START - 200)

    def hear(self, agent: Agent, message: str) -> None:
        match message:
            case "register":
                registered = self.core.register(_registration(agent), now=self.now)
                self.generations[agent] = registered.generation
                self.events += registered.events
            case "beat" | "hand over":
                self.beat(agent, hand_over=message == "hand over")
            case "break":
                self.events += self.core.end_stream(
                    agent.identity, self.generations[agent], stream=agent.number, now=self.now
                )
            case "unregister":
                left = self.core.unregister(
                    agent.identity, self.generations[agent], reason=Reason.SHUTDOWN, now=self.now
                )
                self.events += left.events

    def beat(self, agent: Agent, *, hand_over: bool = False) -> None:
        """Send a heartbeat, and register again if the answer asks for it, as the agent does."""
        answer = self.core.beat(
            agent.identity,
            self.generations[agent],
            data_version=_registration(agent).data_version,
            stream=agent.number,
            hand_over=hand_over,
            now=self.now,
        )
        self.events += answer.events
        if answer.status is BeatStatus.UNKNOWN_BROKER and not hand_over:
            self.hear(agent, "register")
            self.hear(agent, "beat")

    def restart(self) -> None:
        """Come back from a snapshot of this moment."""
        kept = [(replica.registration, replica.generation) for _, replica in self.core.replicas()]
        self.core = self.boot()
        for registration, generation in kept:
            self.core.restore(registration, generation, now=self.now)

    @property
    def registered(self) -> list[BrokerIdentity]:
        self.core.check_invariants()
        return [replica.identity for _, replica in self.core.replicas()]


def _registration(agent: Agent) -> Registration:
    return Registration(
        identity=agent.identity,
        topics=TOPICS,
        heartbeat_interval=INTERVAL,
        incarnation=agent.incarnation,
        host=agent.host,
    )


@st.composite
def worlds(draw: st.DrawFn) -> tuple[list[Agent], list[list[tuple[Agent, str]]]]:
    """Agents of one address, of which some end, and for each node an order of their messages."""
    groups = draw(st.lists(st.sampled_from(GROUPS), min_size=2, max_size=4, unique=True))
    living = draw(st.integers(1, 2))
    agents = [
        Agent(
            number,
            group,
            draw(st.sampled_from([0, 0, 1])),
            draw(st.sampled_from(["", "run 1", "run 2"])),
            draw(st.sampled_from(["", "host 1", "host 2"])),
            None if number < living else draw(ENDS),
            draw(st.integers(1, 2)),
        )
        for number, group in enumerate(groups)
    ]
    return agents, [_order(draw, agents) for _ in range(NODES)]


def _order(draw: st.DrawFn, agents: list[Agent]) -> list[tuple[Agent, str]]:
    """Mix the messages of all agents: each agent's own are in order, because it sends them on one connection."""
    rest: dict[Agent, list[str]] = {agent: agent.messages() for agent in agents}
    turns = draw(st.permutations([agent for agent in agents for _ in rest[agent]]))
    return [(agent, rest[agent].pop(0)) for agent in turns]


def _living(agents: list[Agent]) -> list[BrokerIdentity]:
    return sorted(agent.identity for agent in agents if agent.end is None)


@given(world=worlds(), data=st.data())
def test_name_servers_agree_after_one_heartbeat_whatever_they_heard_first(world: Any, data: st.DataObject) -> None:
    agents, orders = world
    nodes = [Node(number) for number in range(NODES)]
    for node, order in zip(nodes, orders, strict=True):
        for agent, message in order:
            node.hear(agent, message)
        node.now += INTERVAL
        for agent in data.draw(st.permutations([agent for agent in agents if agent.end is None])):
            node.beat(agent)
    assert [node.registered for node in nodes] == [_living(agents)] * NODES
    for node in nodes:
        ended = {
            event.broker.identity for event in node.events if event.kind is EventKind.UNREGISTERED and event.broker
        }
        assert ended.isdisjoint(_living(agents)), "a broker that is heard never ends"


@given(world=worlds(), data=st.data())
def test_name_servers_agree_after_an_expiry_with_silent_agents_and_restarts(world: Any, data: st.DataObject) -> None:
    """An agent may also end without a word, and a name server may restart from its snapshot in between.

    Two that were in the snapshot together and are known to be two brokers are judged by silence alone.
    """
    agents, orders = world
    nodes = [Node(number) for number in range(NODES)]
    for node, order in zip(nodes, orders, strict=True):
        restarts_after = data.draw(st.none() | st.integers(0, len(order)))
        for number, (agent, message) in enumerate(order):
            if number == restarts_after:
                node.restart()
            if message not in {"break", "unregister"} or data.draw(st.booleans()):
                node.hear(agent, message)
        for _ in range(5):
            node.now += INTERVAL
            for agent in data.draw(st.permutations([agent for agent in agents if agent.end is None])):
                node.beat(agent)
            node.events += node.core.sweep(now=node.now)
    assert [node.registered for node in nodes] == [_living(agents)] * NODES
