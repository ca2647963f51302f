"""Builds a consumer of a group from its started client and transport."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from pointsman_client.consumer.consumer_identity import ConsumerIdentity
from pointsman_client.consumer.file_offset_store import FileOffsetStore, offset_file_path
from pointsman_client.consumer.group_consumer import ConsumerSetting, GroupConsumer
from pointsman_client.consumer.held_queue import HeldQueue
from pointsman_client.consumer.listener_pool import ListenerPool
from pointsman_client.core.rebalance import MessageModel
from pointsman_client.ownership import Resources
from pointsman_client.ports.coordination import Coordination, CoordinationRequest

OFFSETS_FOLDER = Path("~/.pointsman/offsets")
"""RocketMQ uses ``~/.rocketmq_offsets``."""


def make_group_consumer(
    setting: ConsumerSetting,
    identity: ConsumerIdentity,
    resources: Resources,
    *,
    offer: Callable[[HeldQueue], None],
    pool: ListenerPool | None = None,
) -> GroupConsumer:
    """Build the consumer. ``offer`` gets each queue with messages; ``pool`` None: the application polls."""
    options = setting.options
    core: GroupConsumer | None = None

    def members_changed() -> None:
        if core is not None:
            core.members_changed()

    def joined() -> None:
        if core is not None:
            core.renew_locks()

    file: FileOffsetStore | None = None
    if setting.model is MessageModel.BROADCASTING:
        path = options.offset_file or offset_file_path(
            OFFSETS_FOLDER.expanduser(), group=setting.group, client_id=setting.client_id
        )
        file = FileOffsetStore(Path(path), clock=resources.clock)
    make = options.make_coordination or resources.make_coordination
    coordination = make(
        CoordinationRequest(
            routes=resources.client,
            name_servers=lambda: resources.client.name_servers,
            group=setting.group,
            client_id=setting.client_id,
            message_model=setting.model,
            is_ordered=setting.is_ordered,
            strategy=setting.strategy,
            retries=setting.retries,
            consume_from=options.consume_from,
            subscriptions=lambda: {topic: each.expression for topic, each in identity.subscriptions.items()},
            on_change=members_changed,
            on_joined=joined,
            consumer=lambda: core,
            call_listener=None if pool is None else pool.call_once,
            own_offsets=file,
            clock=resources.clock,
            rng=resources.rng,
        )
    )
    core = GroupConsumer(
        setting,
        resources.client,
        resources.transport,
        coordination if file is None else _closing_too(file, coordination),
        identity.subscriptions,
        offer=offer,
        pool=pool,
        clock=resources.clock,
        rng=resources.rng,
        hook=resources.metrics_hook,
    )
    return core


def _closing_too(file: FileOffsetStore, coordination: Coordination) -> Coordination:
    async def close() -> None:
        await asyncio.gather(coordination.close(), file.close())

    return replace(coordination, close=close)
