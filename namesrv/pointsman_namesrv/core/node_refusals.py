"""Refusals of the core.

Refusal (``wire/refusals.py``, with the ones that both daemons have)
├── LimitExceeded           LIMIT_EXCEEDED       a bound of this server is reached
├── TopicNotFound           TOPIC_NOT_FOUND      no broker in the routes has the topic
├── TopicHeld               TOPIC_HELD           brokers hold the topic that is to be deleted
├── SettingNotSaved         SETTING_NOT_SAVED    a setting could not be written to disk; it was not changed
├── KvNotFound              KV_NOT_FOUND         there is no such key in the KV configuration
├── ClusterNotFound         CLUSTER_NOT_FOUND    no broker is known in the cluster
├── BrokerUnknown           BROKER_UNKNOWN       no broker holds the identity
├── IdentityHeld            IDENTITY_HELD        a running holder has a higher state version
├── FirstOfOneTopic         FIRST_OF_ONE_TOPIC   RocketMQ's wire: one topic of a broker that is not registered
├── HeldByAgent             HELD_BY_AGENT        RocketMQ's wire: a broker's agent registered it with another address
├── NotUnregistered         NOT_UNREGISTERED     RocketMQ's wire: a request to unregister that is not the broker's own
├── StaleGeneration         STALE_GENERATION     another registration holds the identity
└── StaleDataVersion        STALE_DATA_VERSION   a delta on a base that is not the version held

Facts are attributes, and the message is built from them. ``status`` is the name of the gRPC status code, also for those
that occur on RocketMQ's wire alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pointsman.wire import refusals
from pointsman.wire.refusals import Refusal
from pointsman_namesrv.core.events import Event
from pointsman_namesrv.core.model import BrokerIdentity, DataVersion, GroupKey, Position

MOST_NAMED_CHARACTERS = 1_200
"""Brokers named in an error. It travels in trailers, three times over, which gRPC limits to 8 KiB."""


class LimitExceeded(refusals.LimitExceeded):
    """A bound of this server is reached."""

    server = "this name server"


class TopicNotFound(Refusal):
    """No broker in the routes has the topic."""

    code = "TOPIC_NOT_FOUND"
    status = "NOT_FOUND"

    def __init__(self, topic: str, cluster: str) -> None:
        super().__init__(f"no broker{f' of cluster {cluster}' if cluster else ''} has topic {topic}")
        self.topic = topic


class TopicHeld(Refusal):
    """Brokers hold the topic that is to be deleted."""

    code = "TOPIC_HELD"
    status = "FAILED_PRECONDITION"

    def __init__(self, topic: str, holders: Sequence[GroupKey]) -> None:
        brokers = [f"{key.cluster}/{key.broker_name}" for key in holders]
        room, named = MOST_NAMED_CHARACTERS, list[str]()
        for broker in brokers:
            room -= len(broker) + 2
            if room < 0:
                break
            named.append(broker)
        more = f" and {len(brokers) - len(named)} more" if len(named) < len(brokers) else ""
        super().__init__(f"topic {topic} is held by {', '.join(named)}{more}")
        self.topic = topic
        self.brokers = tuple(brokers)
        self._named = named

    @property
    def facts(self) -> Mapping[str, str]:
        """The brokers as cluster/name, of very many the first, and how many there are."""
        return {"brokers": ",".join(self._named), "broker_count": str(len(self.brokers))}


class SettingNotSaved(Refusal):
    """A setting could not be written to disk, so a restart would lose it. It was not changed."""

    code = "SETTING_NOT_SAVED"
    status = "FAILED_PRECONDITION"

    def __init__(self, problem: str) -> None:
        super().__init__(f"the setting was not changed, because it could not be saved: {problem}")
        self.problem = problem


class KvNotFound(Refusal):
    """There is no such key in the KV configuration."""

    code = "KV_NOT_FOUND"
    status = "NOT_FOUND"

    def __init__(self, namespace: str, key: str) -> None:
        super().__init__(f"the KV configuration has no key {key} in namespace {namespace}")
        self.namespace = namespace
        self.key = key


class ClusterNotFound(Refusal):
    """No broker is known in the cluster."""

    code = "CLUSTER_NOT_FOUND"
    status = "NOT_FOUND"

    def __init__(self, cluster: str) -> None:
        super().__init__(f"no broker is known in cluster {cluster}")
        self.cluster = cluster


class BrokerUnknown(Refusal):
    """No broker holds the identity."""

    code = "BROKER_UNKNOWN"
    status = "NOT_FOUND"

    def __init__(self, who: BrokerIdentity | Position | GroupKey) -> None:
        super().__init__(f"broker {who} is not registered")


class IdentityHeld(Refusal):
    """A running holder has a higher state version than the claim."""

    code = "IDENTITY_HELD"
    status = "ALREADY_EXISTS"

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
        """Return the holder."""
        return {"holder_addr": self.holder_addr}


class FirstOfOneTopic(Refusal):
    """A first registration with exactly one topic: a change of a table that this server does not have (RocketMQ 5)."""

    code = "FIRST_OF_ONE_TOPIC"
    status = "FAILED_PRECONDITION"

    def __init__(self) -> None:
        super().__init__("register broker failed")


class HeldByAgent(Refusal):
    """The agent of a broker at another address holds the position."""

    code = "HELD_BY_AGENT"
    status = "ALREADY_EXISTS"

    def __init__(self, identity: BrokerIdentity, *, holder_addr: str) -> None:
        super().__init__(f"broker {identity} is registered by its agent as {holder_addr}")


class NotUnregistered(Refusal):
    """A broker remains registered, because the request is not its own."""

    code = "NOT_UNREGISTERED"
    status = "FAILED_PRECONDITION"

    def __init__(self, identity: BrokerIdentity, why: str) -> None:
        super().__init__(f"broker {identity} was not unregistered: {why}")


class StaleGeneration(Refusal):
    """Another registration holds the identity."""

    code = "STALE_GENERATION"
    status = "FAILED_PRECONDITION"

    def __init__(self, identity: BrokerIdentity, *, generation: int, holder_addr: str) -> None:
        super().__init__(f"generation {generation} of broker {identity} is superseded by {holder_addr}")
        self.holder_addr = holder_addr

    @property
    def facts(self) -> Mapping[str, str]:
        """Return the holder."""
        return {"holder_addr": self.holder_addr}


class StaleDataVersion(Refusal):
    """A delta does not start from the version held here."""

    code = "STALE_DATA_VERSION"
    status = "FAILED_PRECONDITION"

    def __init__(self, identity: BrokerIdentity, *, held: DataVersion, base: DataVersion) -> None:
        super().__init__(f"broker {identity} has data version {held} here, the change starts from {base}")
        self.held = held

    @property
    def facts(self) -> Mapping[str, str]:
        """Return the version held."""
        return {"held_data_version": str(self.held)}
