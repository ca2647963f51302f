"""The command ``pointsman-observe``."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import sys
from collections.abc import Sequence

from pointsman.remoting.bodies import read_json
from pointsman.remoting.codes import RequestCode
from pointsman.service import logs, process
from pointsman.service.clock import SystemClock
from pointsman.wire.names import addr_problem
from pointsman_namesrv import __version__
from pointsman_namesrv.config import HistoryConfig
from pointsman_namesrv.metrics import Metrics
from pointsman_namesrv.observe.connection import NoAnswer, Refused, body_of, connected
from pointsman_namesrv.observe.fleet_view import BadAnswer
from pointsman_namesrv.observe.observer import Observer, ObserverSettings

DESCRIPTION = """\
Polls RocketMQ's own name servers, and writes which brokers come and go as a history that pointsman-report reads.
Nothing is installed on brokers, and nothing is changed: it sends the requests 106, 206 and 105, as mqadmin does.
"""

EPILOG = """\
examples:
  pointsman-observe --namesrv rocketmq-1:9876 --namesrv rocketmq-2:9876 --history /var/lib/pointsman/history
  pointsman-observe --namesrv rocketmq-1:9876 --print      the fleet as the name server lists it now, as JSON
  pointsman-report nightly --history /var/lib/pointsman/history --warehouse /srv/warehouse       each night

A broker is down while no name server that can be polled lists it, so give all of them. While a name
server cannot be polled, or has just restarted and waits for its brokers, it does not count.

It cannot see heartbeats, why a broker left, a restart between two polls, or a planned shutdown; the report says so.

signals:     SIGTERM and SIGINT write the end and stop; a second one stops immediately
exit codes:  0 stopped, 1 failed (a folder, or --print without an answer), 2 usage, 130 forced by a second signal
"""

log = logging.getLogger(__name__)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    root = argparse.ArgumentParser(
        "pointsman-observe",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    root.add_argument(
        "--namesrv",
        action="append",
        required=True,
        type=_addr,
        metavar="HOST:PORT",
        help="a RocketMQ name server; once for each, at most 16",
    )
    what = root.add_mutually_exclusive_group(required=True)
    what.add_argument("--history", metavar="DIR", help="folder of the history; may be shared with other observers")
    what.add_argument("--print", action="store_true", help="print what the name servers list, and end")
    root.add_argument(
        "--poll-seconds",
        type=_number(0.2, 60.0),
        default=1.0,
        metavar="SECONDS",
        help="between two polls (default: 1, from 0.2 to 60); an answer has about 150 bytes for each broker",
    )
    root.add_argument(
        "--topics-seconds",
        type=_number(0.0, 86_400.0),
        default=600.0,
        metavar="SECONDS",
        help="between two walks over all topics, at most 20 requests per poll (default: 600); 0: no topics",
    )
    root.add_argument(
        "--retain-days",
        type=_days,
        default=HistoryConfig().retain_days,
        metavar="DAYS",
        help="days of history that are kept (default: 400); 0: all. At most 20 GiB are kept in any case",
    )
    root.add_argument("--log-level", choices=logs.LEVELS, default="INFO", help="(default: INFO)")
    root.add_argument("--loop", choices=process.LOOPS, default="uvloop", help="event loop (default: uvloop)")
    root.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    return root


MAX_NAME_SERVERS = 16


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    root = parser()
    given = root.parse_args(arguments)
    addrs = list(dict.fromkeys(given.namesrv))
    if len(addrs) > MAX_NAME_SERVERS:
        root.error(f"--namesrv is given {len(addrs)} times, at most {MAX_NAME_SERVERS} are watched")
    if given.print:
        return asyncio.run(_print(addrs))
    logs.configure(given.log_level)
    history = HistoryConfig(directory=given.history, retain_days=given.retain_days)
    settings = ObserverSettings(poll_seconds=given.poll_seconds, topics_seconds=given.topics_seconds)
    return process.run(lambda stop: observe(addrs, history, settings, stop), loop=given.loop)


async def observe(addrs: list[str], history: HistoryConfig, settings: ObserverSettings, stop: asyncio.Event) -> int:
    """Watch until ``stop`` is set; return the exit code."""
    clock, metrics = SystemClock(), Metrics()
    observers = [
        Observer(addr, history=history, settings=settings, version=__version__, clock=clock, metrics=metrics)
        for addr in addrs
    ]
    try:
        for observer in observers:
            observer.check_folder()
        await _run(observers, stop)
    except (OSError, ExceptionGroup) as errors:  # the edge of the process: an error is one log line and exit 1
        error = _first(errors)
        if isinstance(error, OSError):
            log.error("cannot write the history: %s", _sentence(error))  # noqa: TRY400  # the sentence says it all
        else:
            log.exception("failed", exc_info=errors)
        return process.EXIT_FAILED
    return process.EXIT_OK


async def _run(observers: list[Observer], stop: asyncio.Event) -> None:
    try:
        async with asyncio.TaskGroup() as tasks:
            polling = [tasks.create_task(observer.run()) for observer in observers]
            await stop.wait()
            for task in polling:
                task.cancel()
    finally:
        await asyncio.gather(*(observer.close() for observer in observers))


async def _print(addrs: list[str]) -> int:
    failed = False
    for addr in addrs:
        try:
            async with connected(addr) as connection:
                body = body_of(await connection.ask(RequestCode.GET_BROKER_CLUSTER_INFO))
            print(json.dumps(read_json(body), indent=1, sort_keys=True))
        except (NoAnswer, Refused, BadAnswer, ValueError) as error:
            failed = True
            print(f"pointsman-observe: {addr}: {error}", file=sys.stderr)
    return process.EXIT_FAILED if failed else process.EXIT_OK


def _first(error: Exception) -> Exception:
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


def _sentence(error: OSError) -> str:
    return f"{error.filename}: {error.strerror}" if error.filename is not None else str(error)


def _addr(text: str) -> str:
    if problem := addr_problem(text):
        raise argparse.ArgumentTypeError(f"name server address {problem}, got {text!r}")
    return text


class _number:  # noqa: N801  # reads as a type of argparse
    def __init__(self, low: float, high: float) -> None:
        self._low, self._high = low, high

    def __call__(self, text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if not self._low <= value <= self._high:
            raise argparse.ArgumentTypeError(f"must be a number from {self._low:g} to {self._high:g}, got {text!r}")
        return value


def _days(text: str) -> int:
    return int(_number(0, 36_500)(text))


if __name__ == "__main__":
    sys.exit(main())
