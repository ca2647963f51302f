"""Topics from the agent's own configuration file, read again when it changes and on SIGHUP.

Only the ``[[topics.topic]]`` tables are applied while the agent runs. Another identity, name server or probe means
another agent, and a mixture of two configurations was never tested by its author.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path

from pointsman.clock import Clock, SystemClock
from pointsman.config import ConfigError, changed_settings
from pointsman.single_call_thread import SingleCallThread
from pointsman_agent.config import PERMS, AgentConfig, TopicRow, load
from pointsman_agent.core.topic_set import TopicConfig, TopicSet
from pointsman_agent.topic_source import TopicSourceError
from pointsman_agent.topic_source.followed_file import FollowedFile
from pointsman_agent.topic_source.paused_collector import collector_paused

MAX_BYTES = 64 * 2**20
MAX_PROBLEMS = 100
"""Maximum number listed in one line; of the others only the count is given."""

SETTLE_SECONDS = 0.2
"""Time for which a changed file must stay the same: the first half of a file of tables is valid as well."""

TRIES = 5

log = logging.getLogger(__name__)


class TomlTopicSource:
    """The tables of a configuration. Their version is derived from their content.

    ``config`` is what the agent was started with and ``file`` its origin; without a file nothing changes. Environment
    and flags override a changed file as they did the first one.
    """

    def __init__(
        self,
        config: AgentConfig,
        *,
        file: Path | None = None,
        environment: Mapping[str, str] | None = None,
        flags: Mapping[str, object] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._config = config
        self._path = file
        self._environment = environment or {}
        self._flags = flags
        self._clock = clock or SystemClock()
        self._thread = SingleCallThread("topics-toml", busy=TopicSourceError)
        self._file = FollowedFile(file, max_bytes=MAX_BYTES, parse=_digest) if file is not None else None
        self._seen = b""
        """Digest of the content that was last processed."""
        self._rows = config.topics.topic
        self._held: TopicSet | None = None
        self._problem = ""
        self._waiting: list[tuple[str, object]] = []

    async def read(self) -> TopicSet:
        """See :meth:`TopicSource.read`. The first call returns the topics that the agent was started with."""
        if self._held is None:
            self._held = await self._thread.run(lambda: self._to_set(self._rows))
        elif self._path is not None and self._file is not None:
            await self._follow(self._path, self._file)
        if self._problem:
            raise TopicSourceError(self._problem)
        return self._held

    async def _follow(self, path: Path, file: FollowedFile[bytes]) -> None:
        digest = await self._thread.run(file.read)
        for _ in range(TRIES):
            if digest == self._seen:
                return
            await self._clock.sleep(SETTLE_SECONDS)
            before, digest = digest, await self._thread.run(file.read)
            if digest != before:
                continue
            outcome = await self._thread.run(lambda: self._load(path))
            # The configuration was read by name: check that it was this content.
            before, digest = digest, await self._thread.run(file.read)
            if digest == before:
                self._seen = digest
                await self._take(outcome)
                return
        raise TopicSourceError(f"{path}: changed during each of several reads")

    def _load(self, path: Path) -> AgentConfig | ConfigError:
        try:
            with collector_paused():
                return load(path, self._environment, self._flags)
        except ConfigError as error:
            return error

    async def _take(self, outcome: AgentConfig | ConfigError) -> None:
        if isinstance(outcome, ConfigError):
            self._problem = _joined(outcome.problems)
            return
        self._problem = ""
        self._log_waiting(list(_waiting_changes(self._config, outcome)))
        rows = outcome.topics.topic
        # With another source the file has no tables, which would mean no topics.
        if outcome.topics.source == self._config.topics.source:
            self._rows = rows
            self._held = await self._thread.run(lambda: self._to_set(rows))

    def _to_set(self, rows: tuple[TopicRow, ...]) -> TopicSet:
        with collector_paused():
            return TopicSet.from_content(map(_to_topic, rows), state_version=self._config.broker.state_version)

    def _log_waiting(self, changes: list[tuple[str, object]]) -> None:
        if changes != self._waiting:
            self._waiting = changes
            if changes:
                # Names only: a value may be a password.
                facts = {"settings": [name for name, _ in changes]}
                log.warning("the configuration changed: restart to apply", extra={"facts": facts})


def _to_topic(row: TopicRow) -> TopicConfig:
    return TopicConfig(
        topic=row.name,
        read_queue_nums=row.read_queues,
        write_queue_nums=row.write_queues,
        perm=PERMS[row.perm],
        topic_sys_flag=row.topic_sys_flag,
        queue_weight=row.queue_weight,
    )


def _waiting_changes(old: AgentConfig, new: AgentConfig) -> Iterator[tuple[str, object]]:
    """Return every changed setting that needs a restart, with its new value."""
    return (change for change in changed_settings(old, new) if change[0] != "topics.topic")


def _joined(problems: tuple[str, ...]) -> str:
    more = [f"and {len(problems) - MAX_PROBLEMS} more errors"] if len(problems) > MAX_PROBLEMS else []
    return "; ".join([*problems[:MAX_PROBLEMS], *more])


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()
