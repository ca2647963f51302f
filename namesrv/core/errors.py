"""What the core refuses, and why.

NameServerError
├── InvalidRequest          INVALID_REQUEST      a field breaks a rule; names each
├── TopicNotFound           TOPIC_NOT_FOUND      no broker in the routes has the topic
├── ClusterNotFound         CLUSTER_NOT_FOUND    no broker is known in the cluster
├── BrokerUnknown           BROKER_UNKNOWN       nobody holds the identity
├── IdentityHeld            IDENTITY_HELD        a living holder has a higher state version
├── StaleGeneration         STALE_GENERATION     another registration holds the identity
└── StaleDataVersion        STALE_DATA_VERSION   a delta on a base that is not the version held

Facts are attributes; the text is built from them. ``rpc/status.py`` maps each to its gRPC status.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from namesrv.core.events import Event
from namesrv.core.model import BrokerIdentity, DataVersion
from pointsman.wire.violation import FieldViolation


class NameServerError(Exception):
    """Base of all refusals."""

    code: ClassVar[str]
    """Stable name on the wire."""
    event: Event | None = None
    """What the history should remember of the refusal, if anything."""

    @property
    def facts(self) -> Mapping[str, str]:
        """What a program needs beside the text."""
        return {}


class InvalidRequest(NameServerError):
    """One or more fields break a rule."""

    code = "INVALID_REQUEST"

    def __init__(self, violations: Sequence[FieldViolation]) -> None:
        first = violations[0]
        more = f" (the first of {len(violations)} faults)" if len(violations) > 1 else ""
        super().__init__(f"{first.field} {first.description}{more}")
        self.violations = tuple(violations)


class TopicNotFound(NameServerError):
    """No broker in the routes has the topic."""

    code = "TOPIC_NOT_FOUND"

    def __init__(self, topic: str, cluster: str) -> None:
        super().__init__(f"no broker{f' of cluster {cluster}' if cluster else ''} has topic {topic}")
        self.topic = topic


class ClusterNotFound(NameServerError):
    """No broker is known in the cluster."""

    code = "CLUSTER_NOT_FOUND"

    def __init__(self, cluster: str) -> None:
        super().__init__(f"no broker is known in cluster {cluster}")
        self.cluster = cluster


class BrokerUnknown(NameServerError):
    """Nobody holds the identity."""

    code = "BROKER_UNKNOWN"

    def __init__(self, identity: BrokerIdentity) -> None:
        super().__init__(f"broker {identity} is not registered")
        self.identity = identity


class IdentityHeld(NameServerError):
    """A living holder has a higher state version than the claim."""

    code = "IDENTITY_HELD"

    def __init__(
        self, identity: BrokerIdentity, *, holder_addr: str, held: DataVersion, claimed: DataVersion, event: Event
    ) -> None:
        super().__init__(
            f"broker {identity} is held by {holder_addr} with state version {held.state_version}, "
            f"above the claimed {claimed.state_version}"
        )
        self.holder_addr = holder_addr
        self.event = event

    @property
    def facts(self) -> Mapping[str, str]:
        """The holder."""
        return {"holder_addr": self.holder_addr}


class StaleGeneration(NameServerError):
    """Another registration holds the identity."""

    code = "STALE_GENERATION"

    def __init__(self, identity: BrokerIdentity, *, generation: int, holder_addr: str) -> None:
        super().__init__(f"generation {generation} of broker {identity} is over; the holder is {holder_addr}")
        self.holder_addr = holder_addr

    @property
    def facts(self) -> Mapping[str, str]:
        """The holder."""
        return {"holder_addr": self.holder_addr}


class StaleDataVersion(NameServerError):
    """A delta does not start from the version held here."""

    code = "STALE_DATA_VERSION"

    def __init__(self, identity: BrokerIdentity, *, held: DataVersion, base: DataVersion) -> None:
        super().__init__(f"broker {identity} has data version {held} here, the change starts from {base}")
        self.held = held

    @property
    def facts(self) -> Mapping[str, str]:
        """The version held."""
        return {"held_data_version": str(self.held)}
