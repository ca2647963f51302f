"""Short ways to write the messages that tests send."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from google.protobuf.duration_pb2 import Duration

from pointsman.v1 import broker_pb2, registration_service_pb2

Version = tuple[int, int, int]


def identity(
    name: str = "a", broker_id: int = 0, addr: str = "10.0.0.1:10911", cluster: str = "c1"
) -> broker_pb2.BrokerIdentity:
    return broker_pb2.BrokerIdentity(cluster=cluster, broker_name=name, broker_id=broker_id, addr=addr)


def data_version(version: Version) -> broker_pb2.DataVersion:
    return broker_pb2.DataVersion(state_version=version[0], timestamp_millis=version[1], counter=version[2])


def topic(name: str, queues: int = 4, perm: int = 6, weight: int = 0) -> broker_pb2.TopicConfig:
    return broker_pb2.TopicConfig(
        topic=name, read_queue_nums=queues, write_queue_nums=queues, perm=perm, queue_weight=weight
    )


def registration(
    *topics: broker_pb2.TopicConfig,
    who: broker_pb2.BrokerIdentity | None = None,
    version: Version = (0, 0, 1),
    chunk: int = 5_000,
    commit: bool = True,
    heartbeat: int = 30,
    expiry: int = 120,
    **more: object,
) -> Iterator[registration_service_pb2.RegisterBrokerRequest]:
    """The chunks of a whole registration; ``more`` are further fields of BrokerRegistration."""
    header = registration_service_pb2.BrokerRegistration(
        identity=who or identity(),
        data_version=data_version(version),
        heartbeat_interval=Duration(seconds=heartbeat),
        expiry=Duration(seconds=expiry),
        **more,  # type: ignore[arg-type]  # whatever fields the test names
    )
    chunks = [topics[i : i + chunk] for i in range(0, len(topics), chunk)] or [()]
    for i, part in enumerate(chunks):
        request = registration_service_pb2.RegisterBrokerRequest(topics=part)
        if i == 0:
            request.broker.CopyFrom(header)
        if commit and i == len(chunks) - 1:
            request.commit.topic_count = len(topics)
            request.commit.chunk_count = len(chunks)
        yield request


def unregistration(
    who: broker_pb2.BrokerIdentity,
    generation: int,
    reason: registration_service_pb2.UnregisterReason.ValueType = registration_service_pb2.UNREGISTER_REASON_SHUTDOWN,
) -> registration_service_pb2.UnregisterBrokerRequest:
    return registration_service_pb2.UnregisterBrokerRequest(identity=who, generation=generation, reason=reason)


def beat(
    generation: int,
    *,
    who: broker_pb2.BrokerIdentity | None = None,
    version: Version = (0, 0, 1),
    probe: broker_pb2.ProbeStatus.ValueType = broker_pb2.PROBE_STATUS_UNSPECIFIED,
    hand_over: bool = False,
    sent_at_millis: int = 0,
) -> registration_service_pb2.Beat:
    return registration_service_pb2.Beat(
        identity=who or identity(),
        generation=generation,
        data_version=data_version(version),
        health=broker_pb2.BrokerHealth(status=probe),
        hand_over=hand_over,
        sent_at_millis=sent_at_millis,
    )


def keep_alive(beats: Iterable[registration_service_pb2.Beat]) -> Iterator[registration_service_pb2.KeepAliveRequest]:
    return (registration_service_pb2.KeepAliveRequest(beat=beat) for beat in beats)
