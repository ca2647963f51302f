"""Messages as JSON documents: protobuf's own mapping, with the exceptions below. Pure.

- A ``Duration`` is a number of seconds, its key ends in ``Seconds``.
- Names of enums are without their prefix: ``UP``. A value that is newer than the stubs is its number as a string.
- 64-bit counts are numbers, so that scripts can compare them. A ``generation`` and the parts of a ``DataVersion`` are
  strings, because JavaScript and jq round them; a ``boot`` and a digest are hexadecimal, as in logs.
- A field that is not set is null, never absent.
- The fields of ``identity`` are next to the others, its address as ``brokerAddr``.
- Routes have the keys of RocketMQ's ``TopicRouteData``, and more.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.message import Message

from pointsman.v1 import broker_pb2, route_service_pb2

Document = dict[str, Any]

NO_MASTER = "NO_MASTER"
NO_BROKER = "NO_BROKER"
MASTER_ID = 0

_DURATION = "google.protobuf.Duration"
_ANY_JSON = {"google.protobuf.Struct", "google.protobuf.Value"}
_64_BIT = {FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_UINT64}


def to_document(message: Message) -> Document:
    """Render any message but a route."""
    descriptor: Any = message.DESCRIPTOR
    return _reshaped(descriptor.fields, MessageToDict(message, always_print_fields_with_no_presence=True))


def enum_name(message: Message, field: str) -> str:
    """Return the name of an enum field's value without its prefix; one that is newer than the stubs is a number."""
    enum: Any = message.DESCRIPTOR.fields_by_name[field].enum_type
    number = getattr(message, field)
    value = enum.values_by_number.get(number)
    return str(number) if value is None else value.name.removeprefix(_prefix(enum.name))


def to_route_document(route: route_service_pb2.TopicRoute) -> Document:
    """Render a route like RocketMQ's ``TopicRouteData``, with Pointsman's additional fields."""
    return to_document(route) | {
        "queueDatas": [to_queue_data_document(data) for data in route.queue_datas],
        "brokerDatas": [to_broker_data_document(data) for data in route.broker_datas],
        "filterServerTable": {
            replica.addr: list(replica.filter_servers)
            for data in route.broker_datas
            for replica in data.replicas
            if replica.filter_servers
        },
    }


def to_queue_data_document(data: route_service_pb2.QueueData) -> Document:
    """Render the queues of one broker; a weight that is not stated is 1."""
    return to_document(data) | {"queueWeight": data.queue_weight or 1}


def to_broker_data_document(data: broker_pb2.BrokerData) -> Document:
    """Render a replica group; JSON keys are strings, so broker ids are strings as in RocketMQ's own output."""
    document = to_document(data)
    has_master = any(replica.broker_id == MASTER_ID for replica in data.replicas)
    return {
        "brokerAddrs": {str(replica.broker_id): replica.addr for replica in data.replicas},
        "zoneName": document.pop("zone"),
        "enableActingMaster": document.pop("actingMaster"),
        "conditions": [] if has_master else [NO_MASTER if data.replicas else NO_BROKER],
        **document,
    }


def read_route_document(document: Mapping[str, Any]) -> route_service_pb2.TopicRoute:
    """Parse the output of :func:`to_route_document`; keys that are newer than the stubs are ignored.

    Raises KeyError for a missing key, TypeError, ValueError or ParseError for an invalid value.
    """
    revision = document["revision"]
    plain = {
        "topic": document["topic"],
        "orderTopicConf": document["orderTopicConf"],
        "revision": {
            "boot": int(revision["boot"], 16),
            "counter": revision["counter"],
            "digest": base64.b64encode(bytes.fromhex(revision["digest"])).decode(),
        },
        "queueDatas": [
            {**data, "queueWeight": 0} if isinstance(data, dict) and data.get("queueWeight") == 1 else data
            for data in document["queueDatas"]
        ],
        "brokerDatas": [
            {
                **data,
                "zone": data["zoneName"],
                "actingMaster": data["enableActingMaster"],
                "replicas": [
                    {**replica, "state": broker_pb2.BrokerState.Value(f"BROKER_STATE_{replica['state']}")}
                    for replica in data["replicas"]
                ],
            }
            for data in document["brokerDatas"]
        ],
    }
    return ParseDict(plain, route_service_pb2.TopicRoute(), ignore_unknown_fields=True)


def _reshaped(fields: Iterable[FieldDescriptor], plain: Mapping[str, Any]) -> Document:
    document: Document = {}
    for field in fields:
        inner: Any = field.message_type
        kind = inner.full_name if inner else ""
        value = plain.get(field.json_name)
        if kind == _DURATION:
            document[f"{field.json_name}Seconds"] = None if value is None else float(value.removesuffix("s"))
        elif field.name == "identity":
            identity = _reshaped(inner.fields, value or {})
            document |= identity | {"brokerAddr": identity["addr"]}
            del document["addr"]
        elif isinstance(value, list):
            document[field.json_name] = [_value(field, each) for each in value]
        else:
            document[field.json_name] = _value(field, value)
    return document


def _value(field: FieldDescriptor, value: Any) -> Any:  # noqa: ANN401  # what JSON holds
    if value is None:
        return None
    if field.message_type is not None:
        inner: Any = field.message_type
        if inner.GetOptions().map_entry:
            return {key: _value(inner.fields_by_name["value"], each) for key, each in sorted(value.items())}
        if inner.full_name in _ANY_JSON:
            return _whole_numbers(value)
        return value if inner.full_name.startswith("google.protobuf.") else _reshaped(inner.fields, value)
    if field.enum_type is not None:
        return str(value).removeprefix(_prefix(field.enum_type.name))
    if field.type == FieldDescriptor.TYPE_BYTES:
        return base64.b64decode(value).hex()
    if field.type == FieldDescriptor.TYPE_FIXED64:
        return f"{int(value):016x}"
    message: Any = field.containing_type
    is_count = field.name != "generation" and message.name != "DataVersion"
    return int(value) if field.cpp_type in _64_BIT and is_count else value


@cache
def _prefix(enum: str) -> str:
    """``NodeState`` -> ``NODE_STATE_``."""
    return "".join(f"_{each}" if each.isupper() else each for each in enum).lstrip("_").upper() + "_"


def _whole_numbers(value: Any) -> Any:  # noqa: ANN401  # what JSON holds
    # A Struct knows only doubles; the history has 4 where it would show 4.0.
    if isinstance(value, dict):
        return {key: _whole_numbers(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_whole_numbers(inner) for inner in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
