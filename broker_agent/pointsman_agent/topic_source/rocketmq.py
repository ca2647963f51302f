"""Topics from the files of a RocketMQ broker: ``topics.json`` or its ``.bak``, and ``broker.conf``.

As in RocketMQ's own loader, a ``topics.json`` that is missing, empty or cannot be parsed is replaced by its ``.bak``;
if that is unusable too, the last valid content applies. A file that cannot be opened for another reason (permissions, a
failing disk) is not replaced by its ``.bak``.

The version is the broker's, unchanged, and is compared for equality only: a slave's counter jumps. In two cases the
registered topics differ from the broker's version: while ``brokerPermission`` masks topics, and after a change of the
file without a change of its version. Both get a derived version instead.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from pointsman.clock import Clock
from pointsman.single_call_thread import SingleCallThread
from pointsman_agent.core.topic_set import TopicConfig, TopicSet
from pointsman_agent.topic_source import TopicSourceError
from pointsman_agent.topic_source.broker_conf import BrokerConf, BrokerConfError, read_broker_conf
from pointsman_agent.topic_source.followed_file import FollowedFile, UnusableFileError
from pointsman_agent.topic_source.paused_collector import collector_paused
from pointsman_agent.topic_source.topics_json import TopicsJson, TopicTable

MAX_BROKER_CONF_BYTES = 2**20
SETTLE_SECONDS = 0.05
"""Time to wait for a writer that seems to be active."""

TRIES = 4
"""Reads of ``topics.json`` before its ``.bak`` is used: during a write it is missing or partial for milliseconds."""

DEFAULT_STORE = "store"
"""In the home of the broker's user; the agent uses its own user's."""

log = logging.getLogger(__name__)


def load_broker_conf(path: Path, *, environment: Mapping[str, str]) -> BrokerConf:
    """Read the broker's properties file once, at the agent's start.

    Raises TopicSourceError, also for a broker that keeps its topics in RocksDB.
    """
    conf = _conf_file(path, environment).read()
    if conf.foreign_store:
        raise TopicSourceError(f"{path}: {conf.foreign_store}")
    return conf


class RocketmqTopicSource:
    """Reads a broker's files. ``store_path`` is its storePathRootDir; empty: the one in ``broker_conf``.

    An empty ``broker_conf`` is like a file without settings. ``on_skipped`` is called with the number of topics that
    cannot be registered, whenever it changes.
    """

    def __init__(
        self,
        *,
        store_path: str,
        broker_conf: str,
        max_topics: int,
        clock: Clock,
        environment: Mapping[str, str],
        on_skipped: Callable[[int], None] | None = None,
    ) -> None:
        self._store_path = store_path
        self._clock = clock
        self._on_skipped = on_skipped
        self._thread = SingleCallThread("topics-rocketmq", busy=TopicSourceError)
        self._conf_file = _conf_file(Path(broker_conf), environment) if broker_conf else None
        self._reader = TopicsJson(max_topics)
        self._conf: BrokerConf | None = None if broker_conf else BrokerConf()
        self._conf_problem = ""
        self._identity_changes: list[str] = []
        self._copies: _Copies | None = None
        self._registered = _RegisteredTopics()
        self._reads_backup = False
        self._skipped: tuple[int, tuple[str, ...]] = (0, ())

    async def read(self) -> TopicSet:
        """See :meth:`pointsman_agent.topic_source.TopicSource.read`."""
        conf = await self._read_conf()
        if conf.foreign_store:
            raise TopicSourceError(conf.foreign_store)
        copies = self._copies = self._copies or _Copies(self._topics_path(conf), self._reader)
        for _ in range(TRIES - 1):
            try:
                table = await self._thread.run(copies.read_main)
            except UnusableFileError:
                await self._clock.sleep(SETTLE_SECONDS)
            else:
                self._log_backup(reads_backup=False)
                return await self._give(table, conf)
        found = await self._thread.run(copies.read_both)
        self._log_backup(reads_backup=found.is_backup, problem=found.main_problem)
        return await self._give(found.table, conf)

    async def _read_conf(self) -> BrokerConf:
        """Return the settings in use: changed content must be the same a moment later."""
        if self._conf_file is None:
            return self._conf or BrokerConf()
        held = self._conf
        try:
            conf = await self._thread.run(self._conf_file.read)
            if held is not None and conf != held:
                await self._clock.sleep(SETTLE_SECONDS)
                if await self._thread.run(self._conf_file.read) != conf:
                    return held
        except TopicSourceError as error:
            if held is None:
                raise
            self._log_conf_problem(str(error))
            return held
        self._log_conf_problem("")
        if held is None:
            self._conf = conf
            return conf
        self._log_identity(held.changed_settings(conf))
        # Other changes need a restart of the agent, so those settings keep their values here as well.
        self._conf = replace(held, broker_permission=conf.broker_permission, foreign_store=conf.foreign_store)
        return self._conf

    def _topics_path(self, conf: BrokerConf) -> Path:
        root = self._store_path or conf.store_path_root_dir
        return (Path(root) if root else Path.home() / DEFAULT_STORE) / "config" / "topics.json"

    async def _give(self, table: TopicTable, conf: BrokerConf) -> TopicSet:
        if (table.skipped_count, table.skipped) != self._skipped:
            self._log_skipped(table)
        if not self._registered.is_current(table, conf):
            await self._thread.run(lambda: self._take(table, conf))
        return self._registered.topic_set()

    def _take(self, table: TopicTable, conf: BrokerConf) -> None:
        with collector_paused():
            self._registered.take(table, conf)

    def _log_skipped(self, table: TopicTable) -> None:
        self._skipped = table.skipped_count, table.skipped
        if self._on_skipped is not None:
            self._on_skipped(table.skipped_count)
        if table.skipped_count:
            facts = {"skipped": table.skipped_count, "first": list(table.skipped)}
            log.warning("ignored topics that cannot be registered", extra={"facts": facts})

    def _log_backup(self, *, reads_backup: bool, problem: str = "") -> None:
        if reads_backup is not self._reads_backup:
            self._reads_backup = reads_backup
            facts = {"problem": problem} if problem else {}
            level = logging.WARNING if reads_backup else logging.INFO
            log.log(
                level,
                "topics are read from topics.json%s",
                ".bak" if reads_backup else " again",
                extra={"facts": facts},
            )

    def _log_conf_problem(self, problem: str) -> None:
        if problem != self._conf_problem:
            self._conf_problem = problem
            if problem:
                log.warning(
                    "broker.conf cannot be used; keeping its last valid content", extra={"facts": {"problem": problem}}
                )
            else:
                log.info("broker.conf is valid again")

    def _log_identity(self, changes: list[str]) -> None:
        if changes != self._identity_changes:
            self._identity_changes = changes
            if changes:
                log.warning("broker.conf changed: restart to apply", extra={"facts": {"settings": changes}})


@dataclass(frozen=True, slots=True)
class _Found:
    table: TopicTable
    is_backup: bool = False
    main_problem: str = ""


class _Copies:
    """The file and its backup. Blocks."""

    def __init__(self, main: Path, reader: TopicsJson) -> None:
        backup = main.with_name(f"{main.name}.bak")
        self._main = FollowedFile(main, max_bytes=reader.max_bytes, parse=reader.parse)
        self._backup = FollowedFile(backup, max_bytes=reader.max_bytes, parse=reader.parse)

    def read_main(self) -> TopicTable:
        table = self._main.read()
        self._backup.forget()
        return table

    def read_both(self) -> _Found:
        try:
            return _Found(self.read_main())
        except UnusableFileError as error:
            problem = str(error)
        try:
            return _Found(self._backup.read(), is_backup=True, main_problem=problem)
        except UnusableFileError as error:
            raise TopicSourceError(f"{problem}; {error}") from None


class _RegisteredTopics:
    """Derives the registered topics from a table: the mask of ``brokerPermission``, and the version."""

    def __init__(self) -> None:
        self._table: TopicTable | None = None
        self._permission = -1
        self._first: TopicTable | None = None
        """The first table with the current version: the content that the version stands for."""
        self._set: TopicSet | None = None

    def is_current(self, table: TopicTable, conf: BrokerConf) -> bool:
        return table is self._table and conf.broker_permission == self._permission

    def topic_set(self) -> TopicSet:
        assert self._set is not None  # noqa: S101  # set by take
        return self._set

    def take(self, table: TopicTable, conf: BrokerConf) -> None:
        if self._first is None or table.data_version != self._first.data_version:
            self._first = table
        is_other_content = table.topics != self._first.topics
        if is_other_content:
            log.warning("topics changed without their DataVersion; the agent registers them under its own")
        topics = tuple(_masked(each, conf.broker_permission) for each in table.topics) if conf.masks else table.topics
        if conf.masks or is_other_content:
            self._set = TopicSet.amended(topics, of=table.data_version)
        else:
            self._set = TopicSet(topics, table.data_version)
        self._table, self._permission = table, conf.broker_permission


def _masked(topic: TopicConfig, permission: int) -> TopicConfig:
    return replace(topic, perm=topic.perm & permission)


def _conf_file(path: Path, environment: Mapping[str, str]) -> FollowedFile[BrokerConf]:
    def parse(content: bytes) -> BrokerConf:
        try:
            return read_broker_conf(content, environment=environment)
        except BrokerConfError as error:
            raise TopicSourceError(str(error)) from error

    return FollowedFile(path, max_bytes=MAX_BROKER_CONF_BYTES, parse=parse)
