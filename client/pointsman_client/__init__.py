"""Pointsman's client: routes, producers and consumers. Applications import the public API from here.

Transports are imported from their own modules, since each requires its own library.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pointsman.wire.credentials import Credentials
    from pointsman_client.client import NameServerClient
    from pointsman_client.consumer.pull_consumer import PullConsumer
    from pointsman_client.consumer.push_consumer import PushConsumer
    from pointsman_client.consumer.simple_consumer import SimpleConsumer
    from pointsman_client.core.allocation import (
        AllocationRequest,
        AllocationStrategy,
        Averagely,
        AveragelyByCircle,
        ByConfig,
        ConsistentHash,
        MachineRoom,
        MachineRoomNearby,
        MachineRoomResolver,
        Pinned,
        RoomByNameOrZone,
        to_strategy,
    )
    from pointsman_client.core.consumer_health import ConsumerHealth
    from pointsman_client.core.fault_strategy import NEWER_FAULT_RULES, OLDER_FAULT_RULES, FaultRules
    from pointsman_client.core.lease import ConsumeMode
    from pointsman_client.core.message import Message, OutgoingMessage, ReceivedMessage
    from pointsman_client.core.message_queue import MessageQueue, to_publish_queues, to_subscribe_queues
    from pointsman_client.core.rebalance import ConsumeFrom, MessageModel
    from pointsman_client.core.request_signature import AccessKey
    from pointsman_client.core.retry_rules import ConsumeResult, Reject
    from pointsman_client.core.route import (
        BrokerData,
        BrokerReplica,
        BrokerState,
        ClusterData,
        QueueData,
        Revision,
        RouteChange,
        TopicRoute,
    )
    from pointsman_client.core.send_outcome import RETRY_RESPONSE_CODES, SendResult, SendStatus
    from pointsman_client.core.serializer import Serializer
    from pointsman_client.core.sharding import ExplicitTable, HashRing, ModuloMap, QueueOfKey, ShardingMap, SubShards
    from pointsman_client.core.subscription import SqlFilter
    from pointsman_client.core.transactions import TransactionState
    from pointsman_client.errors import (
        AbsentBroker,
        AccessDeniedError,
        AgentFailedError,
        AllocationError,
        BlockingCallError,
        BrokerError,
        BrokerRefusedError,
        BrokerTimeoutError,
        BrokerUnreachableError,
        CallTimeoutError,
        ClientClosedError,
        ClientNotStartedError,
        ClientStateError,
        ClusterNotFoundError,
        FailedTry,
        ForkedError,
        GroupModeError,
        InvalidAddressError,
        InvalidInputError,
        InvalidMessageError,
        InvalidNameError,
        InvalidOptionError,
        LeaseExpiredError,
        MessageTooLargeError,
        NameServerFailedError,
        NameServersUnavailableError,
        NoBrokerUpError,
        NoReplyError,
        NotFoundError,
        NoWritableQueueError,
        OffsetBeyondEndError,
        OffsetFileError,
        OffsetResetError,
        OrderTopicConfError,
        OutboxFailedError,
        OutboxFullError,
        PointsmanError,
        QueueUnavailableError,
        RequesterGoneError,
        RequestRejectedError,
        ResponseCode,
        SendError,
        SendFailedError,
        TooManyInFlightError,
        TopicNotFoundError,
        UndecodableMessageError,
        UnreadableMessageError,
        WrongEventLoopError,
    )
    from pointsman_client.metrics_hook import MetricsHook
    from pointsman_client.ports.transport import PulledMessages, Reader, SendReceipt, SendsBack, Transport
    from pointsman_client.producer.outbox import Outbox
    from pointsman_client.producer.producer import Producer
    from pointsman_client.producer.producer_options import Fallback, Park
    from pointsman_client.producer.transaction import Transaction
    from pointsman_client.producer.transaction_producer import TransactionProducer
    from pointsman_client.routes.route_watch import RouteChanges
    from pointsman_client.tracing_hook import SendSpan, TracingHook

__version__ = "0.2.0.dev0"

__all__ = [
    "NEWER_FAULT_RULES",
    "OLDER_FAULT_RULES",
    "RETRY_RESPONSE_CODES",
    "AbsentBroker",
    "AccessDeniedError",
    "AccessKey",
    "AgentFailedError",
    "AllocationError",
    "AllocationRequest",
    "AllocationStrategy",
    "Averagely",
    "AveragelyByCircle",
    "BlockingCallError",
    "BrokerData",
    "BrokerError",
    "BrokerRefusedError",
    "BrokerReplica",
    "BrokerState",
    "BrokerTimeoutError",
    "BrokerUnreachableError",
    "ByConfig",
    "CallTimeoutError",
    "ClientClosedError",
    "ClientNotStartedError",
    "ClientStateError",
    "ClusterData",
    "ClusterNotFoundError",
    "ConsistentHash",
    "ConsumeFrom",
    "ConsumeMode",
    "ConsumeResult",
    "ConsumerHealth",
    "Credentials",
    "ExplicitTable",
    "FailedTry",
    "Fallback",
    "FaultRules",
    "ForkedError",
    "GroupModeError",
    "HashRing",
    "InvalidAddressError",
    "InvalidInputError",
    "InvalidMessageError",
    "InvalidNameError",
    "InvalidOptionError",
    "LeaseExpiredError",
    "MachineRoom",
    "MachineRoomNearby",
    "MachineRoomResolver",
    "Message",
    "MessageModel",
    "MessageQueue",
    "MessageTooLargeError",
    "MetricsHook",
    "ModuloMap",
    "NameServerClient",
    "NameServerFailedError",
    "NameServersUnavailableError",
    "NoBrokerUpError",
    "NoReplyError",
    "NoWritableQueueError",
    "NotFoundError",
    "OffsetBeyondEndError",
    "OffsetFileError",
    "OffsetResetError",
    "OrderTopicConfError",
    "Outbox",
    "OutboxFailedError",
    "OutboxFullError",
    "OutgoingMessage",
    "Park",
    "Pinned",
    "PointsmanError",
    "Producer",
    "PullConsumer",
    "PulledMessages",
    "PushConsumer",
    "QueueData",
    "QueueOfKey",
    "QueueUnavailableError",
    "Reader",
    "ReceivedMessage",
    "Reject",
    "RequestRejectedError",
    "RequesterGoneError",
    "ResponseCode",
    "Revision",
    "RoomByNameOrZone",
    "RouteChange",
    "RouteChanges",
    "SendError",
    "SendFailedError",
    "SendReceipt",
    "SendResult",
    "SendSpan",
    "SendStatus",
    "SendsBack",
    "Serializer",
    "ShardingMap",
    "SimpleConsumer",
    "SqlFilter",
    "SubShards",
    "TooManyInFlightError",
    "TopicNotFoundError",
    "TopicRoute",
    "TracingHook",
    "Transaction",
    "TransactionProducer",
    "TransactionState",
    "Transport",
    "UndecodableMessageError",
    "UnreadableMessageError",
    "WrongEventLoopError",
    "to_publish_queues",
    "to_strategy",
    "to_subscribe_queues",
]

_NAMES_OF = {
    "pointsman.wire.credentials": "Credentials",
    "pointsman_client.client": "NameServerClient",
    "pointsman_client.consumer.pull_consumer": "PullConsumer",
    "pointsman_client.consumer.push_consumer": "PushConsumer",
    "pointsman_client.consumer.simple_consumer": "SimpleConsumer",
    "pointsman_client.core.allocation": (
        "AllocationRequest AllocationStrategy Averagely AveragelyByCircle ByConfig ConsistentHash MachineRoom "
        "MachineRoomNearby MachineRoomResolver Pinned RoomByNameOrZone to_strategy"
    ),
    "pointsman_client.core.consumer_health": "ConsumerHealth",
    "pointsman_client.core.fault_strategy": "NEWER_FAULT_RULES OLDER_FAULT_RULES FaultRules",
    "pointsman_client.core.lease": "ConsumeMode",
    "pointsman_client.core.message": "Message OutgoingMessage ReceivedMessage",
    "pointsman_client.core.message_queue": "MessageQueue to_publish_queues to_subscribe_queues",
    "pointsman_client.core.rebalance": "ConsumeFrom MessageModel",
    "pointsman_client.core.request_signature": "AccessKey",
    "pointsman_client.core.retry_rules": "ConsumeResult Reject",
    "pointsman_client.core.route": (
        "BrokerData BrokerReplica BrokerState ClusterData QueueData Revision RouteChange TopicRoute"
    ),
    "pointsman_client.core.send_outcome": "RETRY_RESPONSE_CODES SendResult SendStatus",
    "pointsman_client.core.serializer": "Serializer",
    "pointsman_client.core.sharding": "ExplicitTable HashRing ModuloMap QueueOfKey ShardingMap SubShards",
    "pointsman_client.core.subscription": "SqlFilter",
    "pointsman_client.core.transactions": "TransactionState",
    "pointsman_client.errors": (
        "AbsentBroker AccessDeniedError AgentFailedError AllocationError BlockingCallError BrokerError "
        "BrokerRefusedError BrokerTimeoutError BrokerUnreachableError CallTimeoutError ClientClosedError "
        "ClientNotStartedError ClientStateError ClusterNotFoundError FailedTry ForkedError GroupModeError "
        "InvalidAddressError InvalidInputError InvalidMessageError InvalidNameError InvalidOptionError "
        "LeaseExpiredError MessageTooLargeError NameServerFailedError NameServersUnavailableError NoBrokerUpError "
        "NoReplyError NoWritableQueueError NotFoundError OffsetBeyondEndError OffsetFileError OffsetResetError "
        "OrderTopicConfError OutboxFailedError OutboxFullError PointsmanError QueueUnavailableError "
        "RequestRejectedError RequesterGoneError ResponseCode SendError SendFailedError TooManyInFlightError "
        "TopicNotFoundError UndecodableMessageError UnreadableMessageError WrongEventLoopError"
    ),
    "pointsman_client.metrics_hook": "MetricsHook",
    "pointsman_client.ports.transport": "PulledMessages Reader SendReceipt SendsBack Transport",
    "pointsman_client.producer.outbox": "Outbox",
    "pointsman_client.producer.producer": "Producer",
    "pointsman_client.producer.producer_options": "Fallback Park",
    "pointsman_client.producer.transaction": "Transaction",
    "pointsman_client.producer.transaction_producer": "TransactionProducer",
    "pointsman_client.routes.route_watch": "RouteChanges",
    "pointsman_client.tracing_hook": "SendSpan TracingHook",
}
"""By module: the names above that it defines. A name is imported when it is used first: a program that needs routes
loads neither producers nor consumers."""
_MODULE_OF = {name: module for module, names in _NAMES_OF.items() for name in names.split()}
_PARTS = {module.split(".")[1] for module in _NAMES_OF if module.startswith(f"{__name__}.")}


def __getattr__(name: str) -> object:
    """Import a public name, or a part of the package, when it is used first."""
    if name in _PARTS:
        return import_module(f"{__name__}.{name}")
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_MODULE_OF[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
