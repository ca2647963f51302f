"""SIGHUP: read the configuration again and apply what may change while the server runs."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from pointsman.config import ConfigError, changed_settings
from pointsman.daemon.process import logs
from pointsman_namesrv.config import NameServerConfig

APPLIED = frozenset({"log.format", "log.level"})
"""Settings that a reload applies; the others belong to objects created at the start."""

log = logging.getLogger(__name__)


class Reloader:
    """Reads the configuration from the same file, environment and flags as at the start."""

    def __init__(self, config: NameServerConfig, load: Callable[[], NameServerConfig]) -> None:
        """``config``: the current configuration. ``load`` raises ConfigError."""
        self.running = config
        """The current configuration, reloads included."""
        self._load = load

    def reload(self) -> None:
        """Apply changes, or log every problem and change nothing. Reads one small file; runs in the event loop."""
        try:
            fresh = self._load()
        except ConfigError as error:
            facts: dict[str, object] = {"problems": list(error.problems)}
            log.error("configuration has errors; nothing is reloaded", extra={"facts": facts})  # noqa: TRY400
            return
        changed = {path for path, _ in changed_settings(self.running, fresh)}
        logs.apply(fresh.log.level, fresh.log.format)
        self.running = replace(self.running, log=fresh.log)
        later = sorted(changed - APPLIED)
        facts = {"log_level": fresh.log.level}
        if later:
            # Names only, as in the agent: a value may be a secret.
            log.warning(
                "configuration reloaded; other changes need a restart", extra={"facts": facts | {"settings": later}}
            )
        else:
            log.info("configuration reloaded", extra={"facts": facts})
