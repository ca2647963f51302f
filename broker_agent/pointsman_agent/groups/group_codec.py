"""Conversion between ConsumerGroupService's messages and the core's values, with the checks of messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from pointsman.client_id import pin_target_problem
from pointsman.clock import Clock
from pointsman.daemon.rpc.request_fields import by_violations
from pointsman.names import MAX_QUEUES
from pointsman.tag_expression import canonical, expression_problem
from pointsman.v1 import consumer_group_service_pb2 as wire
from pointsman.wire.refusals import FieldViolation, refuse_if_any, shown
from pointsman.wire.wire_time import seconds_of
from pointsman_agent.core.group_membership import (
    AllocationSetting,
    BeatAnswer,
    ConsumeType,
    Difference,
    GroupState,
    GroupSubscription,
    GroupSummary,
    MemberFacts,
    MemberSettings,
    Membership,
    MembershipBeat,
    MembershipStatus,
    MessageModel,
    Standing,
    Subscription,
)
from pointsman_agent.core.measured_queue_stats import GroupLoad
from pointsman_agent.core.member_readings import GroupReading, QueueReading
from pointsman_agent.core.queue import QueueKey
from pointsman_agent.core.queue_pins import PinnedQueue, QueuePin
from pointsman_agent.rpc.agent_fields import client_id_violations, name_violations

MAX_GROUPS = 64
"""Of one client."""
MAX_SUBSCRIPTIONS = 256
MAX_STRATEGY_NAME = 127
MAX_STRATEGY_SETTINGS = 512
DIGEST_BYTES = 32
MAX_STRATEGY_TEXT = 120
"""Of the strategy of a member that differs, in a membership."""
MAX_SECONDS = 253_402_300_800
"""The year 10000, where a Timestamp ends."""
MAX_READ_QUEUES = 1_024
"""Of one group in one heartbeat."""
MAX_TRIGGERS = 16
MAX_TRIGGER = 32
MAX_PIN_TARGETS = 16
MAX_PIN_SECONDS = 7 * 86_400.0

_CONSUME_TYPES = {wire.CONSUME_TYPE_PULL: ConsumeType.PULL, wire.CONSUME_TYPE_PUSH: ConsumeType.PUSH}
_TO_CONSUME_TYPES = {consume_type: value for value, consume_type in _CONSUME_TYPES.items()}
_MODELS = {
    wire.MESSAGE_MODEL_CLUSTERING: MessageModel.CLUSTERING,
    wire.MESSAGE_MODEL_BROADCASTING: MessageModel.BROADCASTING,
}
_TO_MODELS = {model: value for value, model in _MODELS.items()}
_DIFFERENCES = {each: wire.SettingDifference.Value(f"SETTING_DIFFERENCE_{each.name}") for each in Difference}
_STATUSES = {
    MembershipStatus.OK: wire.MEMBERSHIP_STATUS_OK,
    MembershipStatus.TAKEN_OVER: wire.MEMBERSHIP_STATUS_TAKEN_OVER,
}
_STATES = {
    GroupState.WARMING: wire.GROUP_STATE_WARMING,
    GroupState.RECOVERED: wire.GROUP_STATE_RECOVERED,
    GroupState.READY: wire.GROUP_STATE_READY,
    GroupState.DRAINING: wire.GROUP_STATE_DRAINING,
}


# --- from the wire --------------------------------------------------------------------------------------------


def beat(message: wire.KeepMembershipRequest) -> MembershipBeat:
    """Decode and check. Raises InvalidRequest."""
    refuse_if_any(_beat_violations(message))
    return MembershipBeat(message.client_id, tuple(map(_group_subscription, message.groups)))


def readings(message: wire.KeepMembershipRequest) -> list[GroupReading]:
    """Decode and check the reports of a checked heartbeat. Raises InvalidRequest."""
    refuse_if_any(_reading_violations(message))
    return [
        GroupReading(
            report.group,
            {
                QueueKey(of.topic, each.queue_id): QueueReading(
                    each.position,
                    each.committed if each.HasField("committed") else None,
                    each.in_flight,
                    seconds_of(each.oldest_call) if each.HasField("oldest_call") else None,
                    each.is_waiting,
                )
                for of in report.topics
                for each in of.queues
            },
            [QueueKey(of.topic, queue_id) for of in report.topics for queue_id in of.released],
            report.retries,
            report.dead_letters,
            tuple((each.trigger, each.count) for each in report.rebalances),
        )
        for report in message.readings
    ]


def check_leave(message: wire.LeaveGroupsRequest) -> None:
    """Raise InvalidRequest for an invalid LeaveGroupsRequest."""

    def violations() -> Iterator[FieldViolation]:
        yield from client_id_violations("client_id", message.client_id)
        yield from _too_many("groups", len(message.groups), MAX_GROUPS)
        for i, group in enumerate(message.groups[:MAX_GROUPS]):
            yield from name_violations(f"groups[{i}]", group)

    refuse_if_any(violations())


def check_watch(message: wire.WatchGroupRequest) -> None:
    """Raise InvalidRequest for an invalid WatchGroupRequest."""
    refuse_if_any([*name_violations("group", message.group), *client_id_violations("client_id", message.client_id)])


@dataclass(frozen=True, slots=True)
class PinOrder:
    """A checked ``PinGroupRequest``."""

    group: str
    targets: tuple[str, ...]
    """Empty: remove the pin, and those of its queues."""
    seconds: float
    by: str


@dataclass(frozen=True, slots=True)
class QueuePinOrder:
    """A checked ``PinQueueRequest``."""

    group: str
    queue: PinnedQueue
    target: str
    """Empty: remove the pin."""
    seconds: float
    by: str


def pin_order(message: wire.PinGroupRequest) -> PinOrder:
    """Decode and check. Raises InvalidRequest."""
    seconds = seconds_of(message.duration)

    def violations() -> Iterator[FieldViolation]:
        yield from name_violations("group", message.group)
        yield from _too_many("to", len(message.to), MAX_PIN_TARGETS)
        seen: set[str] = set()
        for i, target in enumerate(message.to[:MAX_PIN_TARGETS]):
            problem = "is listed twice in this request" if target in seen else pin_target_problem(target)
            seen.add(target)
            if problem is not None:
                yield FieldViolation(f"to[{i}]", f"{problem}: {shown(target)}")
        yield from _duration_violations(message, is_end=not message.to)
        yield from by_violations(message.by)

    refuse_if_any(violations())
    return PinOrder(message.group, tuple(message.to), seconds, message.by)


def queue_pin_order(message: wire.PinQueueRequest) -> QueuePinOrder:
    """Decode and check. Raises InvalidRequest."""

    def violations() -> Iterator[FieldViolation]:
        for field in ("group", "topic", "cluster", "broker_name"):
            name = getattr(message, field)
            if field != "cluster" or name or message.to:
                yield from name_violations(field, name)
        if message.queue_id >= MAX_QUEUES:
            yield FieldViolation("queue_id", f"must be less than {MAX_QUEUES}, not {message.queue_id}")
        if message.to and (problem := pin_target_problem(message.to)) is not None:
            yield FieldViolation("to", f"{problem}: {shown(message.to)}")
        yield from _duration_violations(message, is_end=not message.to)
        yield from by_violations(message.by)

    refuse_if_any(violations())
    queue = PinnedQueue(message.topic, message.cluster, message.broker_name, message.queue_id)
    return QueuePinOrder(message.group, queue, message.to, seconds_of(message.duration), message.by)


# --- to the wire ----------------------------------------------------------------------------------------------


class WallTime:
    """Converts monotonic moments to wall clock time, by the current offset between the two clocks."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def timestamp(self, at: float) -> Timestamp:
        """Return the moment as a timestamp."""
        moment: datetime = self._clock.utc_now() + timedelta(seconds=at - self._clock.monotonic())
        timestamp = Timestamp()
        timestamp.FromDatetime(moment)
        return timestamp

    def since(self, at: float) -> Duration:
        """Return the time since the moment."""
        return duration(max(0.0, self._clock.monotonic() - at))


