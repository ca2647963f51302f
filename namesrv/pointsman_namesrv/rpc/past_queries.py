"""AdminService: questions about the past, checked here and answered by the worker process."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from itertools import chain
from typing import Any, Protocol

from google.protobuf.struct_pb2 import Value
from google.protobuf.timestamp_pb2 import Timestamp

from pointsman.clock import Clock
from pointsman.daemon.rpc.calling_peer import Peer
from pointsman.daemon.rpc.request_fields import by_violations, size_of_page, token_violation
from pointsman.names import registered_name_problem
from pointsman.v1 import admin_service_pb2 as wire
from pointsman.v1 import broker_pb2
from pointsman.wire.refusals import FieldViolation, field_violations, refuse_if_any, shown
from pointsman_namesrv.core.events import EventKind
from pointsman_namesrv.core.request_rules import name_violations
from pointsman_namesrv.history.past_turns import Asker
from pointsman_namesrv.history.past_worker_link import answer_slices
from pointsman_namesrv.rpc import admin_codec, broker_codec

DEFAULT_EVENTS = 100
DEFAULT_BROKER_EVENTS = 50
MAX_EVENTS = 1_000
EVENTS_SPAN = timedelta(days=1)
CHANGES_SPAN = timedelta(days=7)


Question = dict[str, Any]
"""As :mod:`~pointsman_namesrv.history.past_questions` describes it."""


class PastQuestions:
    """Checks requests about the past and makes questions of them. Each method raises InvalidRequest.

    May be called by any thread.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def route(self, request: wire.GetPastRouteRequest) -> Question:
        """Return the question for the route of a topic at a moment."""
        refuse_if_any(
            chain(
                field_violations("topic", request.topic, registered_name_problem(request.topic)),
                admin_codec.optional_names(cluster=request.cluster),
                self._moment_violations(at=request.at),
            )
        )
        return {"kind": "route", "topic": request.topic, "at": _text(request.at), "cluster": request.cluster or None}

    def broker(self, request: wire.GetPastBrokerRequest) -> Question:
        """Return the question for the replicas of a broker name at a moment, and its events up to then."""
        refuse_if_any(
            chain(
                name_violations("broker_name", request.broker_name),
                admin_codec.optional_names(cluster=request.cluster),
                self._moment_violations(at=request.at),
            )
        )
        return {
            "kind": "broker",
            "broker_name": request.broker_name,
            "at": _text(request.at),
            "cluster": request.cluster or None,
            "limit": size_of_page("limit", request.limit, default=DEFAULT_BROKER_EVENTS, most=MAX_EVENTS),
        }

    def events(self, request: wire.ListPastEventsRequest) -> Question:
        """Return the question for one page of events."""
        refuse_if_any(chain(self._span_violations(request), _topic_violations(request), _kind_violations(request)))
        return {
            **self._page(request, span=EVENTS_SPAN),
            "kind": "events",
            "topic": request.topic or None,
            "kinds": list(request.kinds),
        }

    def changes(self, request: wire.ListChangesRequest) -> Question:
        """Return the question for one page of changes by operators."""
        refuse_if_any(self._span_violations(request))
        return {**self._page(request, span=CHANGES_SPAN), "kind": "changes"}

    def _page(self, request: wire.ListPastEventsRequest | wire.ListChangesRequest, *, span: timedelta) -> Question:
        until = _moment(request.until) if request.HasField("until") else self._clock.utc_now()
        since = _moment(request.since) if request.HasField("since") else until - span
        return {
            "since": since.isoformat(),
            "until": until.isoformat(),
            "cluster": request.cluster or None,
            "broker_name": request.broker_name or None,
            "by": request.by or None,
            "limit": size_of_page("page_size", request.page_size, default=DEFAULT_EVENTS, most=MAX_EVENTS),
            "page_token": request.page_token,
        }

    def _span_violations(
        self, request: wire.ListPastEventsRequest | wire.ListChangesRequest
    ) -> Iterator[FieldViolation]:
        yield from admin_codec.optional_names(cluster=request.cluster, broker_name=request.broker_name)
        yield from by_violations(request.by)
        given = {name: getattr(request, name) for name in ("since", "until") if request.HasField(name)}
        wrong = list(self._moment_violations(is_past=False, **given))
        yield from wrong
        if len(given) == 2 and not wrong:
            since, until = _moment(request.since), _moment(request.until)
            if until < since:
                yield FieldViolation("until", f"{until.isoformat()} is before since, {since.isoformat()}")
        if request.page_token and not _is_token(request.page_token):
            yield token_violation(request.page_token)

    def _moment_violations(self, *, is_past: bool = True, **moments: Timestamp) -> Iterator[FieldViolation]:
        for field, moment in moments.items():
            try:
                at = _moment(moment)
            except (ValueError, OverflowError):
                yield FieldViolation(field, "must be a time from year 1 to 9999")
                continue
            if moment.seconds <= 0:
                given = f", not {at.isoformat()}" if moment.ByteSize() else ""
                yield FieldViolation(field, f"must be set, to a time after 1970{given}")
            elif is_past and at > self._clock.utc_now():
                yield FieldViolation(field, f"{at.isoformat()} is in the future")


