"""The client's exceptions.

::

    PointsmanError
    ├── InvalidInputError (a ValueError)   InvalidNameError, InvalidAddressError, InvalidOptionError,
    │                                      InvalidMessageError, MessageTooLargeError
    ├── ClientStateError (a RuntimeError)  ClientNotStartedError, ClientClosedError, WrongEventLoopError, ForkedError,
    │                                      BlockingCallError
    ├── CallTimeoutError                   a call of the synchronous facade timed out
    ├── NotFoundError                      TopicNotFoundError, ClusterNotFoundError
    ├── OrderTopicConfError                the route has an invalid order-topic configuration
    ├── RequestRejectedError               a name server rejected the request, as any other would;
    │                                      AccessDeniedError: credentials or a role are missing
    ├── NameServerFailedError              one name server did not respond; AgentFailedError: one agent
    ├── NameServersUnavailableError        no name server responded
    ├── OffsetFileError                    an offset file cannot be read or written
    ├── OffsetResetError                   an operator reset the offset before the commit arrived
    ├── UndecodableMessageError            the serializer refused the body of a received message
    ├── LeaseExpiredError                  a message was delivered again before it was acknowledged
    ├── GroupModeError                     a group leases messages and stores offsets of one topic
    ├── AllocationError                    the strategy cannot allocate the queues
    ├── BrokerError                        a broker, or the transport to it:
    │   ├── BrokerUnreachableError         no connection
    │   ├── BrokerTimeoutError             no response in time
    │   ├── BrokerRefusedError             it rejected the request, with a response code
    │   ├── RequesterGoneError             the producer that awaits a reply is not connected to it
    │   ├── OffsetBeyondEndError           the queue ends before the offset
    │   └── UnreadableMessageError         a message in a queue cannot be read
    └── SendError                          a message was not sent: SendFailedError, NoWritableQueueError,
                                           NoBrokerUpError, QueueUnavailableError, OutboxFullError, OutboxFailedError,
                                           TooManyInFlightError, NoReplyError

Attributes hold the facts from which the message is built. ``retriable``: the same call may succeed later.
``refresh_route``: a newer route may help.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum
from typing import ClassVar

import grpc

from pointsman.group_topics import is_group_topic
from pointsman.names import is_rocketmq
from pointsman.wire.error_details import ErrorDetails
from pointsman.wire.refusals import FieldViolation

MAX_NAMED_BROKERS = 3
"""Absent brokers listed in a message; the attribute has all."""
MAX_SHOWN = 200
"""Characters of an order-topic configuration in a message; the attribute has all."""


class PointsmanError(Exception):
    """Base class of all errors that this library raises deliberately."""

    code: ClassVar[str] = "POINTSMAN_ERROR"
    """Stable name for logs and machine-readable output."""
    retriable: ClassVar[bool] = False
    refresh_route: ClassVar[bool] = False


class InvalidInputError(PointsmanError, ValueError):
    """An invalid argument; no call was made."""

    code = "INVALID_INPUT"


class InvalidNameError(InvalidInputError):
    """A topic, cluster or broker name that violates RocketMQ's grammar."""

    def __init__(self, kind: str, name: object, problem: str) -> None:
        super().__init__(f"{kind} {name!r} {problem}")
        self.kind = kind
        self.name = name
        self.problem = problem


class InvalidAddressError(InvalidInputError):
    """An invalid name server address or address list."""


class InvalidOptionError(InvalidInputError):
    """An invalid option."""

    def __init__(self, option: str, value: object, problem: str) -> None:
        super().__init__(f"{option} = {value!r} {problem}")
        self.option = option
        self.value = value
        self.problem = problem


class InvalidMessageError(InvalidInputError):
    """A message that cannot be sent."""

    code = "INVALID_MESSAGE"

    def __init__(self, field: str, value: object, problem: str, *, of_type: bool = False) -> None:
        """``of_type``: the type is wrong, so the message shows it instead of the value."""
        super().__init__(
            f"{field} {problem}, got {type(value).__name__}" if of_type else f"{field} {value!r} {problem}"
        )
        self.field = field
        self.value = value
        self.problem = problem