def duration(seconds: float) -> Duration:
    """Convert seconds to a Duration."""
    message = Duration()
    message.FromTimedelta(timedelta(seconds=seconds))
    return message


def beat_answer(answer: BeatAnswer, *, expiry: Duration) -> wire.KeepMembershipResponse:
    """Convert the response to a heartbeat."""
    return wire.KeepMembershipResponse(
        status=_STATUSES[answer.status],
        expiry=expiry,
        conflicting_groups=answer.conflicting,
        taken_over_groups=answer.taken_over,
        own_differences=[
            wire.OwnDifference(
                group=each.group,
                differences=_differences(each.standing),
                stands_aside=each.standing.stands_aside,
                holder=each.holder,
            )
            for each in answer.own_differences
        ],
        reset_groups=answer.reset_groups,
    )


def state(group_state: GroupState) -> wire.GroupState.ValueType:
    """Convert the state of the member lists."""
    return _STATES[group_state]


def membership(held: Membership, *, boot: int, wall: WallTime) -> wire.GroupMembership:
    """Convert a group's membership."""
    agreement = held.agreement
    return wire.GroupMembership(
        group=held.group,
        revision=wire.MembershipRevision(boot=boot, counter=held.counter),
        state=_STATES[held.state],
        client_ids=held.client_ids,
        pinned_client_ids=held.pinned_client_ids,
        pinned_until=wall.timestamp(held.pinned_until) if held.pinned_until is not None else None,
        message_model=_model(held.message_model),
        settings=_settings(agreement.settings) if agreement.settings is not None else None,
        holder=agreement.holder,
        differing=[
            wire.DifferingMember(
                client_id=client_id,
                differences=_differences(standing),
                stands_aside=standing.stands_aside,
                strategy=standing.strategy[:MAX_STRATEGY_TEXT],
            )
            for client_id, standing in agreement.differing.items()
        ],
        queue_pins=[queue_pin(each, held.owner_of(each), wall=wall) for each in held.queue_pins],
        not_following_queue_pins=agreement.not_following_queue_pins if held.queue_pins else (),
    )


