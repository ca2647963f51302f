"""Comparison with RocketMQ's own name server: brokers register with both, and both give equal responses throughout.

Two minutes in the suite. Ten by hand, and what is done is printed:
``SHADOW_MINUTES=10 .venv/bin/pytest tests/real_rocketmq/test_shadow.py --full --capture=no``.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest

from deploy.rocketmq.processes import Broker, RocketMQ, free_port
from tests.kit.waiting import until
from tests.real_rocketmq.conftest import Jars
from tests.real_rocketmq.name_server import NameServer, Pointsman, ask_at

pytestmark = [pytest.mark.rocketmq, pytest.mark.slow, pytest.mark.timeout(0)]

MINUTES = float(os.environ.get("SHADOW_MINUTES", "2"))
SETTLED_WITHIN_SECONDS = 60.0
"""Responses are equal after that; the longest delay is a grace of 10 s, and the sweep."""
TOPICS, CHUNK, SAMPLE = 1_000, 100, 10
"""Of the broker that splits its registration: topics, in one registration, and compared after each step."""
WRITE = 2
GET_ALL_TOPIC_CONFIG, DELETE_TOPIC_IN_BROKER = 21, 215  # of a broker

Instance = tuple[str, int]
Route = dict[str, Any]


@dataclass
class Shadow:
    """Both name servers, brokers ``a`` (with a slave) and ``split`` of 5.3.3, ``b`` of 4.9.7, and what was done."""

    ours: Pointsman
    java: NameServer
    admin: Callable[..., str]
    brokers: dict[Instance, Broker]
    down: set[Instance] = field(default_factory=set)
    sent_perms: dict[str, dict[str, int]] = field(default_factory=dict)
    """Of broker names that were wiped: the permissions they sent, until the next version of all their topics."""
    wiped: set[str] = field(default_factory=set)
    new_topics: dict[str, set[str]] = field(default_factory=dict)
    """By name, the broker names that were there when they were made."""
    made: int = 0

    def until_both(self, condition: Callable[[NameServer], bool], what: str) -> None:
        """Wait until both name servers show something."""
        for server in (self.ours, self.java):
            until(lambda: condition(server), seconds=SETTLED_WITHIN_SECONDS, what=f"{what} at {server.addr}")  # noqa: B023

    def masters(self) -> set[str]:
        return {name for name, broker_id in self.brokers.keys() - self.down if broker_id == 0}

    def is_complete(self, server: NameServer) -> bool:
        """Whether it lists exactly the brokers that run."""
        table = server.ask(106)[1]["brokerAddrTable"]
        listed = {
            (name, int(number)): addr for name, group in table.items() for number, addr in group["brokerAddrs"].items()
        }
        return listed == {each: broker.addr for each, broker in self.brokers.items() if each not in self.down}

    # --- the comparison ---------------------------------------------------------------------------------------

    def own_topics(self) -> set[str]:
        """Read the topics of the master of ``a``, else of its slave."""
        code, table = ask_at(self.brokers["a", 1 if ("a", 0) in self.down else 0].addr, GET_ALL_TOPIC_CONFIG)
        assert code == 0
        return set(table["topicConfigTable"])

    def expected(self, topic: str, route: Route, own_topics: set[str]) -> Route | None:
        """Return this name server's response where RocketMQ's has a route.

        These are all differences; namesrv/README.md, "RocketMQ's wire", states them.
        """
        for data in list(route["queueDatas"]):
            name = data["brokerName"]
            # Code 327 returns what the broker sent; RocketMQ's own sets 6.
            data["perm"] = self.sent_perms.get(name, {}).get(topic, data["perm"])
            # New topics of a wiped broker are read-only, and a slave alone is; RocketMQ's own lets them be written.
            if name in self.wiped or (name, 0) in self.down:
                data["perm"] &= ~WRITE
            # Topics are those of the master, of a slave if it is alone; RocketMQ's own keeps what either of them had.
            if name == "a" and topic not in own_topics:
                route["queueDatas"].remove(data)
                route["brokerDatas"] = [group for group in route["brokerDatas"] if group["brokerName"] != name]
        return route if route["queueDatas"] else None

    def differences(self) -> list[str]:
        """Compare 106, 206, and 105 of all topics but those of ``split``, of which it takes a sample."""
        (_, here), (_, there) = (server.ask(106) for server in (self.ours, self.java))
        if here != there:
            return [f"106: {here} here, {there} there"]
        ours, theirs, own = self.ours.topics(), self.java.topics(), self.own_topics()
        sample = {f"split-{number}" for number in random.sample(range(TOPICS), SAMPLE)}
        found, gone = [], set()
        for topic in sorted(topic for topic in ours | theirs if topic in sample or not topic.startswith("split-")):
            here, there = (route(server, topic) for server in (self.ours, self.java))
            wanted = there and self.expected(topic, there, own)
            if there and not wanted:
                gone.add(topic)
            if here != wanted:
                found.append(f"105 {topic}: {here} here, {wanted} expected")
        if ours != theirs - gone:
            found.append(f"206: {sorted(theirs - gone - ours)} missing here, {sorted(ours - theirs)} missing there")
        return found

    def compare(self, what: str) -> None:
        """Wait until both give equal responses."""
        began = time.monotonic()
        while found := self.differences():
            assert time.monotonic() - began < SETTLED_WITHIN_SECONDS, "\n".join([f"after {what}:", *found[:3]])
            time.sleep(0.5)
        print(f"{what}: equal after {time.monotonic() - began:.1f} s")

    # --- steps ------------------------------------------------------------------------------------------------

    def leave(self, instance: Instance, number: signal.Signals) -> str:
        self.brokers[instance].end(number)
        self.down.add(instance)
        self.until_both(self.is_complete, f"{instance} to leave")
        return f"{number.name} to {instance}"

    def come_back(self, instance: Instance) -> str:
        self.brokers[instance].start_again()
        self.down.remove(instance)
        if instance[1] == 0:
            self.end_wipe(instance[0])
        self.until_both(self.is_complete, f"{instance} to come back")
        return f"start of {instance}"

    def make_topic(self) -> str:
        self.made += 1
        topic = f"New{self.made}"
        assert "success" in self.admin("updateTopic", "-c", "C", "-t", topic, "-r", "2", "-w", "2")
        self.new_topics[topic] = self.masters()
        self.until_both(lambda server: server.perms(topic).keys() == self.masters(), f"new topic {topic}")
        return f"new topic {topic}"

    def delete_topic(self) -> str:
        topic = self.deletable()[0]
        before = {name: self.version(name) for name in self.new_topics[topic]}
        assert "success" in self.admin("deleteTopic", "-c", "C", "-t", topic)
        self.until_both(lambda server: not server.perms(topic), f"{topic} to be deleted")
        # A broker registers its other topics later, and that ends a wipe.
        for name, version in before.items():
            until(lambda: self.version(name) != version, what=f"the next version of {name}")  # noqa: B023
            self.end_wipe(name)
        del self.new_topics[topic]
        return f"deleted topic {topic}"

    def deletable(self) -> list[str]:
        """Return topics whose brokers are all there.

        Another one would come back with its broker at RocketMQ's own, but stay deleted here until its next version.
        """
        return [topic for topic, names in self.new_topics.items() if names <= self.masters()]

    def version(self, name: str) -> Any:
        """Return the version of the topics that a master registered here."""
        rows = [row for row in self.ours.rows(name) if row["broker_id"] == 0 and row["data_version"]]
        return rows[-1]["data_version"]

    def end_wipe(self, name: str) -> None:
        self.wiped.discard(name)
        self.sent_perms.pop(name, None)

    def wipe(self, name: str) -> str:
        sent = {topic: perms[name] for topic in self.ours.topics() if name in (perms := self.ours.perms(topic))}
        self.sent_perms.setdefault(name, sent)
        assert "OK" in self.admin("wipeWritePerm", "-b", name)
        self.wiped.add(name)
        self.until_both(lambda server: not server.perms("TBW102")[name] & WRITE, f"{name} wiped")
        return f"wipe of {name}"

    def give_back(self, name: str) -> str:
        assert "OK" in self.admin("addWritePerm", "-b", name)
        self.wiped.remove(name)
        self.until_both(lambda server: bool(server.perms("TBW102")[name] & WRITE), f"{name} writable")
        return f"permission of {name} given back"


def route(server: NameServer, topic: str) -> Route | None:
    """Return the route of a topic, in one order; None: there is none."""
    code, body = server.ask(105, topic=topic, acceptStandardJsonOnly="true")
    if code == 17:
        return None
    assert code == 0
    for part in ("brokerDatas", "queueDatas"):
        body[part].sort(key=lambda data: data["brokerName"])
    return dict(body)


@pytest.fixture(scope="module")
def shadow(jars: Jars, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shadow]:
    folder = tmp_path_factory.mktemp("shadow")
    with ExitStack() as stack:
        ours, java = Pointsman(folder / "ns"), NameServer(f"127.0.0.1:{free_port()}")
        stack.callback(ours.stop)
        v5, v4 = (RocketMQ(lib, folder / lib.name, f"{ours.addr};{java.addr}") for lib in (jars.v5, jars.v4))
        stack.callback(v5.name_server(java.addr).end)
        for broker_id in (0, 1):
            v5.topics_on_disk("a", broker_id, ["Seeded"])
        v5.topics_on_disk("split", 0, [f"split-{number}" for number in range(TOPICS)])
        brokers = {
            ("a", 0): v5.broker("a"),
            ("a", 1): v5.broker("a", 1),
            ("b", 0): v4.broker("b"),
            ("split", 0): v5.broker("split", enableSplitRegistration="true", splitRegistrationSize=str(CHUNK)),
        }
        for broker in brokers.values():
            stack.callback(broker.end)
        until(java.is_there, what="RocketMQ's name server")
        running = Shadow(ours, java, v5.admin, brokers)
        running.until_both(running.is_complete, "all brokers")
        running.until_both(lambda server: len(server.topics()) > TOPICS, "their topics")
        yield running


def test_the_topics_of_a_split_registration_are_routed(shadow: Shadow) -> None:
    split = {f"split-{number}" for number in range(TOPICS)}
    for server in (shadow.ours, shadow.java):
        assert {topic for topic in server.topics() if topic.startswith("split-")} == split
    shadow.compare("start")
    assert "success" in shadow.admin("deleteTopic", "-c", "C", "-t", "split-1")
    assert ask_at(shadow.brokers["split", 0].addr, DELETE_TOPIC_IN_BROKER, topic="split-2")[0] == 0
    shadow.compare("topics of split deleted")


def test_both_give_equal_responses_while_brokers_come_and_go(shadow: Shadow) -> None:
    seed = random.randrange(10**6)
    print(f"\nseed {seed}")
    chance = random.Random(seed)
    until_at = time.monotonic() + 60 * MINUTES
    steps = each_kind(shadow)
    while True:
        step = next(steps, None) or (one_of(shadow, chance) if time.monotonic() < until_at else None)
        if step is None:
            break
        shadow.compare(step())
    assert time.monotonic() >= until_at


def each_kind(shadow: Shadow) -> Iterator[Callable[[], str]]:
    """Each kind of fault and change once, with the connection of a broker that is killed counting from the start."""
    yield shadow.make_topic
    yield partial(shadow.wipe, "a")
    yield shadow.make_topic
    yield partial(shadow.give_back, "a")
    shadow.ours.until_connections_count()
    yield partial(shadow.leave, ("a", 0), signal.SIGKILL)
    yield shadow.make_topic
    yield partial(shadow.come_back, ("a", 0))
    yield shadow.delete_topic
    yield partial(shadow.wipe, "b")
    yield partial(shadow.leave, ("b", 0), signal.SIGTERM)
    yield partial(shadow.come_back, ("b", 0))
    yield partial(shadow.leave, ("a", 1), signal.SIGKILL)
    yield partial(shadow.come_back, ("a", 1))


def one_of(shadow: Shadow, chance: random.Random) -> Callable[[], str]:
    """Any step that is possible now; a slave or a master stops only while the other runs."""
    number = chance.choice((signal.SIGKILL, signal.SIGTERM))
    name = chance.choice(sorted({"a", "b"} & shadow.masters()) or ["split"])
    steps: list[Callable[[], str]] = [shadow.make_topic]
    if shadow.deletable():
        steps.append(shadow.delete_topic)
    if name != "split":
        steps.append(lambda: shadow.give_back(name) if name in shadow.wiped else shadow.wipe(name))
    a_is_whole = not {("a", 0), ("a", 1)} & shadow.down
    may_leave = [
        each for each in shadow.brokers.keys() - shadow.down if each[0] == "b" or (each[0] == "a" and a_is_whole)
    ]
    steps += [partial(shadow.leave, instance, number) for instance in sorted(may_leave)]
    steps += [partial(shadow.come_back, instance) for instance in sorted(shadow.down)] * 2
    return chance.choice(steps)


def test_split_topics_are_still_there_and_deleted_ones_as_rocketmq_has_them(shadow: Shadow) -> None:
    rows = [row for row in shadow.ours.rows("split") if row["event"] == "TOPICS"]
    assert len({json.dumps(row["data_version"]) for row in rows}) > 3 * TOPICS / CHUNK, "registrations"
    # A topic that is deleted at the broker alone stays, as upstream: a registration only adds.
    split = {f"split-{number}" for number in range(TOPICS)} - {"split-1"}
    for server in (shadow.ours, shadow.java):
        assert {topic for topic in server.topics() if topic.startswith("split-")} == split
    assert shadow.ours.errors() == []