class MessageTooLargeError(InvalidInputError):
    """A message larger than ``max_message_size``."""

    code = "MESSAGE_TOO_LARGE"

    def __init__(self, topic: str, size: int, allowed: int) -> None:
        super().__init__(f"a message to {topic} has {size} bytes, at most {allowed} are allowed (max_message_size)")
        self.topic = topic
        self.size = size
        self.allowed = allowed


class ClientStateError(PointsmanError, RuntimeError):
    """The client, producer or consumer cannot be used in its current state, or in this process or event loop."""

    code = "CLIENT_STATE"


class ClientNotStartedError(ClientStateError):
    """Used before ``start()``."""

    def __init__(self) -> None:
        super().__init__("the client is not started: use it in a `with` block (an `async with` one), or call start()")


class ClientClosedError(ClientStateError):
    """Used after ``close()``, or closed while waiting."""

    def __init__(self) -> None:
        super().__init__("the client is closed: make a new one")


class WrongEventLoopError(ClientStateError):
    """Used outside the event loop in which it was started."""

    def __init__(self) -> None:
        super().__init__(
            "the client belongs to another event loop: start one client in each event loop, and in threads without one "
            "use the class of the same name in pointsman_client.sync"
        )


class ForkedError(ClientStateError):
    """Used in a child process that was forked after the start."""

    def __init__(self) -> None:
        super().__init__("the process was forked after the client was started: make a new client in the child")


class BlockingCallError(ClientStateError):
    """A call of the synchronous facade in a thread with a running event loop."""

    def __init__(self) -> None:
        super().__init__(
            "a blocking call would block the event loop that runs in this thread: use the class of the same name in "
            "pointsman_client, or call this one in another thread"
        )


class CallTimeoutError(PointsmanError, TimeoutError):
    """A call of the synchronous facade did not end within ``call_timeout_seconds``; it was cancelled."""

    code = "CALL_TIMEOUT"
    retriable = True

    def __init__(self, seconds: float) -> None:
        super().__init__(f"the call did not end within {seconds:g} s (call_timeout_seconds) and was cancelled")
        self.seconds = seconds


class NotFoundError(PointsmanError):
    """A topic or cluster is unknown to a name server that is READY."""

    code = "NOT_FOUND"


class TopicNotFoundError(NotFoundError):
    """No broker in the routes has the topic."""

    code = "TOPIC_NOT_FOUND"
    refresh_route = True

    def __init__(
        self, topic: str, *, cluster: str = "", zone: str = "", addrs: Sequence[str] = (), similar: str = ""
    ) -> None:
        """``addrs``: the name servers that do not know it; ``similar``: a known topic with a similar name."""
        where = f" in cluster {cluster}" if cluster else ""
        where += f" in zone {zone}" if zone else ""
        where += f" at {', '.join(addrs)}" if addrs else ""
        if similar:
            where += f"; did you mean {similar}?"
        elif addrs and not is_group_topic(topic):  # Brokers create those of a group.
            where += "; create it, or correct its name"
        super().__init__(f"topic {topic} has no route{where}")
        self.topic = topic
        self.cluster = cluster
        self.zone = zone


class ClusterNotFoundError(NotFoundError):
    """No broker in the routes belongs to the cluster."""

    code = "CLUSTER_NOT_FOUND"

    def __init__(self, cluster: str) -> None:
        super().__init__(f"cluster {cluster} is not known")
        self.cluster = cluster


class OrderTopicConfError(PointsmanError):
    """The route's order-topic configuration cannot be parsed, or a broker name in it is ambiguous."""

    code = "ORDER_TOPIC_CONF_INVALID"
    refresh_route = True

    def __init__(self, topic: str, conf: str, problem: str) -> None:
        super().__init__(f"order topic configuration {conf[:MAX_SHOWN]!r} of topic {topic}: {problem}")
        self.topic = topic
        self.conf = conf
        self.problem = problem


