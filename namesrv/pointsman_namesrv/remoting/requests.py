"""From a request's bytes to its response: the handler of each code, and refusals on this wire."""

from __future__ import annotations

import logging
import secrets
import weakref
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from pointsman.daemon.access.access import (
    ADMINS,
    ANY_ROLE,
    BROKERS,
    Access,
    Caller,
    Denied,
    Limit,
    RateLimited,
    Rule,
    check_writes,
)
from pointsman.daemon.rpc.call_tallies import Tally
from pointsman.rocketmq.codes import RequestCode, ResponseCode
from pointsman.rocketmq.frames import ONE_WAY_FLAG, Command, Frame, ReadyResponse, cut_opaque, read_header
from pointsman.wire.refusals import InvalidRequest, Refusal
from pointsman_namesrv.core.additive import peer_key
from pointsman_namesrv.core.events import RecordEvents
from pointsman_namesrv.core.lifecycle import NodeLifecycle
from pointsman_namesrv.core.model import NodeState
from pointsman_namesrv.core.node_refusals import IdentityHeld, LimitExceeded, TopicNotFound
from pointsman_namesrv.node_metrics import Metrics
from pointsman_namesrv.remoting import table_responses
from pointsman_namesrv.remoting.broker_codes import BrokerCodes, BrokerConnection, Steps
from pointsman_namesrv.remoting.fields import flag, text
from pointsman_namesrv.remoting.operator_codes import OperatorCodes
from pointsman_namesrv.remoting.table_responses import MEMBER_TOPIC, UNIT, UNIT_SUB, RouteResponse, TableResponses

KNOWN_REQUESTS = 4_096
"""Requests recognised by the bytes of their header."""
KNOWN_HEADER_BYTES = 1_024
MAX_REMARK = 2_000
LARGE_BYTES = 64 * 1024
"""Responses beyond this are sent in parts, as their peer reads."""
_READY = NodeState.READY
"""Looked up once: in CPython 3.11 that takes longer than a cached response."""

RULES: Mapping[int, Rule] = {
    RequestCode.PUT_KV_CONFIG: ADMINS,
    RequestCode.GET_KV_CONFIG: ANY_ROLE,
    RequestCode.DELETE_KV_CONFIG: ADMINS,
    RequestCode.REGISTER_BROKER: BROKERS,
    RequestCode.UNREGISTER_BROKER: BROKERS,
    RequestCode.GET_ROUTEINFO_BY_TOPIC: ANY_ROLE,
    RequestCode.GET_BROKER_CLUSTER_INFO: ANY_ROLE,
    RequestCode.WIPE_WRITE_PERM_OF_BROKER: ADMINS,
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: ANY_ROLE,
    RequestCode.DELETE_TOPIC_IN_NAMESRV: ADMINS,
    RequestCode.REGISTER_TOPIC_IN_NAMESRV: BROKERS,
    RequestCode.GET_KVLIST_BY_NAMESPACE: ANY_ROLE,
    RequestCode.GET_TOPICS_BY_CLUSTER: ANY_ROLE,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: ANY_ROLE,
    RequestCode.GET_UNIT_TOPIC_LIST: ANY_ROLE,
    RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: ANY_ROLE,
    RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: ANY_ROLE,
    RequestCode.UPDATE_NAMESRV_CONFIG: ADMINS,
    RequestCode.GET_NAMESRV_CONFIG: ADMINS,
    RequestCode.QUERY_DATA_VERSION: BROKERS,
    RequestCode.ADD_WRITE_PERM_OF_BROKER: ADMINS,
    RequestCode.GET_BROKER_MEMBER_GROUP: ANY_ROLE,
    RequestCode.BROKER_HEARTBEAT: BROKERS,
}
"""Roles that may send each code; a broker only for its own cluster and broker name. An unknown code needs any role."""

log = logging.getLogger(__name__)


