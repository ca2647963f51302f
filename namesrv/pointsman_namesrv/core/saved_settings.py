"""Operators' settings that survive a restart, as rows: KV, wiped permissions, hidden topics, guards, windows.

One row per setting, so that a change writes only its own rows. Pure: this module does not know where rows are stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from pointsman.wire.refusals import FieldViolation, Refusal, refuse_if_any
from pointsman_namesrv.core.broker_tables import BrokerTables
from pointsman_namesrv.core.guard import GuardMode, GuardSetting
from pointsman_namesrv.core.kv import ORDER_TOPIC_NAMESPACE
from pointsman_namesrv.core.maintenance import MaintenanceWindow
from pointsman_namesrv.core.model import DataVersion, GroupKey
from pointsman_namesrv.core.name_server import NameServer
from pointsman_namesrv.core.node_refusals import LimitExceeded
from pointsman_namesrv.core.request_rules import MAX_INCARNATION_LENGTH, name_violations, text_violations

MAX_WIPES = 20_000
"""Limit of broker names whose write permission is wiped. A wipe outlives its brokers, so it needs a bound."""
MAX_HIDDEN_TOPICS = 200_000
"""Limit of topics hidden by a deletion, one for each broker name that has it."""


class SettingKind(StrEnum):
    """Kind of a setting."""

    KV = "KV"
    """Namespace and key: the value. Order topics are among them."""
    WIPED_PERMISSION = "WIPED_PERMISSION"
    """Cluster and broker name: the incarnation that was wiped."""
    HIDDEN_TOPIC = "HIDDEN_TOPIC"
    """Cluster, broker name and topic: the version of the topic set under which it is hidden."""
    GUARD = "GUARD"
    """Cluster: the mode."""
    MAINTENANCE = "MAINTENANCE"
    """Cluster and broker name: note, and the operator."""


class SettingKey(NamedTuple):
    """Identifies a setting. Sorts by kind and name."""

    kind: SettingKind
    name: tuple[str, ...]


class Setting(NamedTuple):
    """Value of a setting; the kind determines the parts of ``value``."""

    value: tuple[str, ...]
    until: float | None = None
    """Monotonic seconds; None: until it is changed."""


Rows: TypeAlias = Mapping[SettingKey, Setting | None]
"""New values by key; None: removed."""


# --- current settings -----------------------------------------------------------------------------------------


def setting_of(core: BrokerTables, key: SettingKey) -> Setting | None:
    """Return the setting of one key."""
    kind, name = key
    match kind:
        case SettingKind.KV:
            value = core.kv.get(*name)
            return None if value is None else Setting((value,))
        case SettingKind.WIPED_PERMISSION:
            wiped = core.overrides.wipes.get(GroupKey(*name))
            return None if wiped is None else Setting((wiped,))
        case SettingKind.HIDDEN_TOPIC:
            version = core.overrides.tombstones.get(GroupKey(*name[:2]), {}).get(name[2])
            return None if version is None else _hidden(version)
        case SettingKind.GUARD:
            guard = core.guard.setting(*name)
            return None if guard is None else Setting((guard.mode.value,), guard.until)
        case SettingKind.MAINTENANCE:
            window = core.maintenance.window(GroupKey(*name))
            return None if window is None else Setting((window.note, window.by), window.until)


def settings_of(core: BrokerTables) -> dict[SettingKey, Setting]:
    """Return all settings."""
    found = {SettingKey(SettingKind.KV, entry[:2]): Setting((entry.value,)) for entry in core.kv.entries()}
    for group, incarnation in core.overrides.wipes.items():
        found[wipe_key(group)] = Setting((incarnation,))
    for group, topics in core.overrides.tombstones.items():
        for topic, version in topics.items():
            found[hidden_key(group, topic)] = _hidden(version)
    for guard in core.guard.settings():
        found[guard_key(guard.cluster)] = Setting((guard.mode.value,), guard.until)
    for window in core.maintenance.windows():
        found[maintenance_key(window.key)] = Setting((window.note, window.by), window.until)
    return found


def wipe_key(group: GroupKey) -> SettingKey:
    """Return the key of a broker name's wiped write permission."""
    return SettingKey(SettingKind.WIPED_PERMISSION, (group.cluster, group.broker_name))


def hidden_key(group: GroupKey, topic: str) -> SettingKey:
    """Return the key of a topic's deletion, for one broker name."""
    return SettingKey(SettingKind.HIDDEN_TOPIC, (group.cluster, group.broker_name, topic))