class RequestRejectedError(PointsmanError):
    """A name server rejected the request; another one would reject it, too."""

    code = "REQUEST_REJECTED"

    def __init__(self, addr: str, status: grpc.StatusCode, message: str, details: ErrorDetails) -> None:
        call = f", request {details.request_id}" if details.request_id else ""
        reason = message or "no reason given"
        super().__init__(f"{addr} refused: {reason}" + ("" if is_rocketmq(addr) else f" ({status.name}{call})"))
        self.addr = addr
        self.status = status
        self.message = message
        self.details = details

    @property
    def request_id(self) -> str:
        """Id of the call in the server's log; empty if the server sent none."""
        return self.details.request_id

    @property
    def violations(self) -> Sequence[FieldViolation]:
        """The invalid fields that the server reported."""
        return self.details.violations


class AccessDeniedError(RequestRejectedError):
    """A name server or an agent does not know this client, or has not granted it the required role.

    ``status`` of a RocketMQ name server, which has none, is PERMISSION_DENIED.
    """

    code = "ACCESS_DENIED"

    def __init__(self, addr: str, status: grpc.StatusCode, message: str, details: ErrorDetails) -> None:
        super().__init__(addr, status, message, details)
        self.hint = "grant the role in [[access.grants]] of that server, or use other credentials"
        if status is grpc.StatusCode.UNAUTHENTICATED:
            self.hint = "use credentials that it accepts: a certificate signed by its client CA, or a token"
        if is_rocketmq(addr):
            self.hint = "set rocketmq_access_key to an account that may do this"

    def __str__(self) -> str:
        return f"{super().__str__()}; {self.hint}"


class NameServerFailedError(PointsmanError):
    """One name server sent no usable response; another one may.

    ``status`` is gRPC's. A RocketMQ name server has none: it is the most similar one, and is not in the message.
    """

    code = "NAME_SERVER_FAILED"
    retriable = True

    kind: ClassVar[str] = "a name server"

    def __init__(
        self, addr: str, status: grpc.StatusCode, message: str, *, response_code: int | None = None, remark: str = ""
    ) -> None:
        reason = message or "no reason given"
        if status is grpc.StatusCode.UNIMPLEMENTED:
            reason = f"is not {self.kind}, or runs an older version: {reason}"
        super().__init__(f"{addr}: {reason}" + ("" if is_rocketmq(addr) else f" ({status.name})"))
        self.addr = addr
        self.status = status
        self.message = message
        self.response_code = response_code
        """Of the response of a RocketMQ name server (``ResponseCode``); None: no response, or gRPC."""
        self.remark = remark
        """Of that response: its reason, at most 300 characters."""


class AgentFailedError(NameServerFailedError):
    """One agent sent no usable response."""

    code = "AGENT_FAILED"
    kind = "an agent that serves clients"


class NameServersUnavailableError(PointsmanError):
    """No name server responded within the deadline; ``failures`` has each with its cause."""

    code = "NAME_SERVERS_UNAVAILABLE"
    retriable = True

    def __init__(self, failures: Sequence[NameServerFailedError]) -> None:
        super().__init__("no name server responded: " + "; ".join(str(failure) for failure in failures))
        self.failures = tuple(failures)


class OffsetFileError(PointsmanError):
    """An offset file cannot be read or written now, or has reached its limit."""

    code = "OFFSET_FILE"
    retriable = True

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"offset file {path}: {problem}")
        self.path = path
        self.problem = problem


class AllocationError(PointsmanError, ValueError):
    """The strategy cannot allocate the queues; the message is RocketMQ's where RocketMQ has one."""

    code = "ALLOCATION"


class BrokerError(PointsmanError):
    """An error of a broker, or of the transport to it."""

    code = "BROKER"

    def __init__(self, addr: str, message: str) -> None:
        super().__init__(f"broker {addr}: {message}")
        self.addr = addr
        self.message = message


class BrokerUnreachableError(BrokerError):
    """The broker could not be reached; nothing was written."""

    code = "BROKER_UNREACHABLE"
    retriable = True
    refresh_route = True


class BrokerTimeoutError(BrokerError):
    """The broker did not respond in time; the request may or may not have been executed."""

    code = "BROKER_TIMEOUT"
    retriable = True
    refresh_route = True


class RequesterGoneError(BrokerError):
    """The producer that sent a request is not connected to this broker, so it cannot have the reply from it."""

    code = "REQUESTER_GONE"
    retriable = True


