"""Response bodies of RocketMQ brokers about consumer groups, as the messages that agents send. Pure.

Brokers check no names that clients send: any text is read, and made printable where it is shown.

Sources: RocketMQ ``SubscriptionGroupWrapper`` (request code 201), ``ConsumerConnection`` (203), ``ConsumeStats`` (208),
``ConsumerRunningInfo`` (307).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import TypeAlias

from pointsman.group_topics import retry_topic
from pointsman.rocketmq.bodies import (
    MAX_SHOWN,
    BadBodyError,
    list_of,
    number_of,
    read_object,
    shown,
    text_of,
    to_object,
)
from pointsman.rocketmq.frames import MAX_FRAME_BYTES, version_text
from pointsman.v1 import consumer_group_service_pb2 as wire
from pointsman.v1 import offset_service_pb2 as offsets_wire
from pointsman_ctl.servers.agent_queries import QueueCache

MAX_RUNNING_INFO_BYTES = 1 << 20
"""Of one client: 2,500 queues have fewer."""
_FLAT_OBJECT = rb'(\{(?:[^{}"]|"(?:[^"\\]|\\.)*+")*+\})'
_ENTRY = re.compile(_FLAT_OBJECT + rb"\s*:\s*" + _FLAT_OBJECT + rb"\s*,?\s*")
"""An entry of a map whose keys are objects, as fastjson writes it."""
_CONSUME_TYPES = {"CONSUME_ACTIVELY": wire.CONSUME_TYPE_PULL, "CONSUME_PASSIVELY": wire.CONSUME_TYPE_PUSH}
_MESSAGE_MODELS = {"CLUSTERING": wire.MESSAGE_MODEL_CLUSTERING, "BROADCASTING": wire.MESSAGE_MODEL_BROADCASTING}

Object: TypeAlias = "Mapping[str, object]"


def read_groups(body: bytes) -> list[str]:
    """Read the names of all groups, sorted. Raises BadBodyError."""
    # 45 items and 450 bytes for a group: the largest frame has fewer.
    found = read_object(body, max_items=MAX_FRAME_BYTES // 8)
    table = to_object(found.get("subscriptionGroupTable"), "subscriptionGroupTable")
    return sorted(map(_valid, table))


def read_group_config(group: str, body: bytes) -> Object | None:
    """Read the settings of one group, every field as the broker has it; None: there is no such group.

    Raises BadBodyError.
    """
    found = read_object(body, max_items=MAX_FRAME_BYTES // 8)
    table = to_object(found.get("subscriptionGroupTable"), "subscriptionGroupTable")
    return to_object(table[group], group) if group in table else None


def read_connections(group: str, body: bytes) -> tuple[wire.GetGroupResponse, Mapping[str, str]]:
    """Read the members of a group, and their language and version by client id. Raises BadBodyError.

    A broker knows subscriptions of the group, not of its members. That of the group's own retry topic, which agents do
    not list either, is left out. A client id with several connections is one member with several addresses.
    """
    data = read_object(body)
    subscriptions = [
        wire.Subscription(topic=_valid(topic), expression=_text(each, "subString"))
        for topic, each in sorted(to_object(data.get("subscriptionTable"), "subscriptionTable").items())
        if topic != retry_topic(group)
    ]
    connections = list_of(data, "connectionSet") if data.get("connectionSet") else []
    addrs: dict[str, list[str]] = {}
    clients: dict[str, str] = {}
    for connection in connections:
        client_id = _text(connection, "clientId")
        addrs.setdefault(client_id, []).append(_text(connection, "clientAddr"))
        version = version_text(number_of(to_object(connection, "version"), "version", most=2**63 - 1))
        clients[client_id] = f"{_text(connection, 'language')} {version}".strip()
    membership = wire.GroupMembership(
        group=group,
        state=wire.GROUP_STATE_READY,
        client_ids=sorted(addrs),
        message_model=_MESSAGE_MODELS.get(_text(data, "messageModel"), wire.MESSAGE_MODEL_UNSPECIFIED),
    )
    members = [
        wire.GroupMember(
            client_id=client_id,
            peer=" ".join(addrs[client_id]),
            consume_type=_CONSUME_TYPES.get(_text(data, "consumeType"), wire.CONSUME_TYPE_UNSPECIFIED),
            subscriptions=subscriptions,
            is_connected=True,
        )
        for client_id in sorted(addrs)
    ]
    return wire.GetGroupResponse(membership=membership, members=members), clients


def reads_retries(group: str, body: bytes) -> bool:
    """Return whether members subscribe to the group's own retry topic. Raises BadBodyError."""
    return retry_topic(group) in to_object(read_object(body).get("subscriptionTable"), "subscriptionTable")


