"""The request codes of brokers: registrations, heartbeats, unregistrations, and queries of the version held."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from pointsman.clock import Clock
from pointsman.daemon.access.access import Access, Caller, Limit, check_writes
from pointsman.daemon.access.fair_bound import FairBound
from pointsman.names import MAX_TEXT_LENGTH, text_problem
from pointsman.rocketmq.codes import ResponseCode
from pointsman.rocketmq.frames import BodyCrc32, Command, ReadyResponse, compact, version_text
from pointsman.wire.refusals import FieldViolation, InvalidRequest, refuse_if_any, shown
from pointsman_namesrv.core.additive import Accepted, AdditiveRegistrations, Claim, Incoming, peer_key
from pointsman_namesrv.core.broker_responses import BeatStatus
from pointsman_namesrv.core.events import RecordEvents
from pointsman_namesrv.core.model import BrokerIdentity, DataVersion, GroupKey, QueueConfig, Registration
from pointsman_namesrv.core.name_server import NameServer
from pointsman_namesrv.core.node_refusals import LimitExceeded
from pointsman_namesrv.core.request_rules import MAX_INCARNATION_LENGTH, topic_violations
from pointsman_namesrv.core.staging import BYTES_OF_STAGED_TOPIC, COMING_IN_LIMIT
from pointsman_namesrv.core.static_topics import QueueMapping
from pointsman_namesrv.known_registrations import KnownRegistrations
from pointsman_namesrv.node_metrics import Metrics
from pointsman_namesrv.own_pauses import OwnPauses
from pointsman_namesrv.remoting.fields import number, optional_number, read_json, text
from pointsman_namesrv.remoting.register_body import (
    RegisterBody,
    TopicConfig,
    UnreadableBody,
    Version,
    differing_part,
    mapping_version_span,
    read_data_version,
)

CRC_STEP_BYTES = 1024 * 1024
"""Bytes of a checksum in one step; about 0.3 ms."""
WORTH_KNOWING_BYTES = 1_024
MAX_QUEUE_DATAS = 100
"""Size of a frame with one topic; a broker sends its own."""
SAID_ONCE = 10_000
"""Brokers whose problems were logged once; after this many, problems are only counted."""

Steps = Iterator[ReadyResponse | None]
"""Work in slices: None after each, the response at the end."""

SUCCESS = ReadyResponse()
REGISTERED = ReadyResponse(ext={})

log = logging.getLogger(__name__)


class BrokerConnection(Protocol):
    """A connection as the brokers' codes need it."""

    stream: int
    """Its number, distinct from all keep-alive streams of agents."""
    held: dict[BrokerIdentity, None]
    """The brokers that registered or sent heartbeats on it and have not unregistered."""
    is_brokers: bool
    """Whether there was ever one."""
    caller: Caller | None
    """The caller with its grants; None: no access control."""

    def abort(self, cause: str) -> None:
        """Close it immediately, for a bound of this server."""


@dataclass(frozen=True, slots=True)
class _Sent:
    """A registration as it was sent."""

    facts: tuple[object, ...]
    """Its command."""
    body: bytes
    start: int
    end: int
    """Position of ``mappingDataVersion``, which contains the time of sending."""
    has_all: bool = False
    """Whether the registration has every topic of the body; some may have been deleted."""

    def is_equal(self, other: _Sent) -> bool:
        """Return whether another differs only in the time of sending."""
        known = memoryview(self.body)  # its slices copy nothing
        return (
            other.start == self.start
            and len(other.body) - other.end == len(known) - self.end
            and other.facts == self.facts
            and other.body.startswith(known[: self.start])
            and other.body.endswith(known[self.end :])
        )


