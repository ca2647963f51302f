"""Codec between AdminService's messages and the core's values; checks what only an operator's request can get wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from itertools import chain
from typing import Literal, TypeAlias, get_args

from google.protobuf.duration_pb2 import Duration
from google.protobuf.json_format import MessageToDict, SerializeToJsonError
from google.protobuf.struct_pb2 import Value

from pointsman.config import to_toml
from pointsman.daemon.rpc.request_fields import by_violations
from pointsman.names import MAX_BROKER_ID, text_problem
from pointsman.v1 import admin_service_pb2 as wire
from pointsman.v1 import broker_pb2
from pointsman.wire.refusals import FieldViolation, InvalidRequest, field_violations, refuse_if_any, shown
from pointsman.wire.wire_time import seconds_of
from pointsman_namesrv.config import NameServerConfig
from pointsman_namesrv.core.administration import BrokerDataChange
from pointsman_namesrv.core.broker_tables import BrokerTables
from pointsman_namesrv.core.flap_penalties import FlapScore
from pointsman_namesrv.core.group import Group, Replica
from pointsman_namesrv.core.guard import GuardMode, GuardStatus
from pointsman_namesrv.core.kv import KvEntry
from pointsman_namesrv.core.maintenance import MaintenanceWindow
from pointsman_namesrv.core.request_rules import name_violations
from pointsman_namesrv.core.saved_settings import Setting, SettingKey, SettingKind
from pointsman_namesrv.history.row import Record
from pointsman_namesrv.history.startup_memory import EarlierRuns
from pointsman_namesrv.rpc import broker_codec
from pointsman_namesrv.rpc.watch_hub import WatcherFacts

_StatusField: TypeAlias = Literal[
    "generation",
    "data_version",
    "heartbeat_interval",
    "expiry",
    "registered_at",
    "silence",
    "stream_open",
    "health",
    "acting_master",
]
_GUARD_MODES = {
    wire.GUARD_MODE_AUTO: GuardMode.AUTO,
    wire.GUARD_MODE_HOLD: GuardMode.HOLD,
    wire.GUARD_MODE_OFF: GuardMode.OFF,
}
_TO_GUARD_MODES = {mode: value for value, mode in _GUARD_MODES.items()}


MAX_WHAT_LENGTH = 256
MAX_CHANGED_BROKERS = 1_000
MAX_VALUE_BYTES = 4_096
MAX_UNDO_LENGTH = 1_024
_VALUES: tuple[Literal["before", "after"], ...] = ("before", "after")

LISTED = "the name server lists it"
"""The rule of a broker that is known by polling."""
_UNKNOWN_BY_POLLING: tuple[_StatusField, ...] = get_args(_StatusField)

# --- from the wire --------------------------------------------------------------------------------------------


def optional_names(**names: str) -> Iterator[FieldViolation]:
    """Check the names that are not empty."""
    for field, name in names.items():
        if name:
            yield from name_violations(field, name)


def broker_id_violations(broker_id: int) -> Iterator[FieldViolation]:
    """Check a position in a group that is not part of an identity."""
    if broker_id > MAX_BROKER_ID:
        yield FieldViolation("broker_id", f"must be from 0 to {MAX_BROKER_ID}, not {broker_id}")


def broker_data_change(request: wire.RecordChangeRequest) -> BrokerDataChange:
    """Decode a change at brokers. Raises InvalidRequest."""
    what, names = request.what, request.broker_names
    too_many = len(names) > MAX_CHANGED_BROKERS
    refuse_if_any(
        chain(
            field_violations(
                "what", what, text_problem(what, longest=MAX_WHAT_LENGTH) if what else "must not be empty"
            ),
            optional_names(cluster=request.cluster, topic=request.topic, group=request.group),
            (FieldViolation("broker_names", f"are {len(names)}, at most {MAX_CHANGED_BROKERS} are allowed"),)
            if too_many
            else chain.from_iterable(name_violations(f"broker_names[{at}]", name) for at, name in enumerate(names)),
            field_violations("undo", request.undo, text_problem(request.undo, longest=MAX_UNDO_LENGTH)),
            by_violations(request.by),
        )
    )
    values: dict[str, object] = {
        field: _json_value(field, getattr(request, field)) for field in _VALUES if request.HasField(field)
    }
    return BrokerDataChange(what, request.cluster, tuple(names), request.topic, request.group, request.undo, values)


def _json_value(field: str, value: Value) -> object:
    try:
        read = MessageToDict(value)
    except (SerializeToJsonError, ValueError):
        raise InvalidRequest([FieldViolation(field, "has a number that JSON does not have")]) from None
    size = len(json.dumps(read, ensure_ascii=False).encode())
    if size > MAX_VALUE_BYTES:
        raise InvalidRequest([FieldViolation(field, f"is {size} bytes of JSON, at most {MAX_VALUE_BYTES} are allowed")])
    return read


def guard_mode_violations(value: int) -> Iterator[FieldViolation]:
    """Check a guard's mode."""
    if value not in _GUARD_MODES:
        yield FieldViolation("mode", f"must be one of {', '.join(_GUARD_MODES.values())}, not {value}")


def guard_mode(value: wire.GuardMode.ValueType) -> GuardMode:
    """Decode a mode that :func:`guard_mode_violations` accepts."""
    return _GUARD_MODES[value]


