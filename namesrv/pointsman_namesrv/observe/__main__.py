"""The command ``pointsman-observe``."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from collections.abc import Callable, Sequence

import click

from pointsman.clock import SystemClock
from pointsman.config import ConfigError, to_toml
from pointsman.daemon.access.access_settings import check_files
from pointsman.daemon.http_server import CannotListen
from pointsman.daemon.process import daemon_process, logs
from pointsman.daemon.process.daemon_command import LOOP, Daemon, Given, run
from pointsman.daemon.process.sd_notify import ServiceManager
from pointsman.daemon.tls.tls import check_certificates
from pointsman.rocketmq.bodies import BadBodyError, read_json
from pointsman.rocketmq.codes import RequestCode
from pointsman_namesrv import __version__
from pointsman_namesrv.node_metrics import Metrics
from pointsman_namesrv.observe.connection import NoResponse, Refused, body_of, connected
from pointsman_namesrv.observe.observed_servers import ObservedServers, read_access
from pointsman_namesrv.observe.observer_config import (
    MAX_NAME_SERVERS,
    ObservedConfig,
    ObserverConfig,
    RecordedConfig,
    load,
)
from pointsman_namesrv.observe.serving import Serving
from pointsman_namesrv.reload import Reloader

HELP = """\
Poll RocketMQ's own name servers, and record which brokers come and go.

The result is a history for pointsman-report. Nothing is installed on brokers, and nothing is changed: the requests
are 106, 206 and 105, as mqadmin sends them.

A broker is down while no reachable name server lists it, so give all name servers. A name server that is
unreachable, or was just restarted and waits for its brokers, does not count. Polling cannot see heartbeats, the
reason of a departure, a restart between two polls or a planned shutdown; the report states that.

\b
Examples:
  pointsman-observe --namesrv rocketmq-1:9876 --namesrv rocketmq-2:9876 --history /var/lib/pointsman/history
  pointsman-observe --namesrv rocketmq-1:9876 --print      the fleet as it is listed now, as JSON
  pointsman-observe --config observe.toml                  with TLS, an account, limits
  pointsman-report nightly --history /var/lib/pointsman/history --warehouse /srv/warehouse    each night
"""

EPILOG = """\
\b
Settings:    defaults < file < environment (OBSERVE_SECTION__KEY) < options
Signals:     SIGTERM and SIGINT complete the history and stop; a second one stops
             immediately. SIGHUP applies [observed] and [log] of the file again
Exit codes:  0 stopped, 1 failed (folder not writable, or --print without a response),
             2 bad configuration or usage, 130 forced by a second signal
"""

log = logging.getLogger(__name__)


def _distinct(_ctx: click.Context, _param: click.Parameter, addrs: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return the addresses, duplicates once; None: the option is not given."""
    return tuple(dict.fromkeys(addrs)) or None


OPTIONS = (
    click.Option(
        ["--namesrv", "observed__name_servers"],
        multiple=True,
        callback=_distinct,
        metavar="HOST:PORT",
        help=f"RocketMQ name server; one option each, at most {MAX_NAME_SERVERS}.",
    ),
    click.Option(
        ["--history", "history__directory"],
        metavar="DIR",
        help="Folder of the history; observers may share it.",
    ),
    click.Option(["--print", "prints"], is_flag=True, help="Print what the name servers list, and exit."),
    click.Option(
        ["--poll-seconds", "observed__poll_seconds"],
        type=float,
        metavar="SECONDS",
        help="Seconds between two polls.  [default: 1]",
    ),
    click.Option(
        ["--topics-seconds", "observed__topics_seconds"],
        type=float,
        metavar="SECONDS",
        help="Seconds between two walks over all topics; 0: no topics.  [default: 600]",
    ),
    click.Option(
        ["--retain-days", "history__retain_days"],
        type=int,
        metavar="DAYS",
        help="Days for which history is retained; 0: no limit.  [default: 400]",
    ),
    click.Option(
        ["--monitoring", "monitoring__listen"],
        metavar="HOST:PORT",
        help="Serve pages, /v1, /metrics and /healthz here, e.g. 127.0.0.1:9878.  [default: off]",
    ),
    click.Option(
        ["--listen", "server__listen"],
        metavar="HOST:PORT",
        help="Serve pointsmanctl --namesrv observe://HOST:PORT here, by gRPC.  [default: off]",
    ),
    click.Option(
        ["--plaintext-beyond-loopback", "tls__plaintext_beyond_loopback"],
        is_flag=True,
        default=None,
        help="Serve other machines without TLS, and pages without a login: in a network that you trust.",
    ),
    click.Option(["--log-level", "log__level"], type=click.Choice(logs.LEVELS), help="[default: INFO]"),
    click.Option(["--log-format", "log__format"], type=click.Choice(logs.FORMATS), help="[default: auto]"),
    click.Option(["--loop", "process__loop"], type=LOOP, help="Event loop.  [default: uvloop]"),
)