class ResponseCode(IntEnum):
    """Reasons of a rejection, with RocketMQ's numbers (``ResponseCode``)."""

    SYSTEM_ERROR = 1
    SYSTEM_BUSY = 2
    MESSAGE_ILLEGAL = 13
    SERVICE_NOT_AVAILABLE = 14
    NO_PERMISSION = 16
    TOPIC_NOT_EXIST = 17


class BrokerRefusedError(BrokerError):
    """The broker rejected the request."""

    code = "BROKER_REFUSED"
    refresh_route = True

    def __init__(self, addr: str, response_code: int, message: str) -> None:
        super().__init__(addr, message)
        self.response_code = response_code
        """The reason: a :class:`ResponseCode`, or a number of the transport's own."""


class OffsetBeyondEndError(BrokerError):
    """A queue ends before the requested offset: the broker lost messages, or has not received them yet."""

    code = "OFFSET_BEYOND_END"

    def __init__(self, addr: str, queue: str, *, offset: int, end: int) -> None:
        super().__init__(addr, f"{queue} ends at {end}, before offset {offset}")
        self.offset = offset
        self.end = end


class OffsetResetError(PointsmanError):
    """A commit came too late: an operator has reset the offset. The consumer continues at the reset offset."""

    code = "OFFSET_RESET"

    def __init__(self, queue: str, *, offset: int, epoch: int) -> None:
        super().__init__(f"an operator has reset the offset of {queue}: it is {offset} now")
        self.queue = queue
        self.offset = offset
        """The offset now."""
        self.epoch = epoch
        """Of the reset: milliseconds since 1970."""


class LeaseExpiredError(PointsmanError):
    """Messages were not acknowledged within their invisible time; they are delivered again."""

    code = "LEASE_EXPIRED"

    def __init__(self, message_ids: Sequence[str]) -> None:
        named = ", ".join(message_ids[:MAX_NAMED_BROKERS])
        more = f" and {len(message_ids) - MAX_NAMED_BROKERS} more" if len(message_ids) > MAX_NAMED_BROKERS else ""
        super().__init__(
            f"the lease of {named}{more} is over, each is delivered again: raise invisible_seconds, or set renew=True"
        )
        self.message_ids = tuple(message_ids)


class GroupModeError(PointsmanError):
    """A group leases the messages of a topic (``SimpleConsumer``, ``ConsumeMode.POP``) or stores offsets; it cannot do
    both. Of a push consumer it is in ``health()`` and the log."""

    code = "GROUP_MODE"

    def __init__(self, group: str, topic: str, problem: str) -> None:
        super().__init__(f"group {group} cannot read topic {topic}: {problem}")
        self.group = group
        self.topic = topic
        self.problem = problem


class UndecodableMessageError(PointsmanError):
    """A received message whose body the ``serializer`` of the consumer refused; the cause is the serializer's error."""

    code = "UNDECODABLE_MESSAGE"

    def __init__(self, message_id: str, problem: str) -> None:
        super().__init__(f"the body of message {message_id} cannot be decoded: {problem}")
        self.message_id = message_id
        self.problem = problem


class UnreadableMessageError(BrokerError):
    """A message in a queue cannot be read: it is damaged, too large, or compressed by a method that is not installed.

    Pulls that start at its offset raise this again; a seek to the next offset skips it.
    """

    code = "UNREADABLE_MESSAGE"

    def __init__(self, addr: str, queue: str, *, offset: int, problem: str) -> None:
        super().__init__(addr, f"the message at offset {offset} of {queue} cannot be read: {problem}")
        self.offset = offset
        self.problem = problem


@dataclass(frozen=True, slots=True)
class FailedTry:
    """One failed attempt of a send."""

    cluster: str
    broker_name: str
    addr: str
    """Empty: the route has no address of the broker."""
    queue_id: int
    error: PointsmanError
    seconds: float


class SendError(PointsmanError):
    """A message was not sent, or it is unknown whether it was."""

    code = "SEND"
    retriable = True