def guard_key(cluster: str) -> SettingKey:
    """Return the key of a guard's mode."""
    return SettingKey(SettingKind.GUARD, (cluster,))


def maintenance_key(group: GroupKey) -> SettingKey:
    """Return the key of a maintenance window."""
    return SettingKey(SettingKind.MAINTENANCE, (group.cluster, group.broker_name))


def hidden_setting(version: DataVersion) -> Setting:
    """Return the setting that hides a topic under this version of its broker's topics."""
    return _hidden(version)


def _hidden(version: DataVersion) -> Setting:
    return Setting(tuple(map(str, version)))


# --- restart --------------------------------------------------------------------------------------------------


def restore(core: NameServer, settings: Mapping[SettingKey, Setting], *, now: float) -> dict[SettingKey, str]:
    """Apply the settings of an earlier run; return those that were refused, with the reason. Ended ones are skipped.

    Runs before the brokers are restored: a broker whose permission is wiped must never be writable.
    """
    refused: dict[SettingKey, str] = {}
    for key, setting in settings.items():
        if setting.until is not None and setting.until <= now:
            continue
        try:
            _RESTORE[key.kind](core, key.name, setting)
        except (Refusal, ValueError) as error:
            refused[key] = str(error)
    return refused


def _restore_kv(core: NameServer, name: tuple[str, ...], setting: Setting) -> None:
    namespace, key = name
    core.kv.put(namespace, key, *setting.value)
    if namespace == ORDER_TOPIC_NAMESPACE:
        core.routes.set_order_topic(key, *setting.value)


def _restore_wipe(core: NameServer, name: tuple[str, ...], setting: Setting) -> None:
    (incarnation,) = setting.value
    problems = [*_group_violations(name), *text_violations("incarnation", incarnation)]
    if len(incarnation) > MAX_INCARNATION_LENGTH:
        problems.append(FieldViolation("incarnation", f"has more than {MAX_INCARNATION_LENGTH} characters"))
    refuse_if_any(problems)
    core.routes.restore_overrides({GroupKey(*name): incarnation}, {})


def _restore_hidden(core: NameServer, name: tuple[str, ...], setting: Setting) -> None:
    *group, topic = name
    refuse_if_any([*_group_violations(group), *name_violations("topic", topic)])
    version = DataVersion(*map(int, setting.value))
    key = GroupKey(*group)
    core.routes.restore_overrides({}, {key: {**core.overrides.tombstones.get(key, {}), topic: version}})


def _restore_guard(core: NameServer, name: tuple[str, ...], setting: Setting) -> None:
    (cluster,), (mode,) = name, setting.value
    refuse_if_any(name_violations("cluster", cluster))
    core.guard.restore([GuardSetting(cluster, GuardMode(mode), setting.until)])


def _restore_window(core: NameServer, name: tuple[str, ...], setting: Setting) -> None:
    (cluster, broker_name), (note, by) = name, setting.value
    problems = [*name_violations("cluster", cluster), *text_violations("note", note), *text_violations("by", by)]
    if broker_name:
        problems += name_violations("broker_name", broker_name)
    if setting.until is None:
        problems.append(FieldViolation("until", "is not set"))
    refuse_if_any(problems)
    assert setting.until is not None
    window = MaintenanceWindow(key=GroupKey(cluster, broker_name), until=setting.until, note=note, by=by)
    core.maintenance.restore([window])


_RESTORE: dict[SettingKind, Callable[[NameServer, tuple[str, ...], Setting], None]] = {
    SettingKind.KV: _restore_kv,
    SettingKind.WIPED_PERMISSION: _restore_wipe,
    SettingKind.HIDDEN_TOPIC: _restore_hidden,
    SettingKind.GUARD: _restore_guard,
    SettingKind.MAINTENANCE: _restore_window,
}


def _group_violations(name: Iterable[str]) -> list[FieldViolation]:
    cluster, broker_name = name
    return [*name_violations("cluster", cluster), *name_violations("broker_name", broker_name)]


# --- bounds ---------------------------------------------------------------------------------------------------


def refuse_beyond(limit: str, bound: int, *, held: int, added: int) -> None:
    """Raise LimitExceeded if ``added`` more settings do not fit."""
    if added and held + added > bound:
        raise LimitExceeded(limit, bound)
