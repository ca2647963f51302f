"""The answer cache: bounded in bytes, and never an answer that is out of date."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.v1.route_service_pb2 import GetTopicRouteResponse
from pointsman_namesrv.core.liveness import LivenessRules
from pointsman_namesrv.core.model import BrokerIdentity, QueueConfig, Registration
from pointsman_namesrv.core.name_server import NameServer
from pointsman_namesrv.core.node_refusals import TopicNotFound
from pointsman_namesrv.node_metrics import Metrics
from pointsman_namesrv.rpc.route_responses import RouteResponses

TOPICS = [f"t{i}" for i in range(6)]


def answers(core: NameServer, *, max_bytes: int) -> RouteResponses:
    return RouteResponses(core.routes, boot=1, max_bytes=max_bytes, metrics=Metrics())


def register(core: NameServer, topics: dict[str, int], *, name: str = "a") -> None:
    queues = {topic: QueueConfig(count, count, 6) for topic, count in topics.items()}
    core.register(Registration(identity=BrokerIdentity("c1", name, 0, f"{name}:1"), topics=queues), now=0.0)


def ask(cache: RouteResponses, topic: str, zone: str = "") -> list[Any]:
    route = GetTopicRouteResponse.FromString(cache.current(topic, "", zone).route).route
    return [(queues.broker_name, queues.read_queue_nums) for queues in route.queue_datas]


def test_the_cache_stays_within_its_bytes(core: NameServer) -> None:
    register(core, dict.fromkeys((f"t{i}" for i in range(50)), 4))
    cache = answers(core, max_bytes=5_000)
    for _ in range(2):
        for i in range(50):
            assert ask(cache, f"t{i}") == [("a", 4)]
            cache.check_invariants()


def test_without_room_every_answer_is_built_and_right(core: NameServer) -> None:
    register(core, {"t0": 4})
    cache = answers(core, max_bytes=0)
    assert ask(cache, "t0") == ask(cache, "t0") == [("a", 4)]
    cache.check_invariants()


@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 3)))
        | st.tuples(st.just("ask"), st.sampled_from(TOPICS)),
        max_size=40,
    )
)
def test_no_answer_is_ever_out_of_date(steps: list[tuple[str, Any]]) -> None:
    core = NameServer(rules=LivenessRules(), first_generation=1, started_at=0.0)
    cache = answers(core, max_bytes=2_000)
    held: dict[str, dict[str, int]] = {}
    for word, what in steps:
        if word != "ask":
            held[word] = what
            register(core, what, name=word)
            continue
        expected = [(name, held[name][what]) for name in sorted(held) if what in held[name]]
        if expected:
            assert ask(cache, what) == expected
        else:
            with pytest.raises(TopicNotFound):
                ask(cache, what)
        cache.check_invariants()
