"""Documents of ``/v1/past``: the past of this name server, as ``pointsmanctl --output json`` shows it.

Parameters are checked and documents are built by the HTTP threads; the event loop passes question and answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pointsman.v1 import admin_service_pb2 as wire
from pointsman.wire.broker_explanation import outage_document
from pointsman.wire.json_document import Document, to_document
from pointsman.wire.operator_texts import moment_text
from pointsman.wire.outage_timeline import timeline_of
from pointsman.wire.refusals import FieldViolation, InvalidRequest
from pointsman_namesrv.rpc.broker_codec import timestamp
from pointsman_namesrv.rpc.past_queries import past_broker, past_change, past_event
from pointsman_namesrv.web.fleet_documents import limit_of
from pointsman_namesrv.web.page_data import NodeFacts
from pointsman_namesrv.web.page_links import names_at
from pointsman_namesrv.web.page_query import AT, PageQuery, parameters_named
from pointsman_namesrv.web.past_source import PastSource


@dataclass(frozen=True, slots=True)
class PastPath:
    """One path; a word in capitals stands for a name."""

    listed: str
    method: str
    """The gRPC method of the same content."""
    parameters: tuple[str, ...]
    document: Callable[[PastSource, str, PageQuery], Document]
    """Takes the name in the path and the parameters. Blocks; raises Refusal."""


def _route(source: PastSource, topic: str, query: PageQuery) -> Document:
    request = wire.GetPastRouteRequest(topic=topic, cluster=query.text("cluster"), at=timestamp(_at(query)))
    node, found = source.answer(source.questions.route(request))
    return {**found, "nodes": [_node(node)]}


def _broker(source: PastSource, broker_name: str, query: PageQuery) -> Document:
    at, limit = _at(query), query.text("limit")
    request = wire.GetPastBrokerRequest(broker_name=broker_name, cluster=query.text("cluster"), at=timestamp(at))
    if limit:
        request.limit = limit_of(limit)
    with parameters_named(broker_name="broker"):
        question = source.questions.broker(request)
    node, found = source.answer(question)
    response = past_broker(found, node=node.node)
    response.events.extend(map(past_event, found["events"]))
    outages = list(map(outage_document, timeline_of(response.events).outages))
    document = {**_node(node), **to_document(response), "outages": outages}
    return {"brokerName": broker_name, "at": moment_text(at), "agreed": True, "nodes": [document]}


def _events(source: PastSource, _name: str, query: PageQuery) -> Document:
    kinds = [kind for kind in query.text("kind").split(",") if kind]
    request = wire.ListPastEventsRequest(topic=query.text("topic"), kinds=kinds, **_span(query))
    with parameters_named(broker_name="broker", **{f"kinds[{number}]": "kind" for number in range(len(kinds))}):
        question = source.questions.events(request)
    return _listed("events", *source.answer(question), lambda row: to_document(past_event(row)))


def _changes(source: PastSource, _name: str, query: PageQuery) -> Document:
    with parameters_named(broker_name="broker"):
        question = source.questions.changes(wire.ListChangesRequest(**_span(query)))

    def document(row: Mapping[str, Any]) -> Document:
        change = past_change(row)
        return to_document(change) | {"beforeKnown": change.HasField("before")}

    return _listed("changes", *source.answer(question), document)


def _listed(
    name: str, node: NodeFacts, found: Mapping[str, Any], document: Callable[[Mapping[str, Any]], Document]
) -> Document:
    """Return a page of events, oldest first, and the token with which the next page continues to earlier ones."""
    token = found["next_page_token"]
    counts = {name: len(found["events"]), "complete": not token, "nextPageToken": token}
    rows = (document(row) | {"nodes": [row.get("node", node.node)]} for row in reversed(found["events"]))
    return {name: rows, "nodes": [_node(node) | counts]}


def _node(node: NodeFacts) -> Document:
    return {"addr": node.addr, "node": node.node}


def _at(query: PageQuery) -> datetime:
    at = query.moment(AT)
    if at is None:
        raise InvalidRequest([FieldViolation(AT, "must be set, to a time such as 2026-11-27T03:12Z")])
    return at


def _span(query: PageQuery) -> dict[str, Any]:
    """Return the fields that requests for events and for changes share."""
    fields: dict[str, Any] = {
        "broker_name": query.text("broker"),
        "cluster": query.text("cluster"),
        "by": query.text("by"),
        "page_size": limit_of(query.text("limit")),
        "page_token": query.text("page_token"),
    }
    moments = {name: at for name in ("since", "until") if (at := query.moment(name)) is not None}
    return fields | {name: timestamp(at) for name, at in moments.items()}


_SPAN = ("broker", "cluster", "since", "until", "by", "limit", "page_token")
_PAST_PATHS = (
    PastPath("/v1/past/routes/TOPIC", "GetPastRoute", (AT, "cluster"), _route),
    PastPath("/v1/past/brokers/BROKER", "GetPastBroker", (AT, "cluster", "limit"), _broker),
    PastPath("/v1/past/events", "ListPastEvents", ("topic", "kind", *_SPAN), _events),
    PastPath("/v1/past/changes", "ListChanges", _SPAN, _changes),
)
PAST_PATHS: Mapping[str, PastPath] = {path.listed: path for path in _PAST_PATHS}


def past_path_at(path: str) -> tuple[PastPath, str] | None:
    """Return what is at a path, with the name in it; None: nothing."""
    found = ((past, names_at(listed, path)) for listed, past in PAST_PATHS.items())
    return next(((past, "".join(names)) for past, names in found if names is not None), None)
