"""The tasks that keep a client's routes fresh: the watch, the poll, and rechecks of what is disputed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from pointsman.wire.clock import Clock
from pointsman_client.aio import end_tasks, start_task
from pointsman_client.client_options import ClientOptions
from pointsman_client.core.recheck_plan import RecheckPlan
from pointsman_client.routes.failover import NameServerChoice
from pointsman_client.routes.poller import LookUpRound, Rechecker, RoutePoller
from pointsman_client.routes.route_keeper import RouteKeeper
from pointsman_client.routes.route_stream import RouteStream
from pointsman_client.rpc.name_server_link import NameServerLinks


class RouteUpkeep:
    """Runs from :meth:`start` to :meth:`close`."""

    def __init__(
        self,
        options: ClientOptions,
        *,
        choice: NameServerChoice,
        links: NameServerLinks,
        clock: Clock,
        rng: random.Random,
        keeper: RouteKeeper,
        plan: RecheckPlan,
        on_failure: Callable[[str], None],
    ) -> None:
        look_up_round = LookUpRound(concurrency=options.poll_concurrency)
        self._poller = RoutePoller(
            clock=clock,
            rng=rng,
            interval_seconds=options.poll_name_server_interval_seconds,
            jitter=options.poll_jitter,
            look_up_round=look_up_round,
            topics=keeper.topics,
            look_up=keeper.look_up,
        )
        self._rechecker = Rechecker(plan, clock=clock, look_up_round=look_up_round, look_up=keeper.look_up_anew)
        self._is_watching = options.watch_routes
        self._stream = RouteStream(
            choice=choice,
            links=links,
            clock=clock,
            rng=rng,
            topics=keeper.topics,
            known=keeper.revision_of,
            hear=keeper.hear,
            on_failure=on_failure,
            first_word_seconds=options.lookup_timeout_seconds,
            zone=options.zone,
        )
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def watched(self) -> frozenset[str]:
        """Topics of which a name server tells each change."""
        return self._stream.watched

    def start(self) -> None:
        """Begin, in the running event loop."""
        self._tasks.append(start_task(self._poller.run(), name="pointsman-route-poll"))
        self._tasks.append(start_task(self._rechecker.run(), name="pointsman-route-recheck"))
        if self._is_watching:
            self._tasks.append(start_task(self._stream.run(), name="pointsman-route-watch"))

    def wake(self) -> None:
        """Note that other topics are in use, or that something is to be asked again."""
        self._rechecker.wake()
        self._stream.topics_changed()

    async def close(self, *, timeout_seconds: float) -> None:
        """End the tasks."""
        await end_tasks(self._tasks, timeout_seconds=timeout_seconds)
