"""The command ``pointsman-namesrv``."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from pointsman.service import logs, process
from pointsman.service.clock import SystemClock
from pointsman.service.config import ConfigError, to_toml
from pointsman.service.monitoring import CannotListen
from pointsman.service.sd_notify import ServiceManager
from pointsman_namesrv import __version__
from pointsman_namesrv.app import NameServerApp
from pointsman_namesrv.config import NameServerConfig, load
from pointsman_namesrv.reload import Reloader

DESCRIPTION = """\
The name server of a fleet of message brokers: brokers register and heartbeat here, clients ask here which broker
holds which queues of a topic, and every registration is remembered.
"""

EPILOG = """\
examples:
  pointsman-namesrv                                 serve on 127.0.0.1:9876, metrics on :9877, history in ./history
  pointsman-namesrv --config namesrv.toml           with settings from a file
  pointsman-namesrv config print                    every setting with its effective value, as a file to start from
  pointsman-namesrv config check --config FILE      list every fault of a file; exit 2 if there is one

environment: NAMESRV_SECTION__KEY overrides the file, as NAMESRV_SERVER__LISTEN=0.0.0.0:9876
signals:     SIGTERM and SIGINT drain and stop; a second one stops at once; SIGHUP reads the configuration again and
             applies log.level; other changed settings are logged and need a restart
exit codes:  0 stopped, 1 failed, 2 bad configuration or usage, 130 forced by a second signal
"""

log = logging.getLogger(__name__)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    options = argparse.ArgumentParser(add_help=False)
    options.add_argument("--config", type=Path, metavar="FILE", help="TOML file (default: none, only defaults)")
    root = argparse.ArgumentParser(
        "pointsman-namesrv",
        description=DESCRIPTION,
        epilog=EPILOG,
        parents=[options],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    root.add_argument("--loop", choices=process.LOOPS, help="event loop (default: uvloop)")
    root.add_argument("--listen", metavar="HOST:PORT", help="gRPC address (default: 127.0.0.1:9876)")
    root.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = root.add_subparsers(dest="command", metavar="COMMAND")
    config = commands.add_parser("config", help="check or print the configuration").add_subparsers(
        dest="config_command", required=True, metavar="COMMAND"
    )
    # SUPPRESS: a --config given before the subcommand is not forgotten.
    later = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS)
    later.add_argument("--config", type=Path, metavar="FILE", help="TOML file")
    config.add_parser("check", parents=[later], help="list every fault; exit 2 if there is one")
    config.add_parser("print", parents=[later], help="print every setting with its effective value")
    return root


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    given = parser().parse_args(arguments)
    flags = {"server.loop": given.loop, "server.listen": given.listen}
    try:
        config = load(given.config, os.environ, flags)
    except ConfigError as error:
        print("\n".join(error.problems), file=sys.stderr)
        return process.EXIT_BAD_CONFIGURATION
    if given.command == "config":
        print(to_toml(config) if given.config_command == "print" else "the configuration is good", end="\n")
        return process.EXIT_OK
    logs.configure(config.log.level)
    reloader = Reloader(config, lambda: load(given.config, os.environ, flags))
    return process.run(
        lambda stop: serve(config, stop, running=lambda: reloader.running),
        loop=config.server.loop,
        on_hangup=reloader.reload,
    )


async def serve(config: NameServerConfig, stop: asyncio.Event, *, running: Callable[[], NameServerConfig]) -> int:
    """Serve until told to stop; return the exit code. ``running`` returns the configuration with its reloads."""
    manager = ServiceManager(os.environ, clock=SystemClock())
    app = NameServerApp(config, version=__version__, manager=manager, running=running)
    try:
        await app.run(stop)
    except (CannotListen, OSError) as error:
        log.error("cannot start: %s", _sentence(error))  # noqa: TRY400  # the sentence says it all
        return process.EXIT_FAILED
    except (Exception, BaseExceptionGroup) as error:  # the edge of the process: an error is one log line and exit 1
        log.exception("failed", exc_info=error)
        return process.EXIT_FAILED
    return process.EXIT_OK


def _sentence(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return str(error)


if __name__ == "__main__":
    sys.exit(main())