def to_guard_mode(mode: GuardMode) -> wire.GuardMode.ValueType:
    """Encode."""
    return _TO_GUARD_MODES[mode]


def duration_violations(value: Duration, *, longest: float) -> Iterator[FieldViolation]:
    """Check a duration, in seconds."""
    if not 0 < seconds_of(value) <= longest:
        yield FieldViolation("duration", f"must be more than 0s and at most {longest:g}s, not {seconds_of(value):g}s")


# --- to the wire ----------------------------------------------------------------------------------------------


def broker_status(
    core: BrokerTables, group: Group, replica: Replica, *, now: float, utc_now: datetime
) -> broker_pb2.BrokerStatus:
    """Encode a replica with its state and operators' overrides."""
    status = broker_codec.broker_status(group, replica, now=now, utc_now=utc_now)
    score = core.penalties.score(replica.identity.position, now=now)
    status.write_wiped = group.key in core.overrides.wipes
    status.in_maintenance = core.maintenance.covers(group.key, now=now)
    status.penalty = 0.0 if score is None else score.penalty
    status.also_at_addr.extend(map(broker_codec.to_identity, core.addresses.others(replica.identity)))
    if not core.hears_brokers:
        for unknown in _UNKNOWN_BY_POLLING:
            status.ClearField(unknown)
        status.rule, status.observed = LISTED, True
    return status


def broker_event(record: Record) -> wire.BrokerEvent:
    """Encode a history event, also one about a broker name or cluster as a whole."""
    event = record.event
    encoded = broker_codec.broker_event(event, event_at=record.event_at, seq=record.seq)
    if event.broker is None and event.group is not None:
        encoded.identity.cluster = event.group.cluster
        encoded.identity.broker_name = event.group.broker_name
    encoded.boot_id = record.boot_id
    return encoded


def to_earlier_runs(known: EarlierRuns) -> wire.EarlierRuns.ValueType:
    """Encode."""
    return wire.EarlierRuns.Value(f"EARLIER_RUNS_{known}")


def flap_score(score: FlapScore, *, now: float) -> wire.FlapScore:
    """Encode a penalty."""
    return wire.FlapScore(
        cluster=score.position.cluster,
        broker_name=score.position.broker_name,
        broker_id=score.position.broker_id,
        penalty=score.penalty,
        flapping=score.flapping,
        outages=score.outages,
        last_event=score.last_event,
        last_event_ago=broker_codec.duration(now - score.last_event_at),
    )


def watcher(facts: WatcherFacts, *, now: float) -> wire.Watcher:
    """Encode an open watch."""
    encoded = wire.Watcher(
        peer=facts.peer, age=broker_codec.duration(now - facts.opened_at), topics=facts.topics, pending=facts.pending
    )
    if facts.waiting_since is not None:
        encoded.lag.CopyFrom(broker_codec.duration(now - facts.waiting_since))
    return encoded


def guard_status(status: GuardStatus, *, now: float) -> wire.GuardStatus:
    """Encode the guard of one cluster."""
    encoded = wire.GuardStatus(
        cluster=status.cluster,
        mode=to_guard_mode(status.mode),
        active=status.active,
        lost=status.lost,
        baseline=status.baseline,
        up=status.up,
        reason=status.why,
    )
    if status.active_since is not None:
        encoded.active_for.CopyFrom(broker_codec.duration(now - status.active_since))
    if status.mode_until is not None:
        encoded.mode_remaining.CopyFrom(broker_codec.duration(max(0.0, status.mode_until - now)))
    return encoded


def kv_entry(entry: KvEntry) -> wire.KvEntry:
    """Encode one key."""
    return wire.KvEntry(namespace=entry.namespace, key=entry.key, value=entry.value)


def setting(key: SettingKey, value: Setting, *, now: float) -> wire.OperatorSetting:
    """Encode an operator's setting. Wiped and hidden ones have no value: nodes may have different versions."""
    is_shown = key.kind not in {SettingKind.WIPED_PERMISSION, SettingKind.HIDDEN_TOPIC}
    encoded = wire.OperatorSetting(kind=key.kind.value, name=key.name, value=value.value[0] if is_shown else "")
    if value.until is not None:
        encoded.remaining.CopyFrom(broker_codec.duration(value.until - now))
    return encoded


def to_setting_token(last: wire.OperatorSetting) -> str:
    """Return the page token after this setting. A name cannot contain a slash."""
    return "/".join((last.kind, *last.name))


def setting_token(token: str) -> SettingKey | None:
    """Decode a token; None: the first page. Raises InvalidRequest."""
    if not token:
        return None
    kind, *name = token.split("/")
    if kind not in set(SettingKind):
        raise InvalidRequest([FieldViolation("page_token", f"invalid page_token: {shown(token)}")])
    return SettingKey(SettingKind(kind), tuple(name))


def maintenance_window(window: MaintenanceWindow, *, now: float) -> wire.MaintenanceWindow:
    """Encode an open window."""
    return wire.MaintenanceWindow(
        cluster=window.key.cluster,
        broker_name=window.key.broker_name,
        remaining=broker_codec.duration(window.until - now),
        note=window.note,
        by=window.by,
    )


def configuration(config: NameServerConfig) -> str:
    """Return the effective configuration as TOML, without the arguments of the ``ship`` command: they may be secret."""
    ship = config.history.ship
    if len(ship) > 1:
        ship = (ship[0], "...")
    return to_toml(replace(config, history=replace(config.history, ship=ship)))
