"""A client's routes against those of name servers: reading a description, and what counts as a difference."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pointsman.v1.route_service_pb2 import TopicRoute
from pointsman_client.core.cached_routes import CachedRoute
from pointsman_client.description import describe_route
from pointsman_client.pointsman_grpc.codec import to_topic_route
from pointsman_ctl.commands.diff_command import (
    ClientDescription,
    InvalidDescriptionError,
    NodeRoute,
    differences,
    read_description,
)
from tests.kit.name_server.scripted_routes import broker_data, topic_route, with_digest


def route(*, write: int = 4, counter: int = 1) -> TopicRoute:
    return with_digest(topic_route(groups=[broker_data()], write=write), counter=counter)


def client(known: TopicRoute | None) -> ClientDescription:
    return ClientDescription("orders", known, False, 1.0, "10.0.0.1:9876")


def test_the_same_digest_is_equal_at_any_revision() -> None:
    assert differences(client(route()), NodeRoute(route(counter=9))) == []


def test_differences_at_the_node_are_listed_line_by_line() -> None:
    assert differences(client(route()), NodeRoute(route(write=2))) == [
        "~ queues of DefaultCluster/broker-a: write queues 4 -> 2"
    ]


def test_a_digest_that_differs_alone_is_a_difference() -> None:
    message = topic_route(groups=[broker_data()])
    message.revision.digest = b"another"
    assert differences(client(route()), NodeRoute(message)) == [
        "differs in fields unknown to this version of pointsmanctl"
    ]


def test_a_route_that_only_one_side_has_is_a_difference_and_one_that_none_has_is_none() -> None:
    assert differences(client(None), NodeRoute(route())) == ["+ the client has no route"]
    assert differences(client(route()), NodeRoute(None)) == ["- the node has no route"]
    assert differences(client(None), NodeRoute(None)) == []


def described() -> dict[str, Any]:
    whole: dict[str, Any] = json.loads(
        json.dumps(describe_route("orders", CachedRoute(to_topic_route(route()), 5.0, "a:1"), now=7.0))
    )
    return whole


def test_a_description_is_read_as_it_was_written() -> None:
    read = read_description(json.dumps(described()), source="FILE")

    assert read == ClientDescription("orders", route(), False, 2.0, "a:1")


def broken(path: list[str | int], value: object) -> str:
    whole = described()
    inner: Any = whole
    for key in path[:-1]:
        inner = inner[key]
    if value is None:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return json.dumps(whole)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "Expecting value"),
        ("[]", "must be a JSON object"),
        ("{}", "route is missing"),
        (broken(["topic"], None), "topic is missing"),
        (broken(["route"], "x"), "indices must be integers"),
        (broken(["route", "revision", "boot"], 7), "can't convert non-string"),
        (broken(["route", "revision", "digest"], "xyz"), "hex"),
        (broken(["route", "queueDatas"], [1]), "queueDatas"),
        (broken(["route", "queueDatas", 0, "perm"], True), "perm"),
        (broken(["route", "brokerDatas", 0, "replicas", 0, "state"], "GREEN"), "GREEN"),
        (broken(["ageSeconds"], "old"), "ageSeconds must not be 'old'"),
    ],
)
def test_text_that_is_not_a_description_is_refused_with_the_problem(text: str, problem: str) -> None:
    with pytest.raises(InvalidDescriptionError, match=problem):
        read_description(text, source="FILE")