class Connection(BrokerConnection, Protocol):
    """A connection as requests need it."""

    peer: str
    """Address of the peer, for logs."""


class GoElsewhere(Exception):
    """This node does not serve clients now; closing the connection sends them to the next address."""


@dataclass(slots=True)
class _Known:
    """The decoded header of known bytes."""

    handler: Handler
    command: Command
    route: Callable[[], RouteResponse | None]
    """A weak reference to the last response, if it is a route."""


Result = ReadyResponse | Iterator[ReadyResponse | None] | Awaitable[ReadyResponse]
Handler = Callable[[Connection, Command, bytes], Result]


class Requests:
    """The table of codes. Only here the state of the node decides what is served."""

    def __init__(
        self,
        tables: TableResponses,
        brokers: BrokerCodes,
        operators: OperatorCodes,
        *,
        lifecycle: NodeLifecycle,
        metrics: Metrics,
        record: RecordEvents,
        access: Access,
    ) -> None:
        self._tables = tables
        self._access = access
        self._lifecycle = lifecycle
        self._metrics = metrics
        self._record = record
        self._ok, self._not_found, self._not_ready = (
            metrics.route_queries.labels(result).inc for result in ("ok", "not_found", "not_ready")
        )
        self._known: dict[tuple[bytes, bytes], _Known] = {}
        self._tallies: dict[tuple[int, int], Tally] = {}
        self._routes_given = metrics.remoting.requests.labels(str(int(RequestCode.GET_ROUTEINFO_BY_TOPIC)), "0")
        code = RequestCode
        self._handlers: dict[int, Handler] = {
            code.PUT_KV_CONFIG: lambda c, r, _: operators.put_kv(r, _by(c)),
            code.GET_KV_CONFIG: lambda _, r, __: operators.get_kv(r),
            code.DELETE_KV_CONFIG: lambda c, r, _: operators.delete_kv(r, _by(c)),
            code.REGISTER_BROKER: brokers.register,
            code.UNREGISTER_BROKER: brokers.unregister,
            code.GET_ROUTEINFO_BY_TOPIC: self._route,
            code.GET_BROKER_CLUSTER_INFO: lambda *_: tables.cluster_info(),
            code.WIPE_WRITE_PERM_OF_BROKER: lambda c, r, _: operators.set_write_perm(r, _by(c), writable=False),
            code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: lambda *_: tables.topic_list(),
            code.DELETE_TOPIC_IN_NAMESRV: lambda c, r, _: operators.delete_topic(r, _by(c)),
            code.REGISTER_TOPIC_IN_NAMESRV: brokers.add_topic,
            code.GET_KVLIST_BY_NAMESPACE: lambda _, r, __: operators.list_kv(r),
            code.GET_TOPICS_BY_CLUSTER: lambda _, r, __: tables.cluster_topics(text(r, "cluster")),
            code.GET_SYSTEM_TOPIC_LIST_FROM_NS: lambda *_: tables.system_topic_list(),
            code.GET_UNIT_TOPIC_LIST: lambda *_: tables.unit_topics(UNIT),
            code.GET_HAS_UNIT_SUB_TOPIC_LIST: lambda *_: tables.unit_topics(UNIT_SUB),
            code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: lambda *_: tables.unit_topics(UNIT_SUB, without=UNIT),
            code.UPDATE_NAMESRV_CONFIG: lambda *_: operators.update_settings(),
            code.GET_NAMESRV_CONFIG: lambda *_: operators.show_settings(),
            code.QUERY_DATA_VERSION: brokers.query_data_version,
            code.ADD_WRITE_PERM_OF_BROKER: lambda c, r, _: operators.set_write_perm(r, _by(c), writable=True),
            code.GET_BROKER_MEMBER_GROUP: lambda _, r, __: tables.member_group(
                text(r, "clusterName"), text(r, "brokerName")
            ),
            code.BROKER_HEARTBEAT: brokers.heartbeat,
        }
        for number, rule in RULES.items():
            if rule.limit is not None:
                self._handlers[number] = self._limited(self._handlers[number], rule.limit)

    def serve(
        self, connection: Connection, frame: Frame
    ) -> bytes | tuple[ReadyResponse | Steps | Awaitable[ReadyResponse], bytes | None] | None:
        """Handle one frame. Return the response's bytes, None for a one-way request, or a large response or pending
        work with the opaque.

        Repeated requests are equal but for the opaque, so the rest of the header identifies them. Raises BadFrame,
        GoElsewhere.
        """
        form, header, body = frame
        cut = cut_opaque(form, header)
        known = None if cut is None else self._known.get(cut[0])
        if known is None or cut is None:
            command = read_header(form, header)
            opaque = b"%d" % command.opaque
            if command.is_answer:
                self._count(command.code, "unsolicited")
                return None
            handler = self._handlers.get(command.code, _unsupported)
            # Opaque 0 may be a missing one, or its digits may belong to an object within the header.
            if cut is not None and cut[1] == opaque and command.opaque:
                self._keep(cut[0], handler, command)
        else:
            route = known.route()
            if route is not None and self._tables.is_good(route) and self._lifecycle.state is _READY:
                self._ok()
                self._routes_given.count += 1
                return route.to(cut[1])
            handler, command, opaque = known.handler, known.command, cut[1]
        try:
            if connection.caller is not None:
                self._authorise(connection.caller, command)
            response = handler(connection, command, body)
        except GoElsewhere:
            self._count(command.code, "closed")
            raise
        except Exception as error:  # noqa: BLE001  # every error becomes a response
            response = self._refusal(error, command.code, connection)
        wanted = None if command.flag & ONE_WAY_FLAG else opaque
        if isinstance(response, ReadyResponse):
            self._note(command.code, response)
            if wanted is None:
                return None
            is_large = len(response) > LARGE_BYTES
            if known is not None and isinstance(response, RouteResponse) and not is_large:
                known.route = weakref.ref(response)
            return (response, wanted) if is_large else response.to(wanted)
        # Last: a check against an abstract class takes as long as half of the rest.
        if isinstance(response, Iterator):
            return self._guarded(response, command.code, connection), wanted
        return self._awaited(response, command.code, connection), wanted

    def refuse(self, connection: Connection, frame: Frame) -> bytes | None:
        """Respond to one frame of a connection whose caller has no role. Raises BadFrame."""
        form, header, _ = frame
        command = read_header(form, header)
        if command.is_answer or connection.caller is None:
            return None
        try:
            self._access.authorise(connection.caller, ANY_ROLE)
        except Denied as denied:
            response = self._refusal(denied, command.code, connection)
            self._note(command.code, response)
            return None if command.flag & ONE_WAY_FLAG else response.to(b"%d" % command.opaque)
        return None

    def _authorise(self, caller: Caller, command: Command) -> None:
        """Raise PermissionDenied for a code that a caller may not send, or a broker that it may not write."""
        rule = RULES.get(command.code, ANY_ROLE)
        self._access.authorise(caller, rule)
        if rule is BROKERS and command.code != RequestCode.REGISTER_TOPIC_IN_NAMESRV:
            check_writes(caller, command.ext.get("clusterName", ""), command.ext.get("brokerName", ""))

    def _limited(self, handler: Handler, limit: Limit) -> Handler:
        def limited(connection: Connection, command: Command, body: bytes) -> Result:
            self._access.limit(limit, connection.caller, peer_key(connection.stream))
            return handler(connection, command, body)

        return limited

    def _keep(self, key: tuple[bytes, bytes], handler: Handler, command: Command) -> None:
        # The header of a registration does not repeat: it contains the checksum of its body.
        before, after = key
        if len(before) + len(after) > KNOWN_HEADER_BYTES or "bodyCrc32" in command.ext:
            return
        if "opaque" in command.ext or b'"opaque"' in before or b'"opaque"' in after:
            return
        if len(self._known) >= KNOWN_REQUESTS:
            del self._known[next(iter(self._known))]
        self._known[key] = _Known(handler, command, _no_route)

    def _guarded(self, steps: Steps, code: int, connection: Connection) -> Steps:
        """Run work in slices; errors become responses."""
        try:
            for response in steps:
                if response is not None:
                    self._note(code, response)
                yield response
        except Exception as error:  # noqa: BLE001  # as above
            response = self._refusal(error, code, connection)
            self._note(code, response)
            yield response

    async def _awaited(self, change: Awaitable[ReadyResponse], code: int, connection: Connection) -> ReadyResponse:
        """Wait for a change to be saved; errors become responses."""
        try:
            response = await change
        except Exception as error:  # noqa: BLE001  # as above
            response = self._refusal(error, code, connection)
        self._note(code, response)
        return response

    def _route(self, connection: Connection, command: Command, _: bytes) -> ReadyResponse:
        topic = text(command, "topic")
        serves_all = self._lifecycle.state is _READY or connection.is_brokers
        if not serves_all and not topic.startswith(MEMBER_TOPIC):
            self._not_ready()
            raise GoElsewhere
        ext = command.ext
        zone = ext.get("__ZONE_NAME", "") if "__ZONE_MODE" in ext and flag(command, "__ZONE_MODE") else ""
        try:
            response = self._tables.route(topic, zone)
        except TopicNotFound:
            self._not_found()
            return table_responses.not_found(topic)
        self._ok()
        return response

    def _refusal(self, error: Exception, code: int, connection: Connection) -> ReadyResponse:
        if isinstance(error, Denied):
            name = RequestCode(code).name if code in self._handlers else "OTHER"
            self._access.note(error, f"remoting {name}", connection.peer)
            is_busy = isinstance(error, RateLimited)
            response = ResponseCode.SYSTEM_BUSY if is_busy else ResponseCode.NO_PERMISSION
            return ReadyResponse(code=response, remark=str(error)[:MAX_REMARK])
        if isinstance(error, Refusal):
            if isinstance(error, IdentityHeld):
                self._record((error.event,))
            if isinstance(error, LimitExceeded):
                self._metrics.limits_exceeded.labels(error.limit).inc()
            remark = str(error)
            if isinstance(error, InvalidRequest):
                remark = "; ".join(f"{fault.field} {fault.description}" for fault in error.violations)
            return ReadyResponse(code=ResponseCode.SYSTEM_ERROR, remark=remark[:MAX_REMARK])
        request_id = secrets.token_hex(8)
        log.error(
            "internal error while handling a remoting request",
            exc_info=error,
            extra={"facts": {"code": code, "request_id": request_id}},
        )
        return ReadyResponse(code=ResponseCode.SYSTEM_ERROR, remark=f"internal error, request {request_id}")

    def _note(self, code: int, response: ReadyResponse) -> None:
        tally = self._tallies.get((code, response.code))
        if tally is None:
            tally = self._tally(code, str(int(response.code)))
            if code in self._handlers:
                self._tallies[code, response.code] = tally
        tally.count += 1

    def _count(self, code: int, result: str) -> None:
        self._tally(code, result).inc()

    def _tally(self, code: int, result: str) -> Tally:
        return self._metrics.remoting.requests.labels(str(code) if code in self._handlers else "other", result)


def _no_route() -> None:
    return None


def _by(connection: Connection) -> str:
    """Return the author of a change: the identity of a certificate, else the address."""
    caller = connection.caller
    return caller.identity if caller is not None and caller.proof == "certificate" else f"remoting {connection.peer}"


def _unsupported(_: Connection, command: Command, __: bytes) -> ReadyResponse:
    remark = f" request type {command.code} not supported"
    return ReadyResponse(code=ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=remark)
