"""What can go wrong, as types.

::

    PointsmanError
    ├── InvalidInputError (a ValueError)   InvalidNameError, InvalidAddressError, InvalidOptionError
    ├── ClientStateError (a RuntimeError)  ClientNotStartedError, ClientClosedError, WrongEventLoopError
    ├── NotFoundError                      TopicNotFoundError, ClusterNotFoundError
    ├── OrderTopicConfError                the route carries a configuration that cannot be read
    ├── RequestRejectedError               a name server answered no, and another would say the same
    ├── NameServerFailedError              one name server did not answer
    └── NameServersUnavailableError        none of them did

Facts are attributes; the text is built from them. ``retriable``: the same call may succeed later. ``refresh_route``:
a newer route may help.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import grpc

from pointsman.wire.errors import ErrorDetails
from pointsman.wire.violation import FieldViolation


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


class ClientStateError(PointsmanError, RuntimeError):
    """The client was used at a time or place where it cannot work."""

    code = "CLIENT_STATE"


class ClientNotStartedError(ClientStateError):
    """Used before ``start()``."""

    def __init__(self) -> None:
        super().__init__("the client is not started: use `async with NameServerClient(...)` or await start()")


class ClientClosedError(ClientStateError):
    """Used after ``close()``, or closed while waiting."""

    def __init__(self) -> None:
        super().__init__("the client is closed: make a new NameServerClient")


class WrongEventLoopError(ClientStateError):
    """Used from another event loop than the one it was started in."""

    def __init__(self) -> None:
        super().__init__("the client belongs to another event loop: start one client in each event loop")


class NotFoundError(PointsmanError):
    """A name server that is ready knows no such thing."""

    code = "NOT_FOUND"


class TopicNotFoundError(NotFoundError):
    """No broker in the routes has the topic."""

    code = "TOPIC_NOT_FOUND"
    refresh_route = True

    def __init__(self, topic: str, *, cluster: str = "", zone: str = "") -> None:
        where = f" in cluster {cluster}" if cluster else ""
        where += f" in zone {zone}" if zone else ""
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
        super().__init__(f"{addr} refused: {message or 'no reason given'} ({status.name})")
        self.addr = addr
        self.status = status
        self.message = message
        self.details = details

    @property
    def violations(self) -> Sequence[FieldViolation]:
        """Each field that was wrong, as far as the server said."""
        return self.details.violations


class NameServerFailedError(PointsmanError):
    """One name server gave no answer that can be used; another may."""

    code = "NAME_SERVER_FAILED"
    retriable = True

    def __init__(self, addr: str, status: grpc.StatusCode, message: str) -> None:
        super().__init__(f"{addr}: {message or 'no reason given'} ({status.name})")
        self.addr = addr
        self.status = status
        self.message = message


class NameServersUnavailableError(PointsmanError):
    """None of the name servers answered within the deadline; ``failures`` holds each with its cause."""

    code = "NAME_SERVERS_UNAVAILABLE"
    retriable = True

    def __init__(self, failures: Sequence[NameServerFailedError]) -> None:
        super().__init__("no name server answered: " + "; ".join(str(failure) for failure in failures))
        self.failures = tuple(failures)