def queue_pin(pin: QueuePin, owner: str, *, wall: WallTime) -> wire.QueuePin:
    """Convert the pin of a queue."""
    return wire.QueuePin(**pin.queue._asdict(), to=pin.target, until=wall.timestamp(pin.until), client_id=owner)


def member(facts: MemberFacts, *, wall: WallTime) -> wire.GroupMember:
    """Convert one member."""
    return wire.GroupMember(
        client_id=facts.client_id,
        peer=facts.peer,
        consume_type=_TO_CONSUME_TYPES[facts.subscription.consume_type],
        subscriptions=_subscriptions(facts.subscription.subscriptions),
        joined_at=wall.timestamp(facts.joined_at),
        silent_for=wall.since(facts.last_beat_at),
        is_connected=facts.is_connected,
        is_conflicting=facts.is_conflicting,
        differences=_differences(facts.standing),
        stands_aside=facts.standing is not None and facts.standing.stands_aside,
        settings=_settings(facts.subscription.settings) if facts.subscription.settings is not None else None,
        message_model=_model(facts.subscription.message_model),
    )


def summary(group: str, held: GroupSummary | None, load: GroupLoad | None) -> wire.GroupSummary:
    """Convert a group's row in a list, with what it has to read; ``held``: None, it has no members."""
    loaded = None if load is None else wire.GroupLoad(**load._asdict())
    if held is None:
        return wire.GroupSummary(group=group, load=loaded)
    return wire.GroupSummary(
        group=group,
        members=held.members,
        message_model=_model(held.message_model),
        topics=held.topics,
        is_conflicting=held.is_conflicting,
        is_pinned=held.is_pinned,
        load=loaded,
    )


