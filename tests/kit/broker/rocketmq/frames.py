"""Recorded frames of RocketMQ's wire, and frames made for tests."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pointsman.rocketmq.frames import Command, Frame, FrameReader, encode

FOLDER = Path(__file__).parents[3] / "fixtures" / "rocketmq_frames"
STATIC_FOLDER = FOLDER.with_name("rocketmq_static_topics")
REQUESTS = sorted(path.name.removesuffix(".request.bin") for path in FOLDER.glob("*.request.bin"))
"""The names of all recorded requests."""
_STRING_OR_KEY = re.compile(r'("[^"\\]*(?:\\.[^"\\]*)*")|(?<=[{,])(-?\w+)(?=:)')


def request(name: str) -> bytes:
    """The recorded request of that name."""
    return (FOLDER / f"{name}.request.bin").read_bytes()


def response(name: str) -> bytes | None:
    """The answer that it got; None: it was one-way."""
    path = FOLDER / f"{name}.response.bin"
    return path.read_bytes() if path.exists() else None


def frames(data: bytes) -> list[Frame]:
    """All frames of some bytes, which must be complete."""
    reader = FrameReader()
    reader.feed(data)
    found = []
    while (frame := reader.next()) is not None:
        found.append(frame)
    assert reader.waiting == 0
    return found


def read_upstream(body: bytes) -> Any:
    """JSON as RocketMQ writes it, with bare numbers as keys."""
    return json.loads(_STRING_OR_KEY.sub(lambda found: found[1] or f'"{found[2]}"', body.decode()))


def static_frame(name: str) -> bytes:
    """A frame of brokers with a static topic, recorded by tests/real_rocketmq/record_static_topics.py."""
    return (STATIC_FOLDER / f"{name}.bin").read_bytes()


def mapping_info(broker_name: str, queue_ids: Mapping[int, int], **fields: object) -> dict[str, object]:
    """The mapping of a static topic of four logical queues, as a 5.x broker registers it."""
    return {
        "bname": broker_name,
        "currIdMap": {str(logical): physical for logical, physical in queue_ids.items()},
        "dirty": False,
        "epoch": 1,
        "scope": "__global__",
        "topic": "S",
        "totalQueues": 4,
        **fields,
    }


def topic_config(topic: str, **fields: object) -> dict[str, object]:
    """A TopicConfig as a 5.3.3 broker sends it."""
    return {
        "attributes": {},
        "order": False,
        "perm": 6,
        "readQueueNums": 8,
        "topicFilterType": "SINGLE_TAG",
        "topicName": topic,
        "topicSysFlag": 0,
        "writeQueueNums": 8,
        **fields,
    }


def register_body(
    topics: Mapping[str, Mapping[str, object]] | None = None, *, counter: int = 1, sent_at: int = 1, **wrapper: object
) -> bytes:
    """The body of a registration; ``sent_at`` is what differs between two equal ones of a 5.x broker."""
    table = {"TopicTest": topic_config("TopicTest"), "Other": topic_config("Other")} if topics is None else topics
    body = {
        "filterServerList": [],
        "topicConfigSerializeWrapper": {
            "dataVersion": {"counter": counter, "stateVersion": 0, "timestamp": 1_700_000_000_000 + counter},
            "mappingDataVersion": {"counter": 0, "stateVersion": 0, "timestamp": sent_at},
            "topicConfigTable": table,
            "topicQueueMappingDetailMap": {},
            "topicQueueMappingInfoMap": {},
            **wrapper,
        },
    }
    return json.dumps(body, separators=(",", ":")).encode()


def ask(
    code: int,
    ext: Mapping[str, str] | None = None,
    body: bytes = b"",
    *,
    opaque: int = 1,
    flag: int = 0,
    form: int = 0,
    version: int = 479,
) -> bytes:
    """A request as a Java process sends it."""
    command = Command(code=code, opaque=opaque, flag=flag, language="JAVA", version=version, ext=ext or {})
    return encode(command, body, form=form)


def broker_ext(name: str = "broker-a", broker_id: int = 0, addr: str = "10.0.0.1:10911", **ext: str) -> dict[str, str]:
    """A broker's facts apart from its topics."""
    return {
        "brokerId": str(broker_id),
        "clusterName": "DefaultCluster",
        "brokerAddr": addr,
        "brokerName": name,
        **ext,
    }


def register(ext: Mapping[str, str] | None = None, body: bytes | None = None, **how: Any) -> bytes:
    """A registration with the checksum of its body."""
    content = register_body() if body is None else body
    of_broker = {"haServerAddr": "10.0.0.1:10912", "compressed": "false", "enableActingMaster": "false", **broker_ext()}
    crc = {"bodyCrc32": str(zlib.crc32(content) & 0x7FFFFFFF)}
    return ask(103, {**of_broker, **crc, **(ext or {})}, content, **how)
