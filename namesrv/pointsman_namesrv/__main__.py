"""The command ``pointsman-namesrv``."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Callable, Sequence

import click

from pointsman.clock import SystemClock
from pointsman.config import ConfigError, to_toml
from pointsman.daemon.access.access_settings import check_files
from pointsman.daemon.process import daemon_process, logs
from pointsman.daemon.process.daemon_command import LOOP, Daemon, Given
from pointsman.daemon.process.sd_notify import ServiceManager
from pointsman.daemon.tls.tls import check_certificates
from pointsman_namesrv import __version__
from pointsman_namesrv.config import NameServerConfig, load
from pointsman_namesrv.reload import Reloader

HELP = """\
The name server of a fleet of message brokers.

Brokers register and send heartbeats, clients query which broker has which queues of a topic, and every registration
is recorded in a history.

\b
Examples:
  pointsman-namesrv                          serve on 127.0.0.1:9876, metrics on :9877, history in ./history
  pointsman-namesrv --config namesrv.toml    with settings from a file
  pointsman-namesrv config print             every setting with its value, as a file to start from
  pointsman-namesrv config check --config namesrv.toml
  pointsman-namesrv certs check --config namesrv.toml
"""

EPILOG = """\
\b
Settings:    defaults < file < environment (NAMESRV_SERVER__LISTEN=127.0.0.1:9976) < options
Signals:     SIGTERM and SIGINT drain and stop; a second one stops immediately. SIGHUP reads the
             configuration again and applies [log]; other settings need a restart (logged).
Exit codes:  0 stopped, 1 failed, 2 bad configuration or usage, 130 forced by a second signal
"""

log = logging.getLogger(__name__)


def prepare(config: NameServerConfig, given: Given) -> Callable[[], int]:
    """Return what serves until a signal. Raises ConfigError."""
    check_certificates(config.tls, clock=SystemClock())
    for warning in check_files(config.access, where="pointsman-namesrv"):
        click.echo(warning, err=True)

    def start() -> int:
        logs.configure(config.log.level, config.log.format)
        reloader = Reloader(config, lambda: load(given.file, os.environ, given.flags))
        return daemon_process.run(
            lambda stop: serve(config, stop, running=lambda: reloader.running),
            loop=config.server.loop,
            on_hangup=reloader.reload,
            files=config.most_connections,
        )

    return start


async def serve(config: NameServerConfig, stop: asyncio.Event, *, running: Callable[[], NameServerConfig]) -> int:
    """Serve until ``stop`` is set; return the exit code. ``running`` returns the configuration with its reloads."""
    # gRPC and its users: --help does not need them.
    from pointsman.daemon.http_server import CannotListen  # noqa: PLC0415
    from pointsman_namesrv.app import NameServerApp  # noqa: PLC0415

    manager = ServiceManager(os.environ, clock=SystemClock())
    try:
        app = NameServerApp(config, version=__version__, manager=manager, running=running)
        await app.run(stop)
    except ConfigError as error:  # certificates or tokens changed since they were checked
        log.error("cannot start: %s", error)  # noqa: TRY400  # the sentence says it all
        return daemon_process.EXIT_BAD_CONFIGURATION
    except (CannotListen, OSError) as error:
        log.error("cannot start: %s", _sentence(error))  # noqa: TRY400  # the sentence says it all
        return daemon_process.EXIT_FAILED
    except (Exception, BaseExceptionGroup) as error:  # the edge of the process: an error is one log line and exit 1
        log.exception("name server failed", exc_info=error)
        return daemon_process.EXIT_FAILED
    return daemon_process.EXIT_OK


def _sentence(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return str(error)


DAEMON = Daemon(
    "pointsman-namesrv",
    version=__version__,
    help=HELP,
    epilog=EPILOG,
    options=(
        click.Option(
            ["--listen", "server__listen"], metavar="HOST:PORT", help="gRPC address.  [default: 127.0.0.1:9876]"
        ),
        click.Option(["--loop", "server__loop"], type=LOOP, help="Event loop.  [default: uvloop]"),
    ),
    load=load,
    to_toml=to_toml,
    prepare=prepare,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    return DAEMON.main(arguments)


if __name__ == "__main__":
    sys.exit(main())
