"""Copies of operators' settings: the file that holds them, what differs at a name server, and the calls that set them.

Hidden topics are in a file for the record alone: they end when a broker registers other topics, so a copy would hide
what was never hidden.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import click
from google.protobuf.duration_pb2 import Duration
from rich.console import RenderableType
from rich.text import Text

from pointsman.names import printable, registered_name_problem, text_problem
from pointsman.v1 import admin_service_pb2 as admin
from pointsman.wire.json_document import Document
from pointsman.wire.operator_texts import counted
from pointsman_client import AccessDeniedError, InvalidInputError, NameServersUnavailableError, RequestRejectedError
from pointsman_ctl.commands.server_changes import Outcome, outcome_document, outcome_line
from pointsman_ctl.options.command_options import Consent, confirm
from pointsman_ctl.options.invocation import Invocation
from pointsman_ctl.output.error_report import EXIT_FAILED, EXIT_OK, failure_text
from pointsman_ctl.output.node_difference import setting_document, setting_label, setting_text
from pointsman_ctl.output.output_layout import failure_line, new_table, node_document, node_heading
from pointsman_ctl.servers.name_servers import Key, NodeSettings, PointsmanNameServer, Setting
from pointsman_ctl.servers.server_calls import NodeResponse, deadline_in

FORMAT_VERSION = 1
MAX_LISTED = 10
"""Settings in a line of the table; JSON has all."""
MAX_FILE_BYTES = 32 * 1024 * 1024
"""The largest configuration of a name server, 3 MiB of keys and values, takes less than 10."""
MAX_VALUE_LENGTH = 64 * 1024
UNPACED_CALLS = 1_000
PAUSE_SECONDS = 0.01
"""Between further calls: a server accepts 200 per second of one operator after the first 2,000."""
KV = "KV"
KINDS = {KV: 2, "WIPED_PERMISSION": 2, "HIDDEN_TOPIC": 3, "GUARD": 1, "MAINTENANCE": 2}
"""By kind: the number of parts of its name."""
NOT_COPIED = "HIDDEN_TOPIC"
GUARD_MODES = {"AUTO": admin.GUARD_MODE_AUTO, "HOLD": admin.GUARD_MODE_HOLD, "OFF": admin.GUARD_MODE_OFF}


class InvalidSettingsFileError(InvalidInputError):
    """The file is not one that ``settings dump`` wrote."""

    code = "INVALID_SETTINGS_FILE"

    def __init__(self, source: str, problem: str) -> None:
        super().__init__(f"{source} is not a file of `settings dump`: {problem}")


@dataclass(frozen=True, slots=True)
class StoredSetting:
    """A setting in a file or at another server."""

    value: str
    ends_at: datetime | None
    """None: it has no time limit."""

    def at(self, now: datetime) -> Setting:
        """Return it with its remaining time."""
        return Setting(self.value, None if self.ends_at is None else (self.ends_at - now).total_seconds())


StoredSettings = Mapping[Key, StoredSetting]


def stored(settings: NodeSettings, *, now: datetime) -> dict[Key, StoredSetting]:
    """Return the settings of a server with the moments at which they end."""
    return {
        key: StoredSetting(
            setting.value,
            None if setting.remaining_seconds is None else now + timedelta(seconds=setting.remaining_seconds),
        )
        for key, setting in settings.items()
    }


def to_file(settings: StoredSettings, *, source: str, now: datetime) -> str:
    """Return the text of a file."""
    rows = [
        {"kind": key[0], "name": list(key[1:]), "value": setting.value}
        | ({} if setting.ends_at is None else {"endsAt": setting.ends_at.isoformat(timespec="seconds")})
        for key, setting in sorted(settings.items())
    ]
    document = {"version": FORMAT_VERSION, "source": source, "dumpedAt": now.isoformat(timespec="seconds")}
    return json.dumps({**document, "settings": rows}, indent=1, ensure_ascii=False) + "\n"


def read_file(content: bytes, *, source: str) -> dict[Key, StoredSetting]:
    """Read a file. Raises InvalidSettingsFileError, which names the setting and the field."""
    if len(content) > MAX_FILE_BYTES:
        raise InvalidSettingsFileError(source, f"it has more than {MAX_FILE_BYTES:,} bytes")
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InvalidSettingsFileError(source, f"it is not JSON: {error}") from error
    if not isinstance(document, dict) or document.get("version") != FORMAT_VERSION:
        raise InvalidSettingsFileError(source, f"version must be {FORMAT_VERSION}")
    rows = document.get("settings")
    if not isinstance(rows, list):
        raise InvalidSettingsFileError(source, "settings must be a list")
    found: dict[Key, StoredSetting] = {}
    for position, row in enumerate(rows):
        try:
            key, setting = _setting(row)
        except ValueError as error:
            raise InvalidSettingsFileError(source, f"settings[{position}]{error}") from None
        if key in found:
            raise InvalidSettingsFileError(source, f"settings[{position}] is there twice: {' '.join(key)}")
        found[key] = setting
    return found


def _setting(row: object) -> tuple[Key, StoredSetting]:
    """Raises ValueError, whose text continues ``settings[3]``."""
    if not isinstance(row, dict):
        raise ValueError(" must be an object")  # noqa: TRY004  # as all other problems
    kind = row.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise ValueError(f".kind must be one of {', '.join(KINDS)}, got {kind!r}")
    name = row.get("name")
    if not (isinstance(name, list) and len(name) == KINDS[kind] and all(isinstance(part, str) for part in name)):
        raise ValueError(f".name must be a list of {KINDS[kind]} strings for {kind}, got {name!r}")
    for part in name[:1] if kind == "MAINTENANCE" and not name[1] else name:
        if problem := registered_name_problem(part):
            raise ValueError(f".name: {part!r} {problem}")
    return (kind, *name), StoredSetting(_value(kind, row.get("value", "")), _ends_at(row.get("endsAt")))


def _value(kind: str, value: Any) -> str:  # noqa: ANN401  # what JSON holds
    if not isinstance(value, str):
        raise ValueError(f".value must be a string, got {value!r}")  # noqa: TRY004  # as all other problems
    if kind == "GUARD" and value not in GUARD_MODES:
        raise ValueError(f".value must be one of {', '.join(GUARD_MODES)}, got {value!r}")
    problem = text_problem(value) if kind == "MAINTENANCE" else None
    if problem is None and len(value) > MAX_VALUE_LENGTH:
        problem = f"has {len(value)} characters, at most {MAX_VALUE_LENGTH} are allowed"
    if problem:
        raise ValueError(f".value {problem}")
    return value


def _ends_at(text: object) -> datetime | None:
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text if isinstance(text, str) else "")
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise ValueError(f".endsAt must be a time such as 2026-11-29T14:00:00+00:00, got {text!r}")
    return found.astimezone(UTC)


@dataclass(frozen=True, slots=True)
class ServerPlan:
    """What a copy changes at one server."""

    now: NodeSettings
    wanted: Mapping[Key, StoredSetting]
    """The settings that are not there, or differ."""
    ended: Sequence[Key]
    """Settings of the source whose time is over."""
    kept: Sequence[Key]
    """Settings that the source does not have: they stay."""


def plan_of(source: StoredSettings, now_there: NodeSettings, *, kinds: Iterable[str], now: datetime) -> ServerPlan:
    """Compare a server with the source in these kinds of settings."""
    chosen = {kind for kind in kinds if kind != NOT_COPIED}
    ours = {key: setting for key, setting in source.items() if key[0] in chosen}
    ended = sorted(key for key, setting in ours.items() if setting.ends_at is not None and setting.ends_at <= now)
    wanted = {}
    for key in sorted(ours.keys() - set(ended)):
        there = now_there.get(key)
        if there is None or not there.is_same(ours[key].at(now)):
            wanted[key] = ours[key]
    kept = sorted(key for key in now_there if key[0] in chosen and key not in ours)
    return ServerPlan(now_there, wanted, ended, kept)


def settings_of(invocation: Invocation, addr: str) -> StoredSettings:
    """Return the settings of one server. Raises what it failed with."""
    (node,) = invocation.query_every(PointsmanNameServer.settings, addrs=[addr])
    if node.response is None:
        raise node.failure or NameServersUnavailableError([])
    return stored(node.response, now=datetime.now(UTC))


def copy_settings(
    invocation: Invocation, wanted: StoredSettings, kinds: Iterable[str], consent: Consent, *, source: str = ""
) -> int:
    """Show what differs at each server, and with the operator's consent set it there; return the exit code.

    Every call sets one setting and is recorded by the server with the author. A setting that the server rejects does
    not keep the others from being set. What was set stays set if a later call fails: the same command continues.
    ``source``: the server that has them, which is left out.
    """
    chosen = tuple(kinds)
    now = datetime.now(UTC)

    async def compare(server: PointsmanNameServer, deadline: float) -> ServerPlan:
        return plan_of(wanted, await server.settings(deadline), kinds=chosen, now=now)

    addrs = [addr for addr in invocation.name_servers if addr != source]
    if not addrs:
        raise click.UsageError(f"{source} is the only name server listed: give others with --namesrv")
    plans = invocation.query_every(compare, addrs=addrs)
    if all(each.response is None for each in plans):
        return invocation.finish(plans, {}, [])
    count = sum(len(plan.response.wanted) for plan in plans if plan.response is not None)
    hidden = sorted(key for key in wanted if key[0] == NOT_COPIED) if len(chosen) > 1 else []
    if not invocation.is_json:
        invocation.show({}, plan_parts(plans, hidden, now=now))
    answers: list[NodeResponse[Outcome]] = [NodeResponse(each.addr, None, each.failure) for each in plans]
    if count and not consent.dry_run:
        where = [each.addr for each in plans if each.response is not None and each.response.wanted]
        confirm(f"Change {counted(count, 'setting')} at {', '.join(where)}?", yes=consent.yes)
        answers = _set_everywhere(invocation, plans, by=consent.by)
    elif not consent.dry_run:
        answers = [_unchanged(each) for each in plans]
    document: Document = {
        "dryRun": consent.dry_run,
        "plan": [node_document(each, lambda plan: plan_document(plan, now=now)) for each in plans],
        "notCopied": [list(key[1:]) for key in hidden],
        "servers": [] if consent.dry_run else [node_document(each, outcome_document) for each in answers],
    }
    done = [each for each in answers if not consent.dry_run]
    code = invocation.finish(plans if consent.dry_run else answers, document, map(outcome_line, done), is_change=True)
    failed = any(each.response is not None and each.response.facts.get("failed") for each in done)
    return EXIT_FAILED if code == EXIT_OK and failed else code


def _unchanged(plan: NodeResponse[ServerPlan]) -> NodeResponse[Outcome]:
    done = None if plan.response is None else Outcome("nothing to change", changed=False, facts=_facts(0, {}))
    return NodeResponse(plan.addr, done, plan.failure)


def _set_everywhere(
    invocation: Invocation, plans: Sequence[NodeResponse[ServerPlan]], *, by: str
) -> list[NodeResponse[Outcome]]:
    by_addr = {each.addr: each.response for each in plans if each.response is not None and each.response.wanted}

    async def apply(server: PointsmanNameServer, _deadline: float) -> Outcome:
        failed: dict[str, str] = {}
        plan = by_addr[server.addr]
        for position, (key, setting) in enumerate(plan.wanted.items()):
            if position >= UNPACED_CALLS:
                await asyncio.sleep(PAUSE_SECONDS)
            try:
                await _set(server, key, setting.at(datetime.now(UTC)), by=by, seconds=invocation.timeout_seconds)
            except AccessDeniedError:
                raise
            except RequestRejectedError as failure:
                failed[setting_label(key)] = failure_text(failure)
        done = len(plan.wanted) - len(failed)
        text = f"{counted(done, 'setting')} set"
        if failed:
            text += f", {len(failed)} not: {'; '.join(f'{label} ({why})' for label, why in failed.items())}"
        return Outcome(text, changed=bool(done), facts=_facts(done, failed))

    applied = {each.addr: each for each in invocation.query_every(apply, addrs=[*by_addr])}
    return [applied.get(each.addr) or _unchanged(each) for each in plans]


def _facts(done: int, failed: Mapping[str, str]) -> Document:
    return {"set": done, "failed": [{"setting": label, "message": why} for label, why in failed.items()]}


async def _set(server: PointsmanNameServer, key: Key, setting: Setting, *, by: str, seconds: float) -> None:
    deadline, stub = deadline_in(seconds), server.admin
    kind, name = key[0], key[1:]
    limit = setting.remaining_seconds
    duration = None if limit is None else Duration(seconds=max(1, round(limit)))
    if kind == KV:
        put = admin.PutKvRequest(namespace=name[0], key=name[1], value=setting.value, by=by)
        await server.call(stub.PutKv, put, deadline=deadline)
    elif kind == "GUARD":
        guard = admin.SetGuardRequest(cluster=name[0], mode=GUARD_MODES[setting.value], duration=duration, by=by)
        await server.call(stub.SetGuard, guard, deadline=deadline)
    elif kind == "MAINTENANCE":
        window = admin.SetMaintenanceRequest(
            cluster=name[0], broker_name=name[1], duration=duration, note=setting.value, by=by
        )
        await server.call(stub.SetMaintenance, window, deadline=deadline)
    else:
        wipe = admin.SetWritePermRequest(cluster=name[0], broker_name=name[1], writable=False, by=by)
        await server.call(stub.SetWritePerm, wipe, deadline=deadline)


def plan_document(plan: ServerPlan, *, now: datetime) -> Document:
    """Render what a copy changes at a server."""
    changes = [
        {
            "kind": key[0],
            "name": list(key[1:]),
            "before": setting_document(plan.now.get(key)),
            "after": setting_document(setting.at(now)),
        }
        for key, setting in plan.wanted.items()
    ]
    return {
        "changes": changes,
        "ended": [{"kind": key[0], "name": list(key[1:])} for key in plan.ended],
        "kept": [{"kind": key[0], "name": list(key[1:])} for key in plan.kept],
    }


def plan_parts(
    plans: Sequence[NodeResponse[ServerPlan]], hidden: Sequence[Key], *, now: datetime
) -> Iterable[RenderableType]:
    """Show what a copy changes at each server."""
    for position, node in enumerate(plans):
        yield from node_heading(position, node.addr, "")
        if node.response is None:
            yield failure_line(node)
            continue
        plan = node.response
        if plan.wanted:
            table = new_table("SETTING", "NOW", "NEW")
            for key, setting in plan.wanted.items():
                table.add_row(setting_label(key), setting_text(plan.now.get(key)), setting_text(setting.at(now)))
            yield table
        else:
            yield Text("nothing to change")
        if plan.ended:
            yield Text(f"not set, because their time is over: {_listed(plan.ended)}")
        if plan.kept:
            yield Text(f"kept, although the source does not have them: {_listed(plan.kept)}")
    for _, cluster, broker_name, topic in hidden:
        where = printable(f"{topic} on {cluster}/{broker_name}")
        yield Text(f"not copied: hidden topic {where}; see `pointsmanctl delete-topic --help`")


def _listed(keys: Sequence[Key]) -> str:
    shown = ", ".join(setting_label(key) for key in keys[:MAX_LISTED])
    return shown if len(keys) <= MAX_LISTED else f"{shown} and {len(keys) - MAX_LISTED} more"
