"""What can go wrong, as types.

::

    PointsmanError
    ├── InvalidInputError (a ValueError)   InvalidNameError, InvalidAddressError, InvalidOptionError,
    │                                      InvalidMessageError, MessageTooLargeError
    ├── ClientStateError (a RuntimeError)  ClientNotStartedError, ClientClosedError, WrongEventLoopError, ForkedError,
    │                                      BlockingCallError
    ├── CallTimeoutError                   a call of the synchronous facade did not end
    ├── NotFoundError                      TopicNotFoundError, ClusterNotFoundError
    ├── OrderTopicConfError                the route carries a configuration that cannot be read
    ├── RequestRejectedError               a name server answered no, and another would say the same;
    │                                      AccessDeniedError: for want of credentials or of a role
    ├── NameServerFailedError              one name server did not answer; AgentFailedError: one agent
    ├── NameServersUnavailableError        none of them did
    ├── OffsetFileError                    a file of offsets cannot be read or written
    ├── AllocationError                    queues cannot be shared out so
    ├── BrokerError                        a broker, or what speaks to it:
    │   ├── BrokerUnreachableError         it could not be spoken to
    │   ├── BrokerTimeoutError             it did not answer in time
    │   ├── BrokerRefusedError             it answered no, for a reason with a code
    │   ├── OffsetBeyondEndError           the queue ends before the offset
    │   └── UnreadableMessageError         a message in a queue cannot be read
    └── SendError                          a message was not sent: SendFailedError, NoWritableQueueError,
                                           NoBrokerUpError, QueueUnavailableError, OutboxFullError, OutboxFailedError,
                                           TooManyInFlightError

Facts are attributes; the text is built from them. ``retriable``: the same call may succeed later. ``refresh_route``:
a newer route may help.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar

import grpc

from pointsman.wire.error_details import ErrorDetails
from pointsman.wire.refusals import FieldViolation
from pointsman_client.core.route import AbsentBroker

MAX_NAMED_BROKERS = 3
"""Absent brokers that an error's text names; its attribute has all."""


class PointsmanError(Exception):
    """Base of all errors that this library raises on purpose."""

    code: ClassVar[str] = "POINTSMAN_ERROR"
    """Stable name for logs and machine-readable output."""
    retriable: ClassVar[bool] = False
    refresh_route: ClassVar[bool] = False


class InvalidInputError(PointsmanError, ValueError):
    """An argument was refused before any call was made."""

    code = "INVALID_INPUT"


class InvalidNameError(InvalidInputError):
    """A topic, cluster or broker name outside RocketMQ's grammar."""

    def __init__(self, kind: str, name: object, problem: str) -> None:
        super().__init__(f"{kind} {name!r} {problem}")
        self.kind = kind
        self.name = name
        self.problem = problem


class InvalidAddressError(InvalidInputError):
    """A name server address or address list that cannot be used."""


class InvalidOptionError(InvalidInputError):
    """A setting out of bounds."""

    def __init__(self, option: str, value: object, problem: str) -> None:
        super().__init__(f"{option} = {value!r} {problem}")
        self.option = option
        self.value = value
        self.problem = problem


class InvalidMessageError(InvalidInputError):
    """A message that no broker would be asked to take."""

    code = "INVALID_MESSAGE"

    def __init__(self, field: str, value: object, problem: str, *, of_type: bool = False) -> None:
        """``of_type``: the type is wrong, so the text names it in place of the value."""
        super().__init__(
            f"{field} {problem}, got {type(value).__name__}" if of_type else f"{field} {value!r} {problem}"
        )
        self.field = field
        self.value = value
        self.problem = problem


class MessageTooLargeError(InvalidInputError):
    """A message above ``max_message_size``."""

    code = "MESSAGE_TOO_LARGE"

    def __init__(self, topic: str, size: int, allowed: int) -> None:
        super().__init__(f"a message to {topic} has {size} bytes, at most {allowed} are allowed (max_message_size)")
        self.topic = topic
        self.size = size
        self.allowed = allowed


class ClientStateError(PointsmanError, RuntimeError):
    """The client, producer or consumer was used at a time or place where it cannot work."""

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
    """Used from another event loop than the one it was started in, or from a thread without one."""

    def __init__(self) -> None:
        super().__init__(
            "the client belongs to another event loop: start one client in each event loop, and in threads without one "
            "use the class of the same name in pointsman_client.sync"
        )


class ForkedError(ClientStateError):
    """Used in a process that was forked after the start."""

    def __init__(self) -> None:
        super().__init__("the process was forked after the client was started: make a new client in the child")