# --- steps ----------------------------------------------------------------------------------------------------


def _beat_violations(message: wire.KeepMembershipRequest) -> Iterator[FieldViolation]:
    yield from client_id_violations("client_id", message.client_id)
    yield from _too_many("groups", len(message.groups), MAX_GROUPS)
    seen: set[str] = set()
    for i, group in enumerate(message.groups[:MAX_GROUPS]):
        path = f"groups[{i}]"
        yield from name_violations(f"{path}.group", group.group)
        if group.group in seen:
            yield FieldViolation(f"{path}.group", f"is listed twice in this request: {shown(group.group)}")
        seen.add(group.group)
        if group.consume_type not in _CONSUME_TYPES:
            yield FieldViolation(f"{path}.consume_type", f"is unknown: {group.consume_type}")
        if group.message_model not in _MODELS:
            yield FieldViolation(f"{path}.message_model", f"is unknown: {group.message_model}")
        yield from _subscription_violations(group, path=f"{path}.subscriptions")
        if group.HasField("settings"):
            yield from _settings_violations(group.settings, path=f"{path}.settings")


def _reading_violations(message: wire.KeepMembershipRequest) -> Iterator[FieldViolation]:
    groups = {each.group for each in message.groups}
    for i, report in enumerate(message.readings[:MAX_GROUPS]):
        path = f"readings[{i}]"
        if report.group not in groups:
            yield FieldViolation(f"{path}.group", f"is not a group of this heartbeat: {shown(report.group)}")
        groups.discard(report.group)
        queues = sum(len(each.queues) + len(each.released) for each in report.topics)
        yield from _too_many(f"{path}.topics", queues, MAX_READ_QUEUES)
        for j, of in enumerate(report.topics if queues <= MAX_READ_QUEUES else ()):
            yield from name_violations(f"{path}.topics[{j}].topic", of.topic)
            for k, each in enumerate(of.queues):
                if each.HasField("oldest_call") and not 0 <= seconds_of(each.oldest_call) < MAX_SECONDS:
                    problem = f"must be from 0 to {MAX_SECONDS} s, not {seconds_of(each.oldest_call):g} s"
                    yield FieldViolation(f"{path}.topics[{j}].queues[{k}].oldest_call", problem)
        yield from _too_many(f"{path}.rebalances", len(report.rebalances), MAX_TRIGGERS)
        for j, count in enumerate(report.rebalances[:MAX_TRIGGERS]):
            if not (count.trigger.isascii() and count.trigger.isprintable() and len(count.trigger) <= MAX_TRIGGER):
                problem = f"may hold at most {MAX_TRIGGER} printable ASCII characters: {shown(count.trigger)}"
                yield FieldViolation(f"{path}.rebalances[{j}].trigger", problem)
    yield from _too_many("readings", len(message.readings), MAX_GROUPS)


def _settings_violations(settings: wire.MemberSettings, *, path: str) -> Iterator[FieldViolation]:
    strategy = settings.strategy
    if not strategy.name:
        yield FieldViolation(f"{path}.strategy.name", "must not be empty")
    for field, text, longest in (
        ("name", strategy.name, MAX_STRATEGY_NAME),
        ("settings", strategy.settings, MAX_STRATEGY_SETTINGS),
    ):
        if len(text) > longest:
            yield FieldViolation(f"{path}.strategy.{field}", f"must have at most {longest} characters, not {len(text)}")
        elif not (text.isascii() and text.isprintable()):
            problem = f"may hold only printable ASCII characters: {shown(text)}"
            yield FieldViolation(f"{path}.strategy.{field}", problem)
    if len(strategy.digest) != DIGEST_BYTES:
        problem = f"must have {DIGEST_BYTES} bytes, not {len(strategy.digest)}"
        yield FieldViolation(f"{path}.strategy.digest", problem)
    seconds = settings.started_at.seconds
    if not 0 < seconds < MAX_SECONDS:
        yield FieldViolation(f"{path}.started_at", f"must be between the years 1970 and 10000, not {seconds} s")


