"""Checks of requests. Each violation names its field and value.

Checks return violations instead of raising, so that one response lists all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pointsman.names import (
    MAX_BROKER_ID,
    MAX_FILTER_SERVERS,
    MAX_LABEL_LENGTH,
    MAX_LABELS,
    MAX_QUEUE_WEIGHT,
    MAX_QUEUES,
    MAX_TOPIC_SYS_FLAG,
    MIN_EXPIRY_INTERVALS,
    PERM_MASK,
    addr_problem,
    registered_name_problem,
    text_problem,
)
from pointsman.wire.refusals import FieldViolation, field_violations, shown
from pointsman_namesrv.core.model import BrokerIdentity, QueueConfig, Registration

MAX_INCARNATION_LENGTH = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalBounds:
    """Limits on what brokers may declare, in seconds."""

    min_heartbeat_interval: float = 1.0
    max_heartbeat_interval: float = 300.0
    max_expiry: float = 3_600.0


def identity_violations(identity: BrokerIdentity, *, path: str) -> Iterator[FieldViolation]:
    """Check names, id and address."""
    yield from field_violations(f"{path}.cluster", identity.cluster, registered_name_problem(identity.cluster))
    yield from field_violations(
        f"{path}.broker_name", identity.broker_name, registered_name_problem(identity.broker_name)
    )
    if not 0 <= identity.broker_id <= MAX_BROKER_ID:
        yield _violation(f"{path}.broker_id", identity.broker_id, f"must be from 0 to {MAX_BROKER_ID}")
    yield from field_violations(f"{path}.addr", identity.addr, addr_problem(identity.addr))


def registration_violations(registration: Registration, *, bounds: IntervalBounds) -> Iterator[FieldViolation]:
    """Check everything but the topics, which :func:`topic_violations` checks in chunks."""
    yield from identity_violations(registration.identity, path="broker.identity")
    for field, addr in (("ha_addr", registration.ha_addr), ("agent_addr", registration.agent_addr)):
        if addr:
            yield from field_violations(f"broker.{field}", addr, addr_problem(addr))
    for field, text in (
        ("zone", registration.zone),
        ("host", registration.host),
        ("broker_version", registration.broker_version),
        ("agent_version", registration.agent_version),
    ):
        yield from field_violations(f"broker.{field}", text, text_problem(text))
    yield from field_violations(
        "broker.incarnation",
        registration.incarnation,
        text_problem(registration.incarnation, longest=MAX_INCARNATION_LENGTH),
    )
    yield from _interval_violations(registration, bounds)
    yield from _label_violations(registration)
    if len(registration.filter_servers) > MAX_FILTER_SERVERS:
        count = len(registration.filter_servers)
        yield _violation("broker.filter_servers", count, f"may hold at most {MAX_FILTER_SERVERS}")
    for i, addr in enumerate(registration.filter_servers):
        yield from field_violations(f"broker.filter_servers[{i}]", addr, addr_problem(addr))


def topic_violations(topic: str, queues: QueueConfig, *, path: str) -> Iterator[FieldViolation]:
    """Check one topic of a registration or delta."""
    yield from field_violations(f"{path}.topic", topic, registered_name_problem(topic))
    for field, count in (("read_queue_nums", queues.read_queue_nums), ("write_queue_nums", queues.write_queue_nums)):
        if not 0 <= count <= MAX_QUEUES:
            yield _violation(f"{path}.{field}", count, f"must be from 0 to {MAX_QUEUES}")
    if queues.perm & ~PERM_MASK:
        yield _violation(f"{path}.perm", queues.perm, "has bits outside priority 8, read 4, write 2, inherit 1")
    if queues.topic_sys_flag & ~MAX_TOPIC_SYS_FLAG:
        yield _violation(f"{path}.topic_sys_flag", queues.topic_sys_flag, "has bits outside unit 1, unit-sub 2")
    if not 1 <= queues.queue_weight <= MAX_QUEUE_WEIGHT:
        yield _violation(f"{path}.queue_weight", queues.queue_weight, f"must be from 1 to {MAX_QUEUE_WEIGHT}")


def name_violations(field: str, name: str) -> Iterator[FieldViolation]:
    """Check a topic, cluster or broker name that is a request's only name."""
    yield from field_violations(field, name, registered_name_problem(name))


def text_violations(field: str, text: str) -> Iterator[FieldViolation]:
    """Check a free text field of a request."""
    yield from field_violations(field, text, text_problem(text))


def duplicate_topic(topic: str, *, path: str) -> FieldViolation:
    """Build the violation of a topic that occurs twice in one request."""
    return _violation(f"{path}.topic", topic, "occurs twice in this request")


def _interval_violations(registration: Registration, bounds: IntervalBounds) -> Iterator[FieldViolation]:
    interval, expiry = registration.heartbeat_interval, registration.expiry
    if not bounds.min_heartbeat_interval <= interval <= bounds.max_heartbeat_interval:
        yield _violation(
            "broker.heartbeat_interval",
            f"{interval:g}s",
            f"must be from {bounds.min_heartbeat_interval:g}s to {bounds.max_heartbeat_interval:g}s",
        )
    if not MIN_EXPIRY_INTERVALS * interval <= expiry <= bounds.max_expiry:
        yield _violation(
            "broker.expiry",
            f"{expiry:g}s",
            f"must be at least {MIN_EXPIRY_INTERVALS} heartbeat intervals "
            f"({MIN_EXPIRY_INTERVALS * interval:g}s) and at most {bounds.max_expiry:g}s",
        )


def _label_violations(registration: Registration) -> Iterator[FieldViolation]:
    if len(registration.labels) > MAX_LABELS:
        yield _violation("broker.labels", len(registration.labels), f"may hold at most {MAX_LABELS}")
    for key, value in registration.labels.items():
        for text in (key, value):
            yield from field_violations(
                f"broker.labels[{shown(key)}]", text, text_problem(text, longest=MAX_LABEL_LENGTH)
            )


def _violation(field: str, value: object, problem: str) -> FieldViolation:
    return FieldViolation(field, f"{problem}, not {shown(value)}")