def prepare(config: ObserverConfig, given: Given) -> Callable[[], int]:
    """Return what observes until a signal, or prints. Raises ConfigError."""
    check_certificates(config.tls, clock=SystemClock())
    for warning in check_files(config.access, where="pointsman-observe"):
        click.echo(warning, err=True)
    is_print = given.others["prints"]
    directory = given.flags["history.directory"]

    def start() -> int:
        is_recorded = given.file is not None or config.history.directory != RecordedConfig().directory or directory
        if (is_print and directory) or not (is_print or is_recorded):
            raise click.UsageError("give either --history DIR or --print")
        _check_some(config)
        if is_print:
            return asyncio.run(_print(config.observed))
        logs.configure(config.log.level, config.log.format)
        return _observe_until_signal(config, given)

    return start


def _check_some(config: ObserverConfig) -> ObserverConfig:
    """Return the configuration. Raises ConfigError without a name server."""
    if not config.observed.name_servers:
        raise ConfigError(["observed.name_servers: is empty; name the RocketMQ name servers there or with --namesrv"])
    return config


def _observe_until_signal(config: ObserverConfig, given: Given) -> int:
    metrics = Metrics()
    servers = ObservedServers(
        config.observed, config.history.as_history, version=__version__, clock=SystemClock(), metrics=metrics
    )
    reloader = Reloader(
        config,
        lambda: _check_some(load(given.file, os.environ, given.flags)),
        sections=("observed", "log"),
        apply=lambda fresh: servers.apply(fresh.observed),
    )
    return daemon_process.run(
        lambda stop: observe(servers, config, stop, metrics=metrics),
        loop=config.process.loop,
        on_hangup=reloader.reload,
    )


async def observe(servers: ObservedServers, config: ObserverConfig, stop: asyncio.Event, *, metrics: Metrics) -> int:
    """Poll and serve until ``stop`` is set; return the exit code. ``metrics`` count the rows of the history."""
    clock = SystemClock()
    try:
        servers.check_folder()
        serving = Serving(servers, config, version=__version__, clock=clock, metrics=metrics)
        async with serving.running():
            await _run(servers, ServiceManager(os.environ, clock=clock), stop)
    except ConfigError as error:  # certificates or tokens changed since they were checked
        log.error("cannot start: %s", error)  # noqa: TRY400  # the sentence says it all
        return daemon_process.EXIT_BAD_CONFIGURATION
    except CannotListen as refused:
        log.error("%s", refused)  # noqa: TRY400  # the sentence says it all
        return daemon_process.EXIT_FAILED
    except (OSError, ExceptionGroup) as errors:  # the edge of the process: an error is one log line and exit 1
        first = _first(errors)
        if isinstance(first, OSError):
            log.error("cannot write the history: %s", _sentence(first))  # noqa: TRY400  # the sentence says it all
        else:
            log.exception("observer failed", exc_info=errors)
        return daemon_process.EXIT_FAILED
    return daemon_process.EXIT_OK


async def _run(servers: ObservedServers, manager: ServiceManager, stop: asyncio.Event) -> None:
    feeding = asyncio.create_task(manager.feed_watchdog())
    manager.ready()
    try:
        await servers.run(stop)
    finally:
        manager.stopping()
        feeding.cancel()


async def _print(settings: ObservedConfig) -> int:
    failed = False
    access = read_access(settings)
    for addr in settings.name_servers:
        try:
            async with connected(addr, access) as connection:
                body = body_of(await connection.ask(RequestCode.GET_BROKER_CLUSTER_INFO))
            print(json.dumps(read_json(body), indent=1, sort_keys=True))
        except (NoResponse, Refused, BadBodyError, ValueError) as error:
            failed = True
            print(f"pointsman-observe: {addr}: {error}", file=sys.stderr)
    return daemon_process.EXIT_FAILED if failed else daemon_process.EXIT_OK


def _first(error: Exception) -> Exception:
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


def _sentence(error: OSError) -> str:
    return f"{error.filename}: {error.strerror}" if error.filename is not None else str(error)


DAEMON = Daemon(
    "pointsman-observe",
    version=__version__,
    help=HELP,
    epilog=EPILOG,
    options=OPTIONS,
    load=load,
    to_toml=to_toml,
    prepare=prepare,
)
command = DAEMON.command()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    return run(command, arguments)


if __name__ == "__main__":
    sys.exit(main())