class BlockingCallError(ClientStateError):
    """A call of the synchronous facade where blocking would stop an event loop."""

    def __init__(self) -> None:
        super().__init__(
            "an event loop runs in this thread, and a blocking call would stop it: use the class of the same name in "
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
    """A name server that is ready knows no such thing."""

    code = "NOT_FOUND"


class TopicNotFoundError(NotFoundError):
    """No broker in the routes has the topic."""

    code = "TOPIC_NOT_FOUND"
    refresh_route = True

    def __init__(
        self, topic: str, *, cluster: str = "", zone: str = "", addrs: Sequence[str] = (), similar: str = ""
    ) -> None:
        """``addrs``: the name servers that do not know it; ``similar``: a topic that may be meant."""
        where = f" in cluster {cluster}" if cluster else ""
        where += f" in zone {zone}" if zone else ""
        where += f" at {', '.join(addrs)}" if addrs else ""
        where += f"; did you mean {similar}?" if similar else ""
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
    """The route's order-topic configuration cannot be read or names a broker that is not one broker."""

    code = "ORDER_TOPIC_CONF_INVALID"
    refresh_route = True

    def __init__(self, topic: str, conf: str, problem: str) -> None:
        super().__init__(f"order topic configuration {conf!r} of topic {topic}: {problem}")
        self.topic = topic
        self.conf = conf
        self.problem = problem


class RequestRejectedError(PointsmanError):
    """A name server refused the request; asking another would not help."""

    code = "REQUEST_REJECTED"

    def __init__(self, addr: str, status: grpc.StatusCode, message: str, details: ErrorDetails) -> None:
        call = f", request {details.request_id}" if details.request_id else ""
        super().__init__(f"{addr} refused: {message or 'no reason given'} ({status.name}{call})")
        self.addr = addr
        self.status = status
        self.message = message
        self.details = details

    @property
    def request_id(self) -> str:
        """What names the call in the server's log; empty if the server gave none."""
        return self.details.request_id

    @property
    def violations(self) -> Sequence[FieldViolation]:
        """Each field that was wrong, as far as the server said."""
        return self.details.violations


class AccessDeniedError(RequestRejectedError):
    """A name server or an agent does not know this client, or has not granted it the role that the call needs."""

    code = "ACCESS_DENIED"

    def __init__(self, addr: str, status: grpc.StatusCode, message: str, details: ErrorDetails) -> None:
        super().__init__(addr, status, message, details)
        self.hint = "grant the role in [[access.grants]] of that server, or use other credentials"
        if status is grpc.StatusCode.UNAUTHENTICATED:
            self.hint = "use credentials that it knows: a certificate that its client CA signed, or a token"

    def __str__(self) -> str:
        return f"{super().__str__()}; {self.hint}"


class NameServerFailedError(PointsmanError):
    """One name server gave no answer that can be used; another may."""

    code = "NAME_SERVER_FAILED"
    retriable = True

    kind: ClassVar[str] = "a name server"

    def __init__(self, addr: str, status: grpc.StatusCode, message: str) -> None:
        said = message or "no reason given"
        if status is grpc.StatusCode.UNIMPLEMENTED:
            said = f"is not {self.kind}, or one of an older version: {said}"
        super().__init__(f"{addr}: {said} ({status.name})")
        self.addr = addr
        self.status = status
        self.message = message


class AgentFailedError(NameServerFailedError):
    """One agent gave no answer that can be used. To whoever asks, it is a node like a name server."""

    code = "AGENT_FAILED"
    kind = "an agent that serves clients"


class NameServersUnavailableError(PointsmanError):
    """None of the name servers answered within the deadline; ``failures`` holds each with its cause."""

    code = "NAME_SERVERS_UNAVAILABLE"
    retriable = True

    def __init__(self, failures: Sequence[NameServerFailedError]) -> None:
        super().__init__("no name server answered: " + "; ".join(str(failure) for failure in failures))
        self.failures = tuple(failures)


class OffsetFileError(PointsmanError):
    """A file of offsets cannot be read or written now, or holds as much as it may."""

    code = "OFFSET_FILE"
    retriable = True

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"the file of offsets {path}: {problem}")
        self.path = path
        self.problem = problem


class AllocationError(PointsmanError, ValueError):
    """Queues cannot be shared out so; the text is RocketMQ's where RocketMQ has one."""

    code = "ALLOCATION"


class BrokerError(PointsmanError):
    """A broker, or what speaks to it."""

    code = "BROKER"

    def __init__(self, addr: str, message: str) -> None:
        super().__init__(f"broker {addr}: {message}")
        self.addr = addr
        self.message = message


class BrokerUnreachableError(BrokerError):
    """The broker could not be spoken to; nothing was written."""

    code = "BROKER_UNREACHABLE"
    retriable = True
    refresh_route = True