class BrokerCodes:
    """Handles requests of brokers, and binds brokers to their connection."""

    def __init__(
        self,
        core: NameServer,
        registrations: AdditiveRegistrations,
        *,
        coming_in: FairBound,
        clock: Clock,
        metrics: Metrics,
        record: RecordEvents,
        pauses: OwnPauses,
        access: Access,
    ) -> None:
        self._core = core
        self._registrations = registrations
        self._access = access
        self._coming_in = coming_in
        self._bound: dict[BrokerIdentity, BrokerConnection] = {}
        """The connection of each broker: the last one on which it registered or sent a heartbeat."""
        self._most_bound = 1_000
        self._clock = clock
        self._metrics = metrics
        self._record = record
        self._pauses = pauses
        self._count_beat = {status: metrics.beats.labels(status).inc for status in BeatStatus}
        self._known = KnownRegistrations[BrokerIdentity, _Sent](core, worth_bytes=WORTH_KNOWING_BYTES)
        self._said: set[BrokerIdentity] = set()

    # --- 103 --------------------------------------------------------------------------------------------------

    def register(self, connection: BrokerConnection, command: Command, body: bytes) -> Steps:
        """Handle a registration. Raises Refusal."""
        identity = _identity(command)
        if identity.broker_id < 0:
            # A DLedger broker before its election: RocketMQ responds success and lists it in a form no client can use.
            yield REGISTERED
            return
        wanted = optional_number(command, "bodyCrc32")
        sent = _Sent((identity, _facts(command.ext), command.version), body, *mapping_version_span(body))
        known = self._known.get(identity)
        accepted: Accepted | None = None
        if known is not None and known[0].is_equal(sent):
            accepted = self._registrations.renew(known[1], stream=connection.stream, now=self._now())
        if accepted is None:
            self._access.limit(Limit.REGISTRATIONS, connection.caller, peer_key(connection.stream))
            # A known body was checked before; unknown keys of a body are ignored.
            if wanted:
                found, parts = BodyCrc32(), memoryview(body)  # its slices copy nothing
                if len(body) > CRC_STEP_BYTES:
                    yield None
                for at in range(0, len(body), CRC_STEP_BYTES):
                    found.add(parts[at : at + CRC_STEP_BYTES])
                    if len(body) > CRC_STEP_BYTES:
                        yield None
                if found.value != wanted:
                    yield ReadyResponse(code=ResponseCode.SYSTEM_ERROR, remark="crc32 not match", ext={})
                    return
            held, unknown = _unknown_part(sent, *known) if known is not None else (None, body)
            reader, incoming = RegisterBody(), self._registrations.begin(identity)
            yield from self._read(connection, reader, incoming, unknown, version=command.version)
            claim = _claim(identity, command, reader)
            if held is not None and not self._registrations.adds_to(held, claim):
                reader, incoming = RegisterBody(), self._registrations.begin(identity)
                yield from self._read(connection, reader, incoming, body, version=command.version)
                held = None
            accepted = self._registrations.register(
                claim, incoming, stream=connection.stream, now=self._now(), is_part=held is not None
            )
            has_all = not self._registrations.has_deleted(claim) and not incoming.unmapped
            held = accepted.registration if accepted.registration.from_broker is not None else None
            self._known.put(identity, replace(sent, has_all=has_all), held, size=len(body))
            self._note_faults(identity, reader, bad=reader.bad_topics + incoming.bad_topics, first=incoming.first_bad)
        self._bind(connection, accepted)
        yield self._registered(accepted)

    def _read(
        self, connection: BrokerConnection, reader: RegisterBody, incoming: Incoming, body: bytes, *, version: int
    ) -> Iterator[None]:
        """Read the topics, one slice per step, within the memory for registrations in progress.

        Raises InvalidRequest, LimitExceeded.
        """
        bound, taken, of_topics = self._coming_in, 0, 0
        share = bound.take(peer_key(connection.stream), 0, partial(connection.abort, "limit"))
        try:
            for topics in _readable(reader.slices(body, version=version)):
                if topics:
                    of_topics += sum(BYTES_OF_STAGED_TOPIC + 2 * len(topic) for topic in topics)
                    incoming.add(topics)
                grown = max(0, reader.memory + of_topics - taken)
                if share is None or not bound.grow(share, grown):
                    raise LimitExceeded(COMING_IN_LIMIT, bound.bound, value=bound.total + grown)
                taken += grown
                yield None
            mappings = {topic: QueueMapping._make(mapping) for topic, mapping in reader.mappings.items()}
            incoming.add_mappings(mappings, reader.unmapped)
        finally:
            if share is not None:
                bound.give_back(share)

    def _registered(self, accepted: Accepted) -> ReadyResponse:
        orders, view = self._core.kv.order_topics(), accepted.view
        if not orders and not view.master_addr:
            return REGISTERED
        ext = {"haServerAddr": view.ha_addr, "masterAddr": view.master_addr} if view.master_addr else {}
        return ReadyResponse(ext=ext, body=compact({"table": orders}) if orders else b"")

    def _note_faults(self, identity: BrokerIdentity, reader: RegisterBody, *, bad: int, first: str) -> None:
        """Count the ignored topics of a registration, and log them once."""
        if bad:
            self._metrics.remoting.topics_skipped.inc(bad)
        if not bad or identity in self._said or len(self._said) >= SAID_ONCE:
            return
        self._said.add(identity)
        first = first or f"topic {shown(reader.first_bad)} cannot be read"
        facts: dict[str, object] = {"broker": str(identity), "topics": bad, "first": first}
        log.warning("ignored topics of a registration", extra={"facts": facts})

    # --- 104, 217, 322, 904 -----------------------------------------------------------------------------------

    def unregister(self, connection: BrokerConnection, command: Command, _: bytes) -> ReadyResponse:
        """Unregister a broker; an unknown one is accepted too. Raises InvalidRequest, NotUnregistered."""
        identity = _identity(command)
        events = self._registrations.unregister(
            identity.group_key, identity.addr, identity.broker_id, stream=connection.stream, now=self._clock.monotonic()
        )
        if events:
            self._release(connection, identity)
            self._record(events)
        return SUCCESS

    def add_topic(self, connection: BrokerConnection, command: Command, body: bytes) -> ReadyResponse:
        """Add one topic to known brokers, after the request was checked for all of them.

        Raises InvalidRequest, LimitExceeded, PermissionDenied.
        """
        topic = text(command, "topic")
        route = read_json(body, "body")
        queue_datas = route.get("queueDatas") if isinstance(route, dict) else None
        wanted: list[tuple[str, QueueConfig]] = []
        for data in queue_datas[:MAX_QUEUE_DATAS] if isinstance(queue_datas, list) else ():
            if not isinstance(data, dict) or not isinstance(data.get("brokerName"), str):
                continue
            fields = ("readQueueNums", "writeQueueNums", "perm", "topicSysFlag")
            queues = QueueConfig(*(data.get(field, 0) for field in fields))
            if not all(type(number) is int for number in queues):
                raise InvalidRequest([FieldViolation("queueDatas", "holds something other than whole numbers")])
            refuse_if_any(list(topic_violations(topic, queues, path="topic")))
            wanted.append((data["brokerName"], queues))
        if connection.caller is not None:
            # The frame has no cluster: it may change every group of these names.
            names = {broker_name for broker_name, _ in wanted}
            for key in self._core.routes.groups:
                if key.broker_name in names:
                    check_writes(connection.caller, key.cluster, key.broker_name)
        for broker_name, queues in wanted:
            self._record(self._registrations.add_topic(broker_name, topic, queues, now=self._clock.monotonic()))
        return SUCCESS

    def query_data_version(self, connection: BrokerConnection, command: Command, body: bytes) -> ReadyResponse:
        """Return whether a broker's table differs from the one held; a heartbeat if the broker is on this connection.

        A broker that learns of a difference registers, which binds it. A query on another connection is not a heartbeat
        (RocketMQ counts it as one). Raises InvalidRequest.
        """
        identity = _identity(command)
        try:
            asked = read_data_version(body)
        except UnreadableBody as error:
            raise InvalidRequest([FieldViolation("body", str(error))]) from error
        version = None if asked is None else _data_version(asked)
        held = self._registrations.held_version(identity.group_key, identity.addr)
        is_known = identity in connection.held
        if is_known or command.is_one_way:
            self._beat(connection, identity.group_key, identity.addr, version)
        changed = held is None or held != version or not is_known
        said = b"" if held is None else _version_body(held)
        return ReadyResponse(ext={"changed": "true" if changed else "false"}, body=said)

    def heartbeat(self, connection: BrokerConnection, command: Command, _: bytes) -> ReadyResponse:
        """Record a heartbeat, which has no broker id. Raises InvalidRequest."""
        key = GroupKey(text(command, "clusterName"), text(command, "brokerName"))
        self._beat(connection, key, text(command, "brokerAddr"), None)
        return SUCCESS

    def _beat(self, connection: BrokerConnection, key: GroupKey, addr: str, version: DataVersion | None) -> None:
        accepted = self._registrations.beat(key, addr, version, stream=connection.stream, now=self._now())
        if accepted is None:
            self._count_beat[BeatStatus.UNKNOWN_BROKER]()
        else:
            self._bind(connection, accepted)

    # --- the connection ---------------------------------------------------------------------------------------

    def end(self, connection: BrokerConnection, *, by_us: bool) -> None:
        """Handle the end of a connection; it counts against each broker whose last heartbeat it carried."""
        now = self._now()
        for identity in connection.held:
            del self._bound[identity]
            events = self._registrations.end_stream(identity, stream=connection.stream, now=now, by_us=by_us)
            if events:
                self._record(events)
        connection.held.clear()

    def _bind(self, connection: BrokerConnection, accepted: Accepted) -> None:
        identity = accepted.registration.identity
        if self._bound.get(identity) is not connection:
            # One connection per broker: what connections hold is bounded by the number of brokers.
            if identity in self._bound:
                self._release(self._bound[identity], identity)
            elif len(self._bound) >= self._most_bound:
                self._release_departed()
            self._bound[identity] = connection
            connection.held[identity] = None
        connection.is_brokers = True
        self._count_beat[BeatStatus.OK]()
        if accepted.events:
            self._record(accepted.events)

    def _release_departed(self) -> None:
        """From time to time, drop brokers that expired while their connection is open."""
        for identity, connection in list(self._bound.items()):
            if self._core.registration_of(identity) is None:
                self._release(connection, identity)
        self._most_bound = 2 * len(self._bound) + 1_000

    def _release(self, connection: BrokerConnection, identity: BrokerIdentity) -> None:
        if connection.held.pop(identity, connection) is None:
            del self._bound[identity]

    def _now(self) -> float:
        """Return the time, once a pause of this process is credited."""
        now = self._clock.monotonic()
        self._pauses.catch_up(now)
        return now