def read_progress(group: str, body: bytes) -> list[offsets_wire.QueueProgress]:
    """Read the offsets of a group. Raises BadBodyError.

    Queues without a committed offset have 0, of static topics -1; the latter are left out.
    """
    return [
        offsets_wire.QueueProgress(
            group=group,
            committed=offsets_wire.QueueOffset(
                topic=_text(queue, "topic"),
                queue_id=number_of(queue, "queueId", most=2**31 - 1),
                offset=number_of(offsets, "consumerOffset", most=2**63 - 1),
            ),
            max_offset=number_of(offsets, "brokerOffset", most=2**63 - 1),
        )
        for queue, offsets in object_table(body, "offsetTable")
        if offsets.get("consumerOffset") != -1
    ]


def read_broker_names(body: bytes) -> frozenset[str]:
    """Read the broker names of the queues in offsets of a group, as clients name these queues. Raises BadBodyError."""
    return frozenset(_text(queue, "brokerName") for queue, _ in object_table(body, "offsetTable"))


def read_running_info(
    client_id: str, body: bytes, *, broker_names: Collection[str], now: float
) -> dict[tuple[str, int], QueueCache]:
    """Read what a client reports of the queues at these brokers that it reads. Raises BadBodyError.

    ``now``: seconds since the epoch. Queues that it has already given up are left out, and those of ``mqPopTable``,
    which no client owns.
    """
    if len(body) > MAX_RUNNING_INFO_BYTES:
        raise BadBodyError(f"the body has {len(body)} bytes, at most {MAX_RUNNING_INFO_BYTES} are read")
    caches = {}
    for queue, facts in object_table(body, "mqTable"):
        # "droped" is RocketMQ's spelling up to 4.9 and of fastjson's property.
        if _text(queue, "brokerName") not in broker_names or facts.get("droped") or facts.get("dropped"):
            continue
        # Not every client sends it, and 0 is never.
        pulled_at = number_of({"lastPullTimestamp": 0, **facts}, "lastPullTimestamp", most=2**63 - 1) / 1000
        place = _text(queue, "topic"), number_of(queue, "queueId", most=2**31 - 1)
        caches[place] = QueueCache(
            client_id,
            number_of(facts, "cachedMsgCount", most=2**31 - 1),
            max(0.0, now - pulled_at) if pulled_at else None,
        )
    return caches


def object_table(body: bytes, name: str) -> Iterator[tuple[Object, Object]]:
    """Read a map whose keys are objects. Raises BadBodyError."""
    start = re.search(rb'"%b"\s*:\s*\{\s*' % name.encode(), body)
    if start is None:
        raise BadBodyError(f"the body {shown(body[:MAX_SHOWN])} has no {name}")
    at = start.end()
    while (entry := _ENTRY.match(body, at)) is not None:
        yield read_object(entry[1]), read_object(entry[2])
        at = entry.end()
    if body[at : at + 1] != b"}":
        raise BadBodyError(f"{name} cannot be read from {shown(body[at : at + MAX_SHOWN])}")


def _text(data: object, name: str) -> str:
    return _valid(text_of(to_object(data, name), name))


def _valid(text: str) -> str:
    """Replace unpaired surrogates, which JSON may have and UTF-8 may not."""
    return text.encode(errors="replace").decode()
