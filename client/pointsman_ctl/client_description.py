"""What a client said of a topic (``NameServerClient.describe``), read back from its JSON. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pointsman_client.core.route import BrokerData, BrokerReplica, BrokerState, QueueData, Revision, TopicRoute
from pointsman_client.errors import InvalidInputError


class InvalidDescriptionError(InvalidInputError):
    """A text that is not what ``describe`` returns."""

    code = "INVALID_DESCRIPTION"

    def __init__(self, source: str, problem: str) -> None:
        super().__init__(f"{source} is not what a client's describe(topic) returns, as JSON: {problem}")


@dataclass(frozen=True, slots=True)
class ClientDescription:
    """A client's own view of a topic."""

    topic: str
    route: TopicRoute | None
    """None: it has none."""
    age_seconds: float | None
    source_node: str | None
    """The name server that confirmed the route last."""
    zone: str = ""
    """The zone that the client's routes are limited to."""


def read_description(text: str | bytes, *, source: str) -> ClientDescription:
    """Read one; ``source`` is named in the error. Raises InvalidDescriptionError."""
    try:
        document = json.loads(text)
    except ValueError as error:
        raise InvalidDescriptionError(source, str(error)) from error
    if not isinstance(document, dict):
        raise InvalidDescriptionError(source, "it must be one object")
    try:
        route = document["route"]
        return ClientDescription(
            topic=_typed(document, "topic", str),
            route=None if route is None else _route(route, stale=_typed(document, "stale", bool)),
            age_seconds=document["ageSeconds"] if route is None else float(_typed(document, "ageSeconds", float, int)),
            source_node=document["sourceNode"] if route is None else _typed(document, "sourceNode", str),
            zone=_typed({"zone": ""} | document, "zone", str),
        )
    except KeyError as error:
        raise InvalidDescriptionError(source, f"{error.args[0]} is missing") from error
    except (TypeError, ValueError) as error:
        raise InvalidDescriptionError(source, str(error)) from error


def _route(document: Mapping[str, Any], *, stale: bool) -> TopicRoute:
    revision = _typed(document, "revision", dict)
    return TopicRoute(
        topic=_typed(document, "topic", str),
        revision=Revision(
            int(_typed(revision, "boot", str), 16),
            _typed(revision, "counter", int),
            bytes.fromhex(_typed(revision, "digest", str)),
        ),
        queue_datas=tuple(
            QueueData(
                cluster=_typed(data, "cluster", str),
                broker_name=_typed(data, "brokerName", str),
                read_queue_nums=_typed(data, "readQueueNums", int),
                write_queue_nums=_typed(data, "writeQueueNums", int),
                perm=_typed(data, "perm", int),
                topic_sys_flag=_typed(data, "topicSysFlag", int),
            )
            for data in _objects(document, "queueDatas")
        ),
        broker_datas=tuple(_broker_data(data) for data in _objects(document, "brokerDatas")),
        order_topic_conf=_typed(document, "orderTopicConf", str),
        stale=stale,
    )


def _broker_data(document: Mapping[str, Any]) -> BrokerData:
    return BrokerData(
        cluster=_typed(document, "cluster", str),
        broker_name=_typed(document, "brokerName", str),
        replicas=tuple(
            BrokerReplica(
                broker_id=_typed(replica, "brokerId", int),
                addr=_typed(replica, "brokerAddr", str),
                ha_addr=_typed(replica, "haAddr", str),
                agent_addr=_typed(replica, "agentAddr", str),
                state=BrokerState(_typed(replica, "state", str)),
                filter_servers=tuple(str(addr) for addr in _typed(replica, "filterServers", list)),
            )
            for replica in _objects(document, "replicas")
        ),
        zone=_typed(document, "zoneName", str),
        acting_master=_typed(document, "enableActingMaster", bool),
    )


def _objects(document: Mapping[str, Any], key: str) -> Sequence[Mapping[str, Any]]:
    found: Sequence[Any] = _typed(document, key, list)
    if not all(isinstance(item, dict) for item in found):
        raise TypeError(f"{key} must hold objects")
    return found


def _typed(document: Mapping[str, Any], key: str, *types: type) -> Any:  # noqa: ANN401  # what JSON holds
    if not isinstance(document, Mapping):
        raise TypeError(f"{key} must be in an object")
    value = document[key]
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        raise TypeError(f"{key} must not be {value!r}")
    return value