class BrokerTimeoutError(BrokerError):
    """The broker did not answer in time: what it was asked may be done or not."""

    code = "BROKER_TIMEOUT"
    retriable = True
    refresh_route = True


class ResponseCode(IntEnum):
    """Reasons for a no, with RocketMQ's numbers (``ResponseCode``)."""

    SYSTEM_ERROR = 1
    SYSTEM_BUSY = 2
    MESSAGE_ILLEGAL = 13
    SERVICE_NOT_AVAILABLE = 14
    NO_PERMISSION = 16
    TOPIC_NOT_EXIST = 17


class BrokerRefusedError(BrokerError):
    """The broker answered no."""

    code = "BROKER_REFUSED"
    refresh_route = True

    def __init__(self, addr: str, response_code: int, message: str) -> None:
        super().__init__(addr, message)
        self.response_code = response_code
        """RocketMQ's number for the reason: :class:`ResponseCode`, or another transport's own."""


class OffsetBeyondEndError(BrokerError):
    """A queue ends before the offset that was asked for: the broker lost messages, or they have not come there yet."""

    code = "OFFSET_BEYOND_END"

    def __init__(self, addr: str, queue: str, *, offset: int, end: int) -> None:
        super().__init__(addr, f"{queue} ends at {end}, before offset {offset}")
        self.offset = offset
        self.end = end


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
    """One try of a send."""

    cluster: str
    broker_name: str
    addr: str
    """Empty: the route has no address for it."""
    queue_id: int
    error: PointsmanError
    seconds: float


class SendError(PointsmanError):
    """A message was not sent, or not known to be."""

    code = "SEND"
    retriable = True


class SendFailedError(SendError):
    """Every try failed; ``tries`` has each broker with its cause."""

    code = "SEND_FAILED"

    def __init__(self, topic: str, tries: Sequence[FailedTry], *, timed_out: bool) -> None:
        said = "; ".join(f"{each.broker_name} queue {each.queue_id}: {each.error}" for each in tries)
        late = ", out of time" if timed_out else ""
        super().__init__(
            f"Send [{len(tries)}] times, still failed{late}, topic {topic}: {said or 'no broker was tried'}"
        )
        self.topic = topic
        self.tries = tuple(tries)
        self.timed_out = timed_out


class NoWritableQueueError(SendError):
    """The route has no queue that may be written now."""

    code = "NO_WRITABLE_QUEUE"
    refresh_route = True

    def __init__(self, topic: str, why: str) -> None:
        super().__init__(f"topic {topic} has no queue that may be written: {why}")
        self.topic = topic
        self.why = why


class NoBrokerUpError(SendError):
    """The topic is known, and none of its brokers is up: an outage. An unknown topic is :class:`TopicNotFoundError`."""

    code = "NO_BROKER_UP"
    retriable = True
    refresh_route = True

    def __init__(self, topic: str, brokers: Sequence[AbsentBroker]) -> None:
        named = "; ".join(map(str, brokers[:MAX_NAMED_BROKERS]))
        more = f" and {len(brokers) - MAX_NAMED_BROKERS} more" if len(brokers) > MAX_NAMED_BROKERS else ""
        super().__init__(f"no broker of topic {topic} is up: {named}{more}; retry when one is back")
        self.topic = topic
        self.brokers = tuple(brokers)
        """Why each is absent, and since when."""


class QueueUnavailableError(SendError):
    """The queue that was asked for cannot be written now, and ``on_unavailable`` says to raise."""

    code = "QUEUE_UNAVAILABLE"
    refresh_route = True

    def __init__(self, queue: str, why: str) -> None:
        super().__init__(f"{queue} cannot be written: {why}")
        self.queue = queue
        self.why = why


class OutboxFullError(SendError):
    """The outbox of parked messages has reached its bound."""

    code = "OUTBOX_FULL"

    def __init__(self, path: str, allowed: int) -> None:
        super().__init__(f"outbox {path} holds its {allowed} bytes: wait until parked messages are sent")
        self.path = path
        self.allowed = allowed


class OutboxFailedError(SendError):
    """The outbox cannot be used, or a message cannot be written to it."""

    code = "OUTBOX_FAILED"

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"outbox {path}: {why}")
        self.path = path
        self.why = why


class TooManyInFlightError(SendError):
    """As many messages are on their way as may be at the same time."""

    code = "TOO_MANY_IN_FLIGHT"

    def __init__(self, count: int, size: int) -> None:
        super().__init__(
            f"{count} messages with {size} bytes are on their way: wait for callbacks, or raise "
            "back_pressure_for_async_send_num and back_pressure_for_async_send_size"
        )
        self.count = count
        self.size = size
