"""Topics in the agent's own configuration file, which is replaced as a whole: no reader sees half of a change."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path

from pointsman.clock import Clock
from pointsman.config import ConfigError
from pointsman.deadline import within
from pointsman.single_call_thread import SingleCallThread
from pointsman_agent.config import PERMS, AgentConfig, TopicRow, load
from pointsman_agent.core.topic_set import TopicConfig
from pointsman_agent.topic_changes.toml_tables import CannotEditError, with_row, without_row
from pointsman_agent.topic_changes.topic_writer import TopicUnwritableError, TopicWriteFailedError
from pointsman_agent.topic_source import TopicSourceError
from pointsman_agent.topic_source.followed_file import read_whole
from pointsman_agent.topic_source.toml import MAX_BYTES

WRITE_SECONDS = 120.0
"""As the reads of a large file: each change reads it three times."""

_PERM_NAMES = {bits: name for name, bits in PERMS.items()}


class TomlTopicWriter:
    """``config`` is what the agent was started with, from ``file``, ``environment`` and ``flags``."""

    source = "toml"

    def __init__(
        self,
        config: AgentConfig,
        *,
        file: Path | None,
        environment: Mapping[str, str],
        flags: Mapping[str, object] | None,
        clock: Clock,
    ) -> None:
        self._is_allowed = config.topics.writable
        self._path = file
        self._environment = environment
        self._flags = flags
        self._clock = clock
        self._thread = SingleCallThread("topics-write", busy=TopicWriteFailedError)

    def unwritable(self) -> str:
        """See :meth:`TopicWriter.unwritable`."""
        if not self._is_allowed:
            return "topics.writable is not set at its agent"
        if self._path is None:
            return "its agent has no configuration file"
        if self._path.is_symlink():
            return f"{self._path} is a link, as in a ConfigMap: change its origin"
        if not os.access(self._path.parent, os.W_OK):
            return f"its agent may not replace {self._path}: the folder is not writable for it"
        return ""

    async def write(self, topic: TopicConfig) -> None:
        """See :meth:`TopicWriter.write`."""
        row: dict[str, int | str] = {"read_queues": topic.read_queue_nums, "write_queues": topic.write_queue_nums}
        perm = _PERM_NAMES[topic.perm]

        def edit(text: str, rows: Mapping[str, TopicRow]) -> str:
            held = rows.get(topic.topic)
            # "rw" is the default: the file says it only where it says another one now.
            changed = row if perm == (held.perm if held is not None else "rw") else {**row, "perm": perm}
            return with_row(text, topic.topic, changed)

        def is_done(rows: Mapping[str, TopicRow]) -> bool:
            held = rows.get(topic.topic)
            return held is not None and (held.read_queues, held.write_queues, held.perm) == (
                topic.read_queue_nums,
                topic.write_queue_nums,
                perm,
            )

        await self._replace(edit, is_done)

    async def remove(self, topic: str) -> None:
        """See :meth:`TopicWriter.remove`."""
        await self._replace(lambda text, _: without_row(text, topic), lambda rows: topic not in rows)

    async def _replace(
        self, edit: Callable[[str, Mapping[str, TopicRow]], str], is_done: Callable[[Mapping[str, TopicRow]], bool]
    ) -> None:
        if why := self.unwritable():
            raise TopicUnwritableError(why)
        path = self._path
        assert path is not None  # noqa: S101  # unwritable() says so
        try:
            await within(self._clock, WRITE_SECONDS, self._thread.run(lambda: self._edit(path, edit, is_done)))
        except TimeoutError:
            raise TopicWriteFailedError(f"{path}: not written within {WRITE_SECONDS:g} s") from None
        except CannotEditError as error:
            raise TopicUnwritableError(f"{path} cannot be changed: {error}") from error
        except (TopicSourceError, UnicodeDecodeError) as error:
            raise TopicWriteFailedError(f"{path}: {error}") from error
        except ConfigError as error:
            raise TopicWriteFailedError("; ".join(error.problems[:5])) from error
        except OSError as error:
            # EBUSY: a file that is mounted by itself.
            raise TopicUnwritableError(f"{path} cannot be replaced: {error.strerror or error}") from error

    def _edit(
        self,
        path: Path,
        edit: Callable[[str, Mapping[str, TopicRow]], str],
        is_done: Callable[[Mapping[str, TopicRow]], bool],
    ) -> None:
        before = read_whole(path, max_bytes=MAX_BYTES)
        rows = _rows(load(path, self._environment, self._flags))
        if is_done(rows):
            return
        changed = edit(before.content.decode(), rows)
        facts = path.stat()
        unfinished = path.with_name(f".{path.name}.new")
        try:
            handle = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with os.fdopen(handle, "wb") as stream:
                stream.write(changed.encode())
                stream.flush()
                with contextlib.suppress(PermissionError):
                    os.fchown(stream.fileno(), facts.st_uid, facts.st_gid)
                os.fchmod(stream.fileno(), stat.S_IMODE(facts.st_mode))
                os.fsync(stream.fileno())
            if not is_done(_rows(load(unfinished, self._environment, self._flags))):
                raise CannotEditError("the environment or the command line sets the topics")
            if read_whole(path, max_bytes=MAX_BYTES).digest != before.digest:
                raise TopicSourceError("it was changed at the same time")
            unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _rows(config: AgentConfig) -> dict[str, TopicRow]:
    return {row.name: row for row in config.topics.topic}
