"""The steps of a change, in their order, at brokers that the test scripts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import grpc
import pytest

from pointsman.wire.error_details import ErrorDetails
from pointsman_client import RequestRejectedError
from pointsman_ctl.commands import topic_steps
from pointsman_ctl.commands.agent_round import AgentChoice, QueryResult
from pointsman_ctl.commands.topic_steps import Steps, TopicSteps
from pointsman_ctl.output.topic_plan import TopicChange
from pointsman_ctl.servers.found_agents import Agent, FoundAgents
from pointsman_ctl.servers.server_calls import NodeResponse
from pointsman_ctl.servers.topic_brokers import HeldQueue, HeldTopic, TopicGroup, TopicSettings


@dataclass
class Broker:
    """A broker with one topic, and what was done to it."""

    addr: str
    held: HeldTopic
    seen: list[TopicGroup] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    refuses: str = ""
    """The step that is refused."""
    after_last_write: Callable[[], None] = lambda: None

    def fill(self, *messages: int) -> None:
        """Have these numbers of messages in the queues."""
        queues = tuple(HeldQueue(number, 0, count, count) for number, count in enumerate(messages))
        self.held = replace(self.held, queues=queues)

    def _take(self, step: str) -> None:
        if self.refuses and step.startswith(self.refuses):
            raise RequestRejectedError(self.addr, grpc.StatusCode.FAILED_PRECONDITION, "no", ErrorDetails())
        self.done.append(step)

    async def topic(self, _topic: str, _deadline: float) -> HeldTopic:
        return self.held

    async def groups(self, _topic: str, _deadline: float) -> list[TopicGroup]:
        return self.seen

    async def write(self, _topic: str, settings: TopicSettings, _deadline: float, *, by: str) -> bool:
        assert by == "ann"
        self._take(f"write {settings.read_queues}/{settings.write_queues}")
        self.held = replace(self.held, settings=settings)
        if settings.read_queues == settings.write_queues:
            self.after_last_write()
        return True

    async def remove(self, _topic: str, _deadline: float, *, by: str) -> bool:
        assert by == "ann"
        self._take("remove")
        self.held = replace(self.held, settings=None)
        return True

    async def remove_queues(
        self, _topic: str, ends: Mapping[int, int], _deadline: float, *, by: str
    ) -> tuple[list[int], list[int]]:
        assert by == "ann"
        now = {each.queue_id: each.max_offset for each in self.held.queues}
        removed = [queue for queue, end in ends.items() if now[queue] == end]
        self._take(f"remove queues {removed}")
        return removed, [queue for queue in ends if queue not in removed]


class Round:
    """Implements ``AgentRound.query`` for these brokers."""

    def __init__(self, *brokers: Broker) -> None:
        self._brokers = brokers

    async def query(self, question: Callable[[Any, float], Any]) -> QueryResult[Any]:
        responses = []
        for broker in self._brokers:
            try:
                node = NodeResponse(broker.addr, await question(broker, 0.0), None)
            except RequestRejectedError as failure:
                node = NodeResponse(broker.addr, None, failure)
            responses.append((Agent(broker.addr), node))
        return QueryResult(AgentChoice(), FoundAgents(()), (), responses)


@pytest.fixture(autouse=True)
def fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_steps, "topic_broker", lambda server: server)
    monkeypatch.setattr(topic_steps, "POLL_SECONDS", 0.001)


def broker(addr: str = "a:1", *messages: int, read: int = 4, write: int = 4, **facts: Any) -> Broker:
    found = Broker(addr, HeldTopic(TopicSettings(read, write), removes_queues=True, **facts))
    found.fill(*messages)
    return found


def steps_at(*brokers: Broker, to: int | None = 2, **settings: Any) -> TopicSteps:
    options: dict[str, Any] = {
        "by": "ann",
        "wait_seconds": 5.0,
        "quiet_seconds": 0.0,
        "ignores_stuck": False,
        "deletes_messages": False,
        "report": lambda _: None,
    }
    after = None if to is None else TopicSettings(to, to)
    changes = [TopicChange(each.addr, "c1/a", each.held, each.seen, after) for each in brokers]
    asking: Any = Round(*brokers)
    return TopicSteps(asking, "orders", changes, Steps(**(options | settings)))


def notes(nodes: Sequence[NodeResponse[Any]]) -> list[str]:
    return [str(node.response.facts["note"]) if node.response is not None else "failed" for node in nodes]


async def test_growing_takes_one_step() -> None:
    at = broker("a:1", 0, 0, 0, 0)
    await steps_at(at, to=8).write()
    assert at.done == ["write 8/8"]


async def test_queues_that_go_are_readable_until_groups_have_read_them() -> None:
    at = broker("a:1", 0, 0, 3, 0)
    at.seen = [TopicGroup("billing", 1, committed={2: 2})]
    lines: list[str] = []

    def report(line: str) -> None:
        lines.append(line)
        at.seen = [TopicGroup("billing", 1, committed={2: 3})]

    await steps_at(at, report=report).write()
    assert at.done == ["write 4/2", "write 2/2"]
    assert lines == ["waiting for billing at c1/a: has not committed 1 message"]


async def test_a_message_that_comes_after_groups_had_read_a_queue_keeps_it() -> None:
    at = broker("a:1", 0, 0, 3, 0)
    at.seen = [TopicGroup("billing", 1, committed={2: 3})]
    at.after_last_write = lambda: at.fill(0, 0, 4, 0)
    nodes = await steps_at(at, deletes_messages=True).write()
    assert at.done == ["write 4/2", "write 2/2", "remove queues [3]"]
    assert "1 queue kept because of new messages" in notes(nodes)[0]


async def test_without_a_wait_the_queues_stay_readable_and_the_same_steps_finish_it() -> None:
    at = broker("a:1", 0, 0, 0, 0)
    nodes = await steps_at(at, wait_seconds=0).write()
    assert at.done == ["write 4/2"]
    assert "queues 2 to 3 stay readable" in notes(nodes)[0]
    await steps_at(at).write()
    assert at.done == ["write 4/2", "write 2/2"]


async def test_a_wait_that_ends_leaves_them_readable() -> None:
    at = broker("a:1", 0, 0, 3, 0)
    at.seen = [TopicGroup("billing", 1)]
    steps = steps_at(at, wait_seconds=0.01)
    await steps.write()
    assert (at.done, steps.is_timed_out) == (["write 4/2"], True)


async def test_a_stuck_group_is_waited_for_unless_it_is_ignored() -> None:
    at = broker("a:1", 0, 0, 3, 0)
    at.seen = [TopicGroup("screens", 2, is_broadcasting=True)]
    waiting = steps_at(at, wait_seconds=0.01)
    await waiting.write()
    assert waiting.is_timed_out
    await steps_at(at, ignores_stuck=True).write()
    assert at.done[-1] == "write 2/2"


async def test_a_broker_that_fails_stays_behind_and_the_others_continue() -> None:
    good, bad = broker("a:1", 0, 0, 0, 0), broker("b:1", 0, 0, 0, 0)
    bad.refuses = "write"
    nodes = await steps_at(good, bad).write()
    assert good.done == ["write 4/2", "write 2/2"]
    assert [node.failure is None for node in nodes] == [True, False]


async def test_messages_of_a_deleted_topic_go_when_they_are_quiet() -> None:
    at = broker("a:1", 3, 0, read=2, write=2)
    nodes = await steps_at(at, to=None, deletes_messages=True).delete()
    assert at.done == ["remove", "remove queues [0, 1]"]
    assert notes(nodes) == ["2 queues with 3 messages removed"]


async def test_messages_stay_without_the_option() -> None:
    at = broker("a:1", 3, 0, read=2, write=2)
    await steps_at(at, to=None).delete()
    assert at.done == ["remove"]