class Worker(Protocol):
    """Answers questions about the past."""

    async def ask(self, question: Mapping[str, Any], asker: Asker) -> dict[str, Any]:
        """See :meth:`~pointsman_namesrv.history.past_worker_link.PastWorkerLink.ask`."""


class PastQueries:
    """Encodes requests as questions, and answers as responses."""

    def __init__(self, worker: Worker, questions: PastQuestions, *, clock: Clock, node: str) -> None:
        self._worker = worker
        self._questions = questions
        self._clock = clock
        self._node = node

    async def get_past_route(self, request: wire.GetPastRouteRequest, peer: Peer) -> wire.GetPastRouteResponse:
        """Return the route of a topic at a moment."""
        found = await self._worker.ask(self._questions.route(request), _asker(peer))
        brokers, slices = found.pop("brokers"), answer_slices(self._clock)
        response = wire.GetPastRouteResponse(route=broker_codec.struct(found), node=self._node)
        listed = response.route.get_or_create_list("brokers")
        for broker in brokers:
            listed.append(broker)
            await slices.pause()
        return response

    async def get_past_broker(self, request: wire.GetPastBrokerRequest, peer: Peer) -> wire.GetPastBrokerResponse:
        """Return the replicas of a broker name at a moment, and its events up to then."""
        found = await self._worker.ask(self._questions.broker(request), _asker(peer))
        response, slices = past_broker(found, node=self._node), answer_slices(self._clock)
        for row in found["events"]:
            response.events.append(past_event(row))
            await slices.pause()
        return response

    async def list_past_events(self, request: wire.ListPastEventsRequest, peer: Peer) -> wire.ListPastEventsResponse:
        """Return one page of events."""
        found = await self._worker.ask(self._questions.events(request), _asker(peer))
        slices = answer_slices(self._clock)
        response = wire.ListPastEventsResponse(next_page_token=found["next_page_token"], node=self._node)
        for row in found["events"]:
            response.events.append(past_event(row))
            await slices.pause()
        return response

    async def list_changes(self, request: wire.ListChangesRequest, peer: Peer) -> wire.ListChangesResponse:
        """Return one page of changes by operators."""
        found = await self._worker.ask(self._questions.changes(request), _asker(peer))
        slices = answer_slices(self._clock)
        response = wire.ListChangesResponse(next_page_token=found["next_page_token"], node=self._node)
        for change in found["events"]:
            response.changes.append(past_change(change))
            await slices.pause()
        return response


def _asker(peer: Peer) -> Asker:
    is_known = peer.key != peer.addr
    return Asker(peer.key if is_known else peer.addr.rpartition(":")[0], peer.key)


def _topic_violations(request: wire.ListPastEventsRequest) -> Iterator[FieldViolation]:
    if request.topic:
        yield from field_violations("topic", request.topic, registered_name_problem(request.topic))


