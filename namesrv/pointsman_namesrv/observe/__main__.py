"""The command ``pointsman-observe``."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Callable, Sequence

import click

from pointsman.clock import SystemClock
from pointsman.daemon.http_server import CannotListen
from pointsman.daemon.process import daemon_process, logs
from pointsman.daemon.process.daemon_command import CONTEXT, LOOP, run, version_option
from pointsman.daemon.tls.tls_settings import TlsConfig
from pointsman.names import addr_problem
from pointsman.rocketmq.bodies import BadBodyError, read_json
from pointsman.rocketmq.codes import RequestCode
from pointsman.setting import unusable_listen
from pointsman_namesrv import __version__
from pointsman_namesrv.config import HistoryConfig
from pointsman_namesrv.node_metrics import Metrics
from pointsman_namesrv.observe.connection import NoResponse, Refused, body_of, connected
from pointsman_namesrv.observe.listings import Listings
from pointsman_namesrv.observe.observer import Observer, ObserverSettings
from pointsman_namesrv.observe.observer_metrics import ObserverMetrics
from pointsman_namesrv.observe.serving import Serving, ServingSettings

log = logging.getLogger(__name__)

MAX_NAME_SERVERS = 16
NOT_SERVED = ServingSettings()


def number(low: float, high: float) -> Callable[[str], float]:
    """Return a parser for a number in a range; "nan" is rejected."""

    def read(text: str) -> float:
        try:
            if low <= float(text) <= high:
                return float(text)
        except ValueError:
            pass
        raise click.BadParameter(f"must be a number from {low:g} to {high:g}, got {text!r}")

    return read


def read_addrs(_ctx: click.Context, _param: click.Parameter, addrs: tuple[str, ...]) -> tuple[str, ...]:
    """Check the addresses; duplicates count once."""
    for addr in addrs:
        if problem := addr_problem(addr):
            raise click.BadParameter(f"name server address {problem}, got {addr!r}")
    distinct = tuple(dict.fromkeys(addrs))
    if len(distinct) > MAX_NAME_SERVERS:
        raise click.BadParameter(f"given {len(distinct)} times, at most {MAX_NAME_SERVERS} are allowed")
    return distinct


def read_listen(_ctx: click.Context, _param: click.Parameter, listen: str | None) -> str:
    """Check an address to listen on; None: it is not given."""
    problem = next(unusable_listen("listen", listen), None) if listen else None
    if problem:
        raise click.BadParameter(problem.partition(": ")[2] or problem)
    return listen or ""


@click.command(
    "pointsman-observe",
    context_settings=CONTEXT,
    epilog="""\
\b
Signals:     SIGTERM and SIGINT complete the history and stop; a second one stops
             immediately
Exit codes:  0 stopped, 1 failed (folder not writable, or --print without a response),
             2 usage, 130 forced by a second signal
