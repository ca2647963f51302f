"""The codes that operators speak (mqadmin): KV configuration, write permissions, deletions, settings."""

from __future__ import annotations

from collections.abc import Callable

from namesrv.core.additive import AdditiveRegistrations
from namesrv.core.administration import Administration
from namesrv.core.errors import KvNotFound
from namesrv.core.name_server import NameServer
from namesrv.remoting.brokers import SUCCESS, RecordEvents
from namesrv.remoting.fields import text
from pointsman.remoting.codes import ResponseCode
from pointsman.remoting.frames import Command, ReadyAnswer, compact
from pointsman.service.clock import Clock

MAX_SHOWN_NAME = 300


class OperatorCodes:
    """Changes and shows what operators set. ``settings``: what code 319 shows, without paths or secrets."""

    def __init__(
        self,
        core: NameServer,
        word: AdditiveRegistrations,
        *,
        clock: Clock,
        record: RecordEvents,
        settings: Callable[[], dict[str, str]],
    ) -> None:
        self._core = core
        self._word = word
        self._administration = Administration(core)
        self._clock = clock
        self._record = record
        self._settings = settings

    def put_kv(self, command: Command, by: str) -> ReadyAnswer:
        """Set one key. Raises InvalidRequest, LimitExceeded."""
        namespace, key = command.ext.get("namespace"), command.ext.get("key")
        if namespace is None or key is None:
            return ReadyAnswer(code=ResponseCode.SYSTEM_ERROR, remark="namespace or key is null")
        self._record(self._administration.put_kv(namespace, key, text(command, "value"), by=by).events)
        return SUCCESS

    def get_kv(self, command: Command) -> ReadyAnswer:
        """One key. Raises InvalidRequest."""
        namespace, key = text(command, "namespace"), text(command, "key")
        value = self._core.kv.get(namespace, key)
        if value is None:
            remark = f"No config item, Namespace: {namespace[:MAX_SHOWN_NAME]} Key: {key[:MAX_SHOWN_NAME]}"
            return ReadyAnswer(code=ResponseCode.QUERY_NOT_FOUND, remark=remark, ext={})
        return ReadyAnswer(ext={"value": value})

    def delete_kv(self, command: Command, by: str) -> ReadyAnswer:
        """Remove one key; an unknown one is accepted too. Raises InvalidRequest."""
        try:
            self._record(self._administration.delete_kv(text(command, "namespace"), text(command, "key"), by=by).events)
        except KvNotFound:
            return SUCCESS
        return SUCCESS

    def list_kv(self, command: Command) -> ReadyAnswer:
        """The keys of a namespace. Raises InvalidRequest."""
        namespace = text(command, "namespace")
        table = {entry.key: entry.value for entry in self._core.kv.entries(namespace)} if namespace else {}
        if not table:
            remark = f"No config item, Namespace: {namespace[:MAX_SHOWN_NAME]}"
            return ReadyAnswer(code=ResponseCode.QUERY_NOT_FOUND, remark=remark)
        return ReadyAnswer(body=compact({"table": table}))

    def set_write_perm(self, command: Command, by: str, *, writable: bool) -> ReadyAnswer:
        """Wipe or give back the write permission of a broker name, in every cluster. Raises InvalidRequest."""
        name, count = text(command, "brokerName"), 0
        for key in sorted(key for key in self._core.routes.groups if key.broker_name == name):
            done = self._administration.set_write_perm(key, writable=writable, by=by)
            self._record(done.events)
            count += done.topic_count
        return ReadyAnswer(ext={"addTopicCount" if writable else "wipeTopicCount": str(count)})

    def delete_topic(self, command: Command, by: str) -> ReadyAnswer:
        """Take a topic from all brokers, or those of one cluster. Raises InvalidRequest."""
        cluster = command.ext.get("clusterName", "")
        self._record(self._word.delete_topic(text(command, "topic"), cluster, by=by, now=self._clock.monotonic()))
        return SUCCESS

    def update_settings(self) -> ReadyAnswer:
        """Settings are this name server's file, and nothing else changes them."""
        return ReadyAnswer(code=ResponseCode.NO_PERMISSION, remark="Can not update config in black list.")

    def show_settings(self) -> ReadyAnswer:
        """The settings that RocketMQ has as well, under its names."""
        lines = sorted(f"{name}={value}\n" for name, value in self._settings().items())
        return ReadyAnswer(body="".join(lines).encode())