def _kind_violations(request: wire.ListPastEventsRequest) -> Iterator[FieldViolation]:
    known = set(EventKind)
    for number, kind in enumerate(request.kinds):
        if kind not in known:
            yield FieldViolation(
                f"kinds[{number}]", f"must be an event of the history, e.g. EXPIRED, not {shown(kind)}"
            )


def _is_token(token: str) -> bool:
    """Return whether a page may have ended with it: a day, microseconds, a boot_id and a number."""
    day, _, place = token.partition("/")
    try:
        date.fromisoformat(day)
    except ValueError:
        return False
    return re.fullmatch(r"\d{1,19}/[^/]{1,128}/\d{1,19}", place, re.ASCII) is not None


def _moment(value: Timestamp) -> datetime:
    """Decode a time. Raises ValueError, OverflowError outside the years 1 to 9999."""
    return value.ToDatetime(UTC)


def _text(value: Timestamp) -> str:
    return _moment(value).isoformat()


def _stamp(text: str | None) -> Timestamp | None:
    return None if text is None else broker_codec.timestamp(datetime.fromisoformat(text))


def past_event(row: Mapping[str, Any]) -> wire.BrokerEvent:
    """Encode a row of the history as the events of this run are encoded."""
    generation = row.get("generation") or "0"
    encoded = wire.BrokerEvent(
        event_at=_stamp(row["event_at"]),
        event=row["event"],
        reason=row.get("reason") or "",
        identity=_identity(row),
        generation=int(generation) if generation.isdigit() else 0,
        incarnation=row.get("incarnation") or "",
        seq=row["seq"],
        boot_id=row["boot_id"],
        detail=broker_codec.struct(row["detail"]),
        state=row.get("state") or "",
        planned=bool(row.get("planned")),
    )
    if row.get("interval_ms") is not None:
        encoded.interval.CopyFrom(broker_codec.duration(row["interval_ms"] / 1_000))
    if row.get("since_ms") is not None:
        encoded.state_for.CopyFrom(broker_codec.duration(row["since_ms"] / 1_000))
    return encoded


def _identity(row: Mapping[str, Any]) -> broker_pb2.BrokerIdentity | None:
    if not row.get("cluster"):
        return None
    return broker_pb2.BrokerIdentity(
        cluster=row["cluster"],
        broker_name=row.get("broker_name") or "",
        broker_id=row.get("broker_id") or 0,
        addr=row.get("broker_addr") or row.get("addr") or "",
    )


def past_broker(found: Mapping[str, Any], *, node: str) -> wire.GetPastBrokerResponse:
    """Encode the answer about a broker name without its events."""
    response = wire.GetPastBrokerResponse(node=node)
    for server in found["name_servers"]:
        response.node_state, response.rows_missing = server["state"], server["rows_missing"]
    for broker in found["brokers"]:
        for view in broker["views"]:
            response.replicas.extend(past_replicas(broker, view))
    return response


def past_replicas(broker: Mapping[str, Any], view: Mapping[str, Any]) -> Iterator[wire.PastReplica]:
    """Encode the replicas of a broker name in one name server's view."""
    for one in view["replicas"]:
        yield wire.PastReplica(
            identity=_identity({**broker, **one}),
            state=one["state"] if view["known"] else "",
            planned=one["planned"],
            since=_stamp(one["since"]),
            event=one["event"],
            reason=one["reason"] or "",
            recorded_at=_stamp(one["recorded_at"]),
        )


def past_change(change: Mapping[str, Any]) -> wire.OperatorChange:
    """Encode a change by an operator."""
    encoded = wire.OperatorChange(
        changed_at=_stamp(change["event_at"]),
        event=change["event"],
        what=change["what"],
        cluster=change["cluster"] or "",
        broker_name=change["broker_name"] or "",
        by=change["by"],
        claimed_by=change["claimed_by"] or "",
        after=_value(change["after"]),
        undo=change["undo"] or "",
        boot_id=change["boot_id"],
        seq=change["seq"],
    )
    if change["before_known"]:
        encoded.before.CopyFrom(_value(change["before"]))
    return encoded


def _value(value: Any) -> Value:  # noqa: ANN401  # any JSON
    return broker_codec.struct({"value": value}).fields["value"]
