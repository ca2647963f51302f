"""Builds a consumer of a group from its started client and transport."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import cast

from pointsman_client.consumer.consumer_identity import ConsumerIdentity, check_sql
from pointsman_client.consumer.consumer_options import GroupOptions
from pointsman_client.consumer.file_offset_store import FileOffsetStore, offset_file_path
from pointsman_client.consumer.group_consumer import ConsumerSetting, GroupConsumer
from pointsman_client.consumer.held_queue import HeldQueue
from pointsman_client.consumer.leasing_member import LeasingMember, LeasingSetting
from pointsman_client.consumer.listener_pool import ListenerPool
from pointsman_client.consumer.message_popper import LeasingTransport
from pointsman_client.consumer.stated_modes import StatedModes
from pointsman_client.core.allocation import Averagely
from pointsman_client.core.message import ReceivedMessage
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.rebalance import MessageModel
from pointsman_client.core.retry_rules import CallEnd
from pointsman_client.errors import InvalidOptionError
from pointsman_client.ownership import Resources
from pointsman_client.ports.coordination import Coordination, CoordinationRequest
from pointsman_client.ports.leases import LeasesMessages, StatesConsumeMode

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
    check_sql(identity.subscriptions.values(), resources.transport)
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


def make_leasing_member(
    setting: LeasingSetting,
    options: GroupOptions,
    identity: ConsumerIdentity,
    resources: Resources,
    *,
    call_listener: Callable[[ReceivedMessage], Awaitable[CallEnd]] | None = None,
    oldest_calls: Callable[[], Mapping[MessageQueue, float]] = dict,
    follows_modes: bool = False,
) -> LeasingMember:
    """Build the member of a consumer that leases messages. ``call_listener`` None: the application receives.

    ``follows_modes``: whether it reads only where the brokers, if they state a mode, have the group use POP. Raises
    InvalidOptionError for a transport that cannot lease messages.
    """
    transport = resources.transport
    if not isinstance(transport, LeasesMessages):
        problem = "cannot lease messages (LeasesMessages), so it is not for SimpleConsumer and ConsumeMode.POP"
        raise InvalidOptionError("transport", type(transport).__name__, problem)
    check_sql(identity.subscriptions.values(), transport)
    member: LeasingMember | None = None
    make = options.make_coordination or resources.make_coordination
    coordination = make(
        CoordinationRequest(
            routes=resources.client,
            name_servers=lambda: resources.client.name_servers,
            group=setting.group,
            client_id=setting.client_id,
            message_model=MessageModel.CLUSTERING,
            is_ordered=setting.is_ordered,
            strategy=Averagely(),
            retries=False,
            consume_from=setting.consume_from,
            subscriptions=lambda: {topic: each.expression for topic, each in identity.subscriptions.items()},
            on_change=lambda: None,
            on_joined=lambda: None,
            consumer=lambda: member,
            call_listener=call_listener,
            own_offsets=None,
            clock=resources.clock,
            rng=resources.rng,
            leases=True,
        )
    )
    modes = None
    if follows_modes and isinstance(transport, StatesConsumeMode):
        modes = StatedModes(
            transport,
            group=setting.group,
            client_id=setting.client_id,
            timeout_seconds=setting.request_timeout_seconds,
            clock=resources.clock,
        )
    member = LeasingMember(
        setting,
        resources.client,
        cast("LeasingTransport", transport),
        coordination,
        identity.subscriptions,
        modes=modes,
        oldest_calls=oldest_calls,
        clock=resources.clock,
        hook=resources.metrics_hook,
    )
    return member


def _closing_too(file: FileOffsetStore, coordination: Coordination) -> Coordination:
    async def close() -> None:
        await asyncio.gather(coordination.close(), file.close())

    return replace(coordination, close=close)
