"""The request codes of operators (mqadmin): KV configuration, write permissions, deletions, settings.

Changes that must survive a restart are on disk before the response, as over gRPC.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from pointsman.clock import Clock
from pointsman.rocketmq.codes import ResponseCode
from pointsman.rocketmq.frames import Command, ReadyResponse, compact
from pointsman_namesrv.core.administration import Administration, Change, PermChange, TopicDeletion
from pointsman_namesrv.core.events import RecordEvents
from pointsman_namesrv.core.model import GroupKey
from pointsman_namesrv.core.name_server import NameServer
from pointsman_namesrv.core.node_refusals import KvNotFound, TopicNotFound
from pointsman_namesrv.core.saved_settings import Rows
from pointsman_namesrv.remoting.broker_codes import SUCCESS
from pointsman_namesrv.remoting.fields import text
from pointsman_namesrv.settings.settings_keeper import SettingsKeeper

MAX_SHOWN_NAME = 300
SETTINGS_ARE_A_FILE = "settings are a file: change it and restart this name server"

ChangeT = TypeVar("ChangeT", PermChange, TopicDeletion, Change)


class OperatorCodes:
    """Changes and shows operators' settings. ``shown``: the response to code 319, without paths or secrets."""

    def __init__(
        self,
        core: NameServer,
        settings: SettingsKeeper,
        *,
        clock: Clock,
        record: RecordEvents,
        shown: Callable[[], dict[str, str]],
        administration: Administration,
    ) -> None:
        self._core = core
        self._settings = settings
        self._administration = administration
        self._clock = clock
        self._record = record
        self._shown = shown

    async def put_kv(self, command: Command, by: str) -> ReadyResponse:
        """Set one key. Raises InvalidRequest, LimitExceeded, SettingNotSaved."""
        namespace, key = command.ext.get("namespace"), command.ext.get("key")
        if namespace is None or key is None:
            return ReadyResponse(code=ResponseCode.SYSTEM_ERROR, remark="namespace or key is null")
        admin, entry = self._administration, (namespace, key, text(command, "value"))
        await self._settings.change(
            lambda: admin.check_put_kv(*entry), lambda: self._recorded(admin.put_kv(*entry, by=by))
        )
        return SUCCESS

    def get_kv(self, command: Command) -> ReadyResponse:
        """Return one key. Raises InvalidRequest."""
        namespace, key = text(command, "namespace"), text(command, "key")
        value = self._core.kv.get(namespace, key)
        if value is None:
            remark = f"No config item, Namespace: {namespace[:MAX_SHOWN_NAME]} Key: {key[:MAX_SHOWN_NAME]}"
            return ReadyResponse(code=ResponseCode.QUERY_NOT_FOUND, remark=remark, ext={})
        return ReadyResponse(ext={"value": value})

    async def delete_kv(self, command: Command, by: str) -> ReadyResponse:
        """Remove one key; an unknown one is accepted too. Raises InvalidRequest, LimitExceeded, SettingNotSaved."""
        admin, name = self._administration, (text(command, "namespace"), text(command, "key"))
        try:
            await self._settings.change(
                lambda: admin.check_delete_kv(*name), lambda: self._recorded(admin.delete_kv(*name, by=by))
            )
        except KvNotFound:
            return SUCCESS
        return SUCCESS

    def list_kv(self, command: Command) -> ReadyResponse:
        """Return the keys of a namespace. Raises InvalidRequest."""
        namespace = text(command, "namespace")
        table = {entry.key: entry.value for entry in self._core.kv.entries(namespace)} if namespace else {}
        if not table:
            remark = f"No config item, Namespace: {namespace[:MAX_SHOWN_NAME]}"
            return ReadyResponse(code=ResponseCode.QUERY_NOT_FOUND, remark=remark)
        return ReadyResponse(body=compact({"table": table}))

    async def set_write_perm(self, command: Command, by: str, *, writable: bool) -> ReadyResponse:
        """Wipe or restore the write permission of a broker name, in every cluster.

        Raises InvalidRequest, LimitExceeded, SettingNotSaved.
        """
        name, admin = text(command, "brokerName"), self._administration

        def check() -> Rows:
            changes = (admin.check_write_perm(key, writable=writable) for key in self._groups(name))
            return {setting: value for change in changes for setting, value in change.items()}

        def apply() -> int:
            changes = (admin.set_write_perm(key, writable=writable, by=by) for key in self._groups(name))
            return sum(self._recorded(change).topic_count for change in changes)

        count = (await self._settings.change(check, apply)).outcome
        return ReadyResponse(ext={"addTopicCount" if writable else "wipeTopicCount": str(count)})

    def _groups(self, broker_name: str) -> list[GroupKey]:
        return sorted(key for key in self._core.routes.groups if key.broker_name == broker_name)

    async def delete_topic(self, command: Command, by: str) -> ReadyResponse:
        """Delete a topic from all brokers, or those of one cluster; an unknown one is accepted too.

        Raises InvalidRequest, LimitExceeded, SettingNotSaved.
        """
        admin, topic, cluster = self._administration, text(command, "topic"), command.ext.get("clusterName", "")
        try:
            await self._settings.change(
                lambda: admin.check_delete_topic(topic, cluster=cluster, force=True),
                lambda: self._recorded(
                    admin.delete_topic(topic, cluster=cluster, force=True, by=by, now=self._clock.monotonic())
                ),
            )
        except TopicNotFound:
            return SUCCESS
        return SUCCESS

    def update_settings(self) -> ReadyResponse:
        """Refuse the change: only the configuration file changes this name server's settings."""
        return ReadyResponse(code=ResponseCode.NO_PERMISSION, remark=SETTINGS_ARE_A_FILE)

    def show_settings(self) -> ReadyResponse:
        """Return the settings that RocketMQ has as well, under its names."""
        lines = sorted(f"{name}={value}\n" for name, value in self._shown().items())
        return ReadyResponse(body="".join(lines).encode())

    def _recorded(self, change: ChangeT) -> ChangeT:
        """Record the events of a change in the step that makes it: its connection may have ended."""
        self._record(change.events)
        return change