def _subscription_violations(group: wire.GroupSubscription, *, path: str) -> Iterator[FieldViolation]:
    yield from _too_many(path, len(group.subscriptions), MAX_SUBSCRIPTIONS)
    seen: set[str] = set()
    for i, subscription in enumerate(group.subscriptions[:MAX_SUBSCRIPTIONS]):
        yield from name_violations(f"{path}[{i}].topic", subscription.topic)
        if subscription.topic in seen:
            yield FieldViolation(f"{path}[{i}].topic", f"is listed twice in this group: {shown(subscription.topic)}")
        seen.add(subscription.topic)
        problem = expression_problem(subscription.expression)
        if problem is not None:
            yield FieldViolation(f"{path}[{i}].expression", f"{problem}: {shown(subscription.expression)}")


def _duration_violations(
    message: wire.PinGroupRequest | wire.PinQueueRequest, *, is_end: bool
) -> Iterator[FieldViolation]:
    seconds = seconds_of(message.duration)
    if is_end and message.HasField("duration"):
        yield FieldViolation("duration", f"must not be given when a pin is removed, not {seconds:g} s")
    elif not is_end and not message.HasField("duration"):
        yield FieldViolation("duration", "is required with clients to pin to")
    elif not is_end and not 0 < seconds <= MAX_PIN_SECONDS:
        yield FieldViolation("duration", f"must be above 0 s and at most {MAX_PIN_SECONDS:.0f} s, not {seconds:g} s")


def _too_many(field: str, count: int, bound: int) -> Iterator[FieldViolation]:
    if count > bound:
        yield FieldViolation(field, f"must have at most {bound} entries, not {count}")


def _group_subscription(message: wire.GroupSubscription) -> GroupSubscription:
    subscriptions = (Subscription(each.topic, canonical(each.expression)) for each in message.subscriptions)
    return GroupSubscription(
        message.group,
        _CONSUME_TYPES[message.consume_type],
        _MODELS[message.message_model],
        tuple(sorted(subscriptions)),
        _member_settings(message.settings) if message.HasField("settings") else None,
    )


def _member_settings(message: wire.MemberSettings) -> MemberSettings:
    strategy = message.strategy
    return MemberSettings(
        AllocationSetting(
            strategy.name, strategy.settings, strategy.digest, strategy.buildable_from, strategy.needs_zone
        ),
        message.is_ordered,
        message.known_strategies,
        message.started_at.ToMilliseconds(),
        message.follows_queue_pins,
        message.follows_resets,
    )


def _settings(held: MemberSettings) -> wire.MemberSettings:
    started_at = Timestamp()
    started_at.FromMilliseconds(held.started_at_ms)
    return wire.MemberSettings(
        strategy=wire.AllocationSetting(
            name=held.strategy.name,
            settings=held.strategy.settings,
            digest=held.strategy.digest,
            buildable_from=held.strategy.buildable_from,
            needs_zone=held.strategy.needs_zone,
        ),
        is_ordered=held.is_ordered,
        known_strategies=held.known_strategies,
        started_at=started_at,
        follows_queue_pins=held.follows_queue_pins,
        follows_resets=held.follows_resets,
    )


def _differences(standing: Standing | None) -> list[wire.SettingDifference.ValueType]:
    return [_DIFFERENCES[each] for each in standing.differences] if standing is not None else []


def _subscriptions(held: Sequence[Subscription]) -> list[wire.Subscription]:
    return [wire.Subscription(topic=each.topic, expression=each.expression) for each in held]


def _model(model: MessageModel | None) -> wire.MessageModel.ValueType:
    return _TO_MODELS[model] if model is not None else wire.MESSAGE_MODEL_UNSPECIFIED