""",
)
@click.option(
    "--namesrv",
    multiple=True,
    required=True,
    callback=read_addrs,
    metavar="HOST:PORT",
    help=f"RocketMQ name server; repeat for each one, at most {MAX_NAME_SERVERS}.",
)
@click.option("--history", metavar="DIR", help="Folder of the history; may be shared with other observers.")
@click.option("--print", "prints", is_flag=True, help="Print what the name servers list, and exit.")
@click.option(
    "--poll-seconds",
    type=number(0.2, 60.0),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="Seconds between two polls, 0.2 to 60; a response has about 150 bytes per broker.",
)
@click.option(
    "--topics-seconds",
    type=number(0.0, 86_400.0),
    default=600.0,
    show_default=True,
    metavar="SECONDS",
    help="Seconds between two walks over all topics, at most 20 requests per poll; 0: no topics.",
)
@click.option(
    "--retain-days",
    type=click.IntRange(0, 36_500),
    default=HistoryConfig().retain_days,
    show_default=True,
    metavar="DAYS",
    help="Days for which history is retained; 0: no limit. At most 20 GiB are retained in any case.",
)
@click.option(
    "--listen",
    callback=read_listen,
    metavar="HOST:PORT",
    help="Serve pointsmanctl --namesrv observe://HOST:PORT here, by gRPC; port 0 picks a free one.  [default: off]",
)
@click.option(
    "--monitoring",
    callback=read_listen,
    metavar="HOST:PORT",
    help="Serve pages, /v1, /metrics and /healthz here, e.g. 127.0.0.1:9878; port 0: a free one.  [default: off]",
)
@click.option(
    "--plaintext-beyond-loopback",
    is_flag=True,
    help="Serve other machines without TLS, and pages without a login: in a network that you trust.",
)
@click.option("--log-level", type=click.Choice(logs.LEVELS), default="INFO", show_default=True)
@click.option(
    "--log-format",
    type=click.Choice(logs.FORMATS),
    default="auto",
    show_default=True,
    help="auto: text on a terminal, else JSON.",
)
@click.option("--loop", type=LOOP, default="uvloop", show_default=True, help="Event loop.")
@version_option("pointsman-observe", __version__)
def command(
    *,
    namesrv: tuple[str, ...],
    history: str | None,
    prints: bool,
    poll_seconds: float,
    topics_seconds: float,
    retain_days: int,
    listen: str,
    monitoring: str,
    plaintext_beyond_loopback: bool,
    log_level: str,
    log_format: str,
    loop: str,
) -> int:
    """Poll RocketMQ's own name servers, and record which brokers come and go.

    The result is a history for pointsman-report. Nothing is installed on brokers, and nothing is changed: the requests
    are 106, 206 and 105, as mqadmin sends them.

    A broker is down while no reachable name server lists it, so give all name servers. A name server that is
    unreachable, or was just restarted and waits for its brokers, does not count. Polling cannot see heartbeats, the
    reason of a departure, a restart between two polls or a planned shutdown; the report states that.

    \b
    Examples:
      pointsman-observe --namesrv rocketmq-1:9876 --namesrv rocketmq-2:9876 --history /var/lib/pointsman/history
      pointsman-observe --namesrv rocketmq-1:9876 --print      the fleet as it is listed now, as JSON
      pointsman-report nightly --history /var/lib/pointsman/history --warehouse /srv/warehouse    each night
    """
    if (history is None) is not prints:
        raise click.UsageError("give either --history DIR or --print")
    if history is None:
        return asyncio.run(_print(namesrv))
    tls = TlsConfig(plaintext_beyond_loopback=plaintext_beyond_loopback)
    if next(tls.unprotected("listen", listen), None):
        raise click.UsageError(
            f"--listen {listen} can be reached from other machines without TLS: listen on 127.0.0.1, or give "
            "--plaintext-beyond-loopback for a network that you trust"
        )
    logs.configure(log_level, log_format)
    config = HistoryConfig(directory=history, retain_days=retain_days)
    settings = ObserverSettings(poll_seconds=poll_seconds, topics_seconds=topics_seconds)
    return daemon_process.run(
        lambda stop: observe(namesrv, config, settings, stop, serving=ServingSettings(listen, monitoring, tls=tls)),
        loop=loop,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    return run(command, arguments)


async def observe(
    addrs: Sequence[str],
    history: HistoryConfig,
    settings: ObserverSettings,
    stop: asyncio.Event,
    *,
    serving: ServingSettings = NOT_SERVED,
) -> int:
    """Poll until ``stop`` is set; return the exit code."""
    clock, metrics, listings = SystemClock(), Metrics(), Listings(addrs)
    observed = ObserverMetrics(listings, metrics, clock=clock)
    served = Serving(
        listings,
        serving,
        collects_topics=settings.topics_seconds > 0,
        history=history,
        version=__version__,
        clock=clock,
        metrics=metrics,
        observed=observed,
    )
    observers = [
        Observer(
            node.server.addr,
            history=history,
            settings=settings,
            version=__version__,
            clock=clock,
            metrics=metrics,
            listings=listings,
            observed=observed,
            server=node.server,
            boot=node.boot,
        )
        for node in map(served.add, addrs)
    ]
    try:
        for observer in observers:
            observer.check_folder()
        async with served.running():
            await _run(observers, stop)
    except CannotListen as refused:
        log.error("%s", refused)  # noqa: TRY400  # the sentence says it all
        return daemon_process.EXIT_FAILED
    except (OSError, ExceptionGroup) as errors:  # the edge of the process: an error is one log line and exit 1
        error = _first(errors)
        if isinstance(error, OSError):
            log.error("cannot write the history: %s", _sentence(error))  # noqa: TRY400  # the sentence says it all
        else:
            log.exception("observer failed", exc_info=errors)
        return daemon_process.EXIT_FAILED
    return daemon_process.EXIT_OK


async def _run(observers: list[Observer], stop: asyncio.Event) -> None:
    try:
        async with asyncio.TaskGroup() as tasks:
            polling = [tasks.create_task(observer.run()) for observer in observers]
            await stop.wait()
            for task in polling:
                task.cancel()
    finally:
        await asyncio.gather(*(observer.close() for observer in observers))


async def _print(addrs: Sequence[str]) -> int:
    failed = False
    for addr in addrs:
        try:
            async with connected(addr) as connection:
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


if __name__ == "__main__":
    sys.exit(main())
