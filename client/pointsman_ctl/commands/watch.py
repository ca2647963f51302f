"""Look on: routes as they change, and the whole fleet refreshed."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from contextlib import nullcontext
from datetime import UTC, datetime

import click
from rich.console import Console, Group
from rich.live import Live

from pointsman_client.errors import NameServerFailedError
from pointsman_client.rpc.name_server_link import NameServerLinks
from pointsman_ctl import layout
from pointsman_ctl.argument import duration_option, in_cluster, read_names
from pointsman_ctl.failure import EXIT_OK, answer_words
from pointsman_ctl.node import CLOSE_SECONDS, ask_over
from pointsman_ctl.question import brokers_of
from pointsman_ctl.settings import Settings, pass_settings
from pointsman_ctl.top import Frame, frame_parts, next_frame, to_frame_document
from pointsman_ctl.watch_view import news_parts, to_news_document
from pointsman_ctl.watching import RouteNews, RouteWatcher
from pointsman_ctl.wording import failure_words

REFRESH_SECONDS = 2.0


@click.command()
@click.argument("topics", nargs=-1, required=True, callback=read_names, metavar="TOPIC...")
@in_cluster
@click.option("--zone", default="", metavar="NAME", help="Only groups of this zone, and those without a master.")
@duration_option("365d", help="End after this, as 10m; else at Ctrl-C.")
@pass_settings
def watch(settings: Settings, topics: tuple[str, ...], cluster: str, zone: str, seconds: int | None) -> int:
    """Show where each TOPIC is, then each change as it comes.

    Watches at the first server in the list that answers; when that ends, it goes on at the next and shows only what is
    different there. Exits 0 when --for is over, 130 at Ctrl-C, 1 if no server answers from the start. With --output
    json each change is one object a line.

    \b
    JSON: at, addr, topic, revision.{boot, counter, digest},
          route.{as in route}; route is null while no broker has the topic

    \b
    Examples:
      pointsmanctl watch orders
      pointsmanctl --namesrv ns1:9876,ns2:9876 watch orders payments --for 10m
      pointsmanctl -o json watch orders | jq -c '.route.brokerDatas'
    """

    def show(addr: str, news: RouteNews) -> None:
        at = datetime.now(UTC)
        if settings.is_json:
            click.echo(json.dumps(to_news_document(addr, news, at=at)))
        else:
            layout.show(news_parts(addr, news, at=at))

    def say_failure(failure: NameServerFailedError, had_begun: bool) -> None:
        if had_begun:
            settings.warn("WATCH_ENDED", f"the watch at {failure.addr} ended ({failure_words(failure)})", "going on")
        else:
            settings.warn(failure.code, answer_words(failure.addr, failure), "going on")

    def say_untold(addr: str, untold: list[str]) -> None:
        words = f"{addr} has just started and does not know yet where {', '.join(untold)} is"
        settings.warn("TOPIC_NOT_KNOWN_YET", words, "waiting")

    watcher = RouteWatcher(
        settings.name_servers,
        topics,
        cluster=cluster,
        zone=zone,
        timeout_seconds=settings.timeout_seconds,
        on_news=show,
        on_failure=say_failure,
        on_untold=say_untold,
        on_return=lambda addr: settings.warn("WATCH_RESUMED", f"watching at {addr}"),
    )

    async def within() -> int:
        try:
            async with asyncio.timeout(seconds) as limit:
                await watcher.run()
        except TimeoutError:
            if not limit.expired():
                raise
        return EXIT_OK

    return asyncio.run(within())


@click.command()
@click.option("--once", is_flag=True, help="Show it once and end.")
@in_cluster
@pass_settings
def top(settings: Settings, once: bool, cluster: str) -> int:
    """Watch name servers and brokers live.

    Refreshed every 2 s. Counters of a node are shown as rates per second, from the second refresh on. UNHEALTHY are
    brokers that are not UP, and those with a flap penalty above 3,000. Ctrl-C ends it. With --output json each refresh
    is one object per line; without a terminal the refreshes follow one another. --once exits 1 if a server failed.

    \b
    JSON: at, nodes[].{addr, node, nodeState, uptimeSeconds, sizes,
            ratesPerSecond, brokersByState, complaints[],
            guards[].{as in guard}, troubled[].{cluster, brokerName, brokerId,
            brokerAddr, state, reason, planned, silenceSeconds, penalty}}
          or {addr, error}

    \b
    Examples:
      pointsmanctl --namesrv ns1:9876,ns2:9876 top
      pointsmanctl top --once
      pointsmanctl -o json top | jq -c '.nodes[].brokersByState'
    """
    if once:
        frame = asyncio.run(_one_frame(settings, cluster))
        return settings.finish(frame.nodes, to_frame_document(frame), frame_parts(frame), on_one_line=True)
    return asyncio.run(_frames(settings, cluster))


async def _one_frame(settings: Settings, cluster: str) -> Frame:
    links = NameServerLinks()
    try:
        return await _look(settings, cluster, links, None)
    finally:
        await links.close(timeout_seconds=CLOSE_SECONDS)


async def _frames(settings: Settings, cluster: str) -> int:
    links = NameServerLinks()
    is_live = sys.stdout.isatty() and not settings.is_json
    console = Console(highlight=False, markup=False, emoji=False)
    frame: Frame | None = None
    try:
        with Live(console=console, screen=True, auto_refresh=False) if is_live else nullcontext() as live:
            while True:
                frame = await _look(settings, cluster, links, frame)
                if settings.is_json:
                    click.echo(json.dumps(to_frame_document(frame)))
                elif live:
                    live.update(Group(*frame_parts(frame)), refresh=True)
                else:
                    layout.show([*frame_parts(frame), ""])
                await asyncio.sleep(max(0.0, frame.monotonic_seconds + REFRESH_SECONDS - time.monotonic()))
    finally:
        await links.close(timeout_seconds=CLOSE_SECONDS)


async def _look(settings: Settings, cluster: str, links: NameServerLinks, before: Frame | None) -> Frame:
    at, monotonic_seconds = datetime.now(UTC), time.monotonic()
    nodes = await ask_over(
        links,
        settings.name_servers,
        lambda link: brokers_of(link, settings.timeout_seconds, cluster=cluster),
    )
    return next_frame(before, nodes, at=at, monotonic_seconds=monotonic_seconds)


COMMANDS = (watch, top)