def _identity(command: Command) -> BrokerIdentity:
    return BrokerIdentity(
        text(command, "clusterName"),
        text(command, "brokerName"),
        number(command, "brokerId"),
        text(command, "brokerAddr"),
    )


def _facts(ext: Mapping[str, str]) -> tuple[str | None, ...]:
    """Return the fields of a registration apart from identity and topics."""
    return tuple(
        ext.get(name) for name in ("haServerAddr", "enableActingMaster", "heartbeatTimeoutMillis", "__ZONE_NAME")
    )


def _unknown_part(sent: _Sent, known: _Sent, held: Registration) -> tuple[Registration | None, bytes]:
    """Return the part of a body to read, and the registration that has the rest; None: read everything.

    A table only adds, so what equals the last body is already held. Reading is expensive: all of 10,000 topics take
    more CPU time than in RocketMQ, the part of one topic a third of that.
    """
    if known.facts != sent.facts or not known.has_all or len(sent.body) < WORTH_KNOWING_BYTES:
        return None, sent.body
    return held, differing_part(sent.body, known.body)


def _claim(identity: BrokerIdentity, command: Command, reader: RegisterBody) -> Claim:
    millis = optional_number(command, "heartbeatTimeoutMillis")
    zone = command.ext.get("__ZONE_NAME", "")
    return Claim(
        identity=identity,
        data_version=_data_version(reader.data_version),
        timeout=millis / 1000 if millis is not None and millis > 0 else None,
        acting_master=command.ext.get("enableActingMaster", "").lower() == "true",
        ha_addr=command.ext.get("haServerAddr", ""),
        zone=zone if text_problem(zone, longest=MAX_TEXT_LENGTH) is None else "",
        broker_version=version_text(command.version)[:MAX_INCARNATION_LENGTH],
        filter_servers=tuple(reader.filter_servers[:32]),
    )


def _readable(slices: Iterator[dict[str, TopicConfig]]) -> Iterator[dict[str, TopicConfig]]:
    try:
        yield from slices
    except UnreadableBody as error:
        raise InvalidRequest([FieldViolation("body", str(error))]) from error


def _data_version(version: Version) -> DataVersion:
    return DataVersion(version.state_version, version.timestamp, version.counter)


def _version_body(version: DataVersion) -> bytes:
    return compact(
        {"counter": version.counter, "stateVersion": version.state_version, "timestamp": version.timestamp_millis}
    )
