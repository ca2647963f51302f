"""Answers of several name servers to one question, side by side."""

from __future__ import annotations

import json
import random
from datetime import timedelta

from pointsman.history.past_route import RouteResult, merged, route_of
from tests.spark.histories import NameServer, broker, moment
from tests.spark.recorded_core import TOPICS, RecordedCore
from tests.spark.topic_history_rows import story_of

WORLDS = 40


def test_answers_of_single_name_servers_merge_to_the_answer_of_their_common_history() -> None:
    topic, disagreed = TOPICS[0], 0
    for seed in range(WORLDS):
        rng = random.Random(seed)
        nodes = []
        for node in ("ns1:9876", "ns2:9876", "ns3:9876"):
            core = RecordedCore(random.Random(rng.random()))
            core.live(30)
            nodes.append([row | {"node": node} for row in core.rows])
        at = moment(1_000.0) + timedelta(seconds=rng.random() * 400)
        each = [route_of(story_of(rows, topic, at=at), topic, at, cluster=None) for rows in nodes]
        # As they arrive from a name server.
        answers = [RouteResult.from_dict(json.loads(json.dumps(one.as_dict()))) for one in each]
        expected = route_of(story_of([row for rows in nodes for row in rows], topic, at=at), topic, at, cluster=None)

        found = merged(answers).as_dict()

        assert found == expected.as_dict(), seed
        disagreed += expected.exit_code
    assert disagreed > WORLDS / 4


def test_a_name_server_in_warm_up_counts_only_if_no_other_was_ready() -> None:
    ready, young = NameServer().start(moment(0)), NameServer(node="ns2:9876", began_at=moment(5))
    ready.say("REGISTERED", moment(1), broker("a"))
    young.say("NAMESRV_STARTED", moment(5))
    young.say("NAMESRV_READY", moment(30))
    answers = [
        route_of(story_of(one.rows, "orders", at=moment(10)), "orders", moment(10), cluster=None)
        for one in (ready, young)
    ]

    assert [node.node for node in merged(answers).nodes] == ["ns1:9876"]
    assert [node.node for node in merged(answers[1:]).nodes] == ["ns2:9876"]
