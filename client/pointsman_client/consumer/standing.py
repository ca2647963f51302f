"""Who a consumer is and what it stands on: group, client id, subscriptions, and the parts behind it."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

from pointsman_client.consumer.agents.agent_coordination import Coordination, CoordinationRequest
from pointsman_client.consumer.consumer_id import check_client_id, local_address, make_client_id
from pointsman_client.consumer.consumer_options import ConsumerOptions
from pointsman_client.consumer.file_offset_store import offset_file_path
from pointsman_client.consumer.group_consumer import ConsumerSetting, GroupConsumer
from pointsman_client.consumer.held_queue import HeldQueue
from pointsman_client.core.subscription import Subscription, Subscriptions, to_subscriptions
from pointsman_client.ownership import OwnedParts

OFFSETS_FOLDER = Path("~/.pointsman/offsets")
"""RocketMQ has ``~/.rocketmq_offsets``."""


class Standing:
    """Made with the consumer; starts nothing."""

    def __init__(self, parts: OwnedParts, options: ConsumerOptions, subscriptions: Subscriptions) -> None:
        self.parts = parts
        self._options = options
        self.subscriptions: dict[str, Subscription] = to_subscriptions(subscriptions)
        self._rng = options.rng or random.Random()  # noqa: S311  it spreads load and guards no secret
        self.client_id = (
            check_client_id(options.client_id)
            if options.client_id
            else make_client_id(
                address=local_address(parts.client.name_servers[0]),
                group=options.group,
                model=options.message_model,
                zone=options.zone,
                rng=self._rng,
            )
        )

    def subscribe(self, topic: str, expression: str) -> None:
        """Note what is wanted of a topic."""
        self.subscriptions[topic] = Subscription.parse(topic, expression)

    def unsubscribe(self, topic: str) -> bool:
        """Forget a topic; return whether it was subscribed."""
        return self.subscriptions.pop(topic, None) is not None

    def make_core(
        self,
        setting: ConsumerSetting,
        *,
        is_listener: bool,
        offer: Callable[[HeldQueue], None],
    ) -> GroupConsumer:
        """Build the consumer on its started parts."""
        core: GroupConsumer | None = None

        def members_changed() -> None:
            if core is not None:
                core.members_changed()

        def agent_joined() -> None:
            if core is not None:
                core.renew_locks()

        coordination: Coordination = self._options.make_coordination(
            CoordinationRequest(
                client=self.parts.client,
                group=self._options.group,
                client_id=self.client_id,
                is_listener=is_listener,
                message_model=self._options.message_model,
                subscriptions=lambda: {topic: each.expression for topic, each in self.subscriptions.items()},
                on_change=members_changed,
                on_agent_joined=agent_joined,
                offset_file=self._options.offset_file or self._default_offset_file(),
                clock=self.parts.clock,
                rng=self._rng,
            )
        )
        core = GroupConsumer(
            setting,
            self.parts.client,
            self.parts.transport,
            coordination,
            self.subscriptions,
            offer=offer,
            clock=self.parts.clock,
            rng=self._rng,
            hook=self.parts.metrics_hook,
        )
        return core

    def _default_offset_file(self) -> Path:
        return offset_file_path(OFFSETS_FOLDER.expanduser(), group=self._options.group, client_id=self.client_id)