class SendFailedError(SendError):
    """Every attempt failed; ``tries`` has each broker with its cause."""

    code = "SEND_FAILED"

    def __init__(self, topic: str, tries: Sequence[FailedTry], *, timed_out: bool) -> None:
        causes = "; ".join(f"{each.broker_name} queue {each.queue_id}: {each.error}" for each in tries)
        late = ", timed out" if timed_out else ""
        super().__init__(
            f"Send [{len(tries)}] times, still failed{late}, topic {topic}: {causes or 'no broker was tried'}"
        )
        self.topic = topic
        self.tries = tuple(tries)
        self.timed_out = timed_out


class NoWritableQueueError(SendError):
    """The route currently has no writable queue."""

    code = "NO_WRITABLE_QUEUE"
    refresh_route = True

    def __init__(self, topic: str, why: str) -> None:
        super().__init__(f"topic {topic} has no writable queue: {why}")
        self.topic = topic
        self.why = why


@dataclass(frozen=True, slots=True)
class AbsentBroker:
    """A broker of a topic that is not in the routes, with the reason."""

    cluster: str
    broker_name: str
    broker_id: int
    addr: str
    is_registered: bool
    """Whether its agent is still registered; its probe then fails."""
    reason: str
    """SILENCE, STREAM_BROKEN, PROBE, REFUSED, ...; empty: the name server sent none."""
    since: datetime | None
    """UTC; None: unknown since a restart of the name server."""

    def __str__(self) -> str:
        """``c1/broker-a/0 SILENCE since 2026-03-01T12:00:00Z``."""
        since = f" since {self.since:%Y-%m-%dT%H:%M:%SZ}" if self.since is not None else ""
        return f"{self.cluster}/{self.broker_name}/{self.broker_id} {self.reason or 'down'}{since}"


class NoBrokerUpError(SendError):
    """All brokers of a known topic are down: an outage. An unknown topic is :class:`TopicNotFoundError`."""

    code = "NO_BROKER_UP"
    retriable = True
    refresh_route = True

    def __init__(self, topic: str, brokers: Sequence[AbsentBroker]) -> None:
        named = "; ".join(map(str, brokers[:MAX_NAMED_BROKERS]))
        more = f" and {len(brokers) - MAX_NAMED_BROKERS} more" if len(brokers) > MAX_NAMED_BROKERS else ""
        super().__init__(f"no broker of topic {topic} is up: {named}{more}; retry when one is back")
        self.topic = topic
        self.brokers = tuple(brokers)
        """Each with the reason and the start of its absence."""


class QueueUnavailableError(SendError):
    """The requested queue cannot be written now, and ``on_unavailable`` is ``"raise"``."""

    code = "QUEUE_UNAVAILABLE"
    refresh_route = True

    def __init__(self, queue: str, why: str) -> None:
        super().__init__(f"{queue} cannot be written: {why}")
        self.queue = queue
        self.why = why


class OutboxFullError(SendError):
    """The outbox has reached its size limit."""

    code = "OUTBOX_FULL"

    def __init__(self, path: str, allowed: int) -> None:
        super().__init__(
            f"outbox {path} is full ({allowed} bytes): wait until parked messages are sent, or raise max_bytes"
        )
        self.path = path
        self.allowed = allowed


class OutboxFailedError(SendError):
    """The outbox cannot be used, or a message cannot be written to it."""

    code = "OUTBOX_FAILED"

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"outbox {path}: {why}")
        self.path = path
        self.why = why


class NoReplyError(SendError):
    """A request was sent, and no reply came in time."""

    code = "NO_REPLY"
    retriable = True

    def __init__(self, topic: str, message_id: str, seconds: float) -> None:
        super().__init__(f"no reply to message {message_id} of {topic} within {seconds:.3g} s")
        self.topic = topic
        self.message_id = message_id
        self.seconds = seconds


class TooManyInFlightError(SendError):
    """The limit of messages in flight is reached."""

    code = "TOO_MANY_IN_FLIGHT"

    def __init__(self, count: int, size: int) -> None:
        super().__init__(
            f"{count} messages with {size} bytes are in flight: wait for callbacks, or raise "
            "back_pressure_for_async_send_num and back_pressure_for_async_send_size"
        )
        self.count = count
        self.size = size
