"""SIGHUP: read the configuration again and apply what may change while the process runs."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from pointsman.config import ConfigError, changed_settings
from pointsman.daemon.process import logs
from pointsman_namesrv.config import LogConfig


class _WithLog(Protocol):
    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def log(self) -> LogConfig: ...


ConfigT = TypeVar("ConfigT", bound=_WithLog)

log = logging.getLogger(__name__)


class Reloader(Generic[ConfigT]):
    """Reads the configuration from the same file, environment and flags as at the start."""

    def __init__(
        self,
        config: ConfigT,
        load: Callable[[], ConfigT],
        *,
        sections: tuple[str, ...] = ("log",),
        apply: Callable[[ConfigT], None] = lambda _: None,
    ) -> None:
        """``config``: the current configuration. ``load`` raises ConfigError.

        ``sections``: those that a reload applies, with ``apply``; the others belong to objects created at the start.
        """
        self.running = config
        """The current configuration, reloads included."""
        self._load = load
        self._sections = sections
        self._apply = apply

    def reload(self) -> None:
        """Apply changes, or log every problem and change nothing. Reads small files; runs in the event loop."""
        try:
            fresh = self._load()
        except ConfigError as error:
            facts: dict[str, object] = {"problems": list(error.problems)}
            log.error("configuration has errors; nothing is reloaded", extra={"facts": facts})  # noqa: TRY400
            return
        changed = {path for path, _ in changed_settings(self.running, fresh)}
        logs.apply(fresh.log.level, fresh.log.format)
        self.running = replace(self.running, **{name: getattr(fresh, name) for name in self._sections})
        self._apply(self.running)
        later = sorted(path for path in changed if path.partition(".")[0] not in self._sections)
        facts = {"log_level": fresh.log.level}
        if later:
            # Names only, as in the agent: a value may be a secret.
            log.warning(
                "configuration reloaded; other changes need a restart", extra={"facts": facts | {"settings": later}}
            )
        else:
            log.info("configuration reloaded", extra={"facts": facts})
