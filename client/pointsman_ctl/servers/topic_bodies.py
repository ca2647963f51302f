"""Response bodies of RocketMQ brokers about topics. Pure.

Sources: RocketMQ ``TopicConfigAndQueueMapping`` (request code 351), ``TopicConfigSerializeWrapper`` (21),
``TopicStatsTable`` (202), ``GroupList`` (300).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pointsman.names import MAX_QUEUES, PERM_READ, PERM_WRITE
from pointsman.rocketmq.bodies import list_of, number_of, read_object, text_of, to_object
from pointsman.rocketmq.frames import MAX_FRAME_BYTES
from pointsman_ctl.servers.group_bodies import object_table

MOST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class BrokerTopic:
    """A topic's configuration at a RocketMQ broker."""

    read_queues: int
    write_queues: int
    perm: int
    sys_flag: int
    filter_type: str
    is_order: bool
    is_static: bool
    """Its queues are mapped to those of other brokers."""

    def to_ext(self, topic: str, *, read_queues: int, write_queues: int, perm: int) -> dict[str, str]:
        """Return the fields of UPDATE_AND_CREATE_TOPIC that set these three and keep the others."""
        kept = self.perm & ~(PERM_READ | PERM_WRITE)
        return {
            "topic": topic,
            "defaultTopic": "TBW102",
            "readQueueNums": str(read_queues),
            "writeQueueNums": str(write_queues),
            "perm": str(kept | perm),
            "topicFilterType": self.filter_type,
            "topicSysFlag": str(self.sys_flag),
            "order": "true" if self.is_order else "false",
        }


NEW_TOPIC = BrokerTopic(0, 0, 0, 0, "SINGLE_TAG", is_order=False, is_static=False)


def read_topic(body: bytes) -> BrokerTopic:
    """Read the configuration of one topic. Raises BadBodyError."""
    return _to_topic(read_object(body))


def read_topic_of_all(topic: str, body: bytes) -> BrokerTopic | None:
    """Read the configuration of one topic out of that of all; None: there is none. Raises BadBodyError."""
    found = read_object(body, max_items=MAX_FRAME_BYTES // 8)
    table = to_object(found.get("topicConfigTable"), "topicConfigTable")
    return _to_topic(to_object(table[topic], topic)) if topic in table else None


@dataclass(frozen=True, slots=True)
class QueueStat:
    """A queue of a topic at a RocketMQ broker."""

    queue_id: int
    min_offset: int
    max_offset: int
    last_write_millis: int
    """Milliseconds since 1970, by the broker's clock; 0: never."""


def read_topic_stats(topic: str, body: bytes) -> Iterator[QueueStat]:
    """Read the queues of a topic. Raises BadBodyError."""
    for queue, facts in object_table(body, "offsetTable"):
        if queue.get("topic") == topic:
            yield QueueStat(
                number_of(queue, "queueId", most=MAX_QUEUES),
                max(0, _whole(facts, "minOffset")),
                max(0, _whole(facts, "maxOffset")),
                max(0, _whole(facts, "lastUpdateTimestamp")),
            )


def read_group_list(body: bytes) -> list[str]:
    """Read names of groups, sorted. Raises BadBodyError."""
    names = list_of(read_object(body), "groupList")
    return sorted(name.encode(errors="replace").decode() for name in names if isinstance(name, str))


def _whole(facts: Mapping[str, object], name: str) -> int:
    # -1 where a queue was never written.
    return -1 if facts.get(name) == -1 else number_of(facts, name, most=MOST)


def _to_topic(data: Mapping[str, object]) -> BrokerTopic:
    return BrokerTopic(
        read_queues=number_of(data, "readQueueNums", most=MAX_QUEUES),
        write_queues=number_of(data, "writeQueueNums", most=MAX_QUEUES),
        perm=number_of(data, "perm", most=15),
        sys_flag=number_of({"topicSysFlag": 0, **data}, "topicSysFlag", most=2**31 - 1),
        filter_type=text_of(data, "topicFilterType") or "SINGLE_TAG",
        is_order=data.get("order") is True,
        is_static=bool(data.get("mappingDetail") or data.get("topicQueueMappingDetail")),
    )
