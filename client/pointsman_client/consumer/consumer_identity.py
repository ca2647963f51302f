"""Identity of a consumer: its client id and its subscriptions."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace

from pointsman_client.client import parts_of
from pointsman_client.client_ids import check_client_id, local_address, unique_instance
from pointsman_client.consumer.consumer_options import GroupOptions
from pointsman_client.core.rebalance import MessageModel
from pointsman_client.core.subscription import Subscription, Subscriptions, to_subscriptions
from pointsman_client.errors import InvalidOptionError
from pointsman_client.ownership import Resources
from pointsman_client.ports.transport import FiltersBySql, Transport

DEFAULT_INSTANCE = "DEFAULT"


class ConsumerIdentity:
    """Client id and current subscriptions of one member of a group."""

    def __init__(
        self,
        options: GroupOptions,
        subscriptions: Subscriptions,
        resources: Resources,
        *,
        model: MessageModel = MessageModel.CLUSTERING,
        zone: str = "",
    ) -> None:
        self._resources = resources
        parsed = to_subscriptions(subscriptions).values()
        self.subscriptions: dict[str, Subscription] = {each.topic: each for each in map(self._full, parsed)}
        self.client_id = (
            check_client_id(options.client_id)
            if options.client_id
            else make_client_id(
                address=local_address(parts_of(resources.client).first_addr),
                group=options.group,
                model=model,
                zone=zone,
                rng=resources.rng,
            )
        )

    def subscribe(self, topic: str, expression: str) -> None:
        """Add or replace the subscription of a topic."""
        subscription = self._full(Subscription.parse(topic, expression))
        if self._resources.is_started:
            check_sql([subscription], self._resources.transport)
        self.subscriptions[subscription.topic] = subscription

    def unsubscribe(self, topic: str) -> bool:
        """Remove a topic; return whether it was subscribed."""
        return self.subscriptions.pop(self._resources.view.full(topic), None) is not None

    def _full(self, subscription: Subscription) -> Subscription:
        return replace(subscription, topic=self._resources.view.full(subscription.topic))


def make_client_id(*, address: str, group: str, model: MessageModel, zone: str, rng: random.Random) -> str:
    """Return ``address@instance``, plus ``@zone`` for a consumer in a zone (``ClientConfig.buildMQClientId``).

    The instance names the process and distinguishes its consumers. For a broadcasting consumer it is constant, because
    a restarted consumer must find its offsets; it contains the group, since each group has its own offsets.
    """
    is_broadcasting = model is MessageModel.BROADCASTING
    instance = f"{DEFAULT_INSTANCE}#{group}" if is_broadcasting else unique_instance(rng)
    return check_client_id(f"{address}@{instance}@{zone}" if zone else f"{address}@{instance}")


def check_sql(subscriptions: Iterable[Subscription], transport: Transport) -> None:
    """Raise :class:`InvalidOptionError` for a :class:`SqlFilter` that no broker of the transport evaluates."""
    sql = next((each for each in subscriptions if each.is_sql), None)
    if sql is not None and not isinstance(transport, FiltersBySql):
        problem = "is a SQL92 condition, which only RocketMQ brokers evaluate: use tags, or select in the listener"
        raise InvalidOptionError(f"subscriptions[{sql.topic!r}]", str(sql.expression), problem)
