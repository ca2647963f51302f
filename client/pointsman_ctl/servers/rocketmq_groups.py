"""A consumer group at one RocketMQ broker: its settings, and its deletion."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from pointsman.group_topics import dlq_topic, retry_topic
from pointsman.rocketmq.bodies import number_of
from pointsman.rocketmq.codes import BrokerRequestCode as Request
from pointsman.wire.json_document import Document
from pointsman_ctl.servers.group_bodies import read_group_config
from pointsman_ctl.servers.rocketmq_broker import RocketmqBroker

NOTIFIES = "notifyConsumerIdsChangedEnable"
RETRY_MAX = "retryMaxTimes"
MAX_RETRIES = 1_000
DEFAULT_RETRIES = 16
"""RocketMQ's, for a group that is created."""


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """The settings of a group that operators change here; None: unchanged."""

    notifies: bool | None = None
    retry_max: int | None = None

    @property
    def text(self) -> str:
        """The settings, for operators."""
        named = [] if self.notifies is None else [f"notify {'on' if self.notifies else 'off'}"]
        named += [] if self.retry_max is None else [f"retries at most {self.retry_max}"]
        return ", ".join(named)

    @property
    def document(self) -> Document:
        """The settings as JSON; unchanged ones are not in it."""
        every = {"notify": self.notifies, "retryMax": self.retry_max}
        return {name: value for name, value in every.items() if value is not None}

    @property
    def options(self) -> str:
        """The options of ``group set`` that set these."""
        given = [] if self.notifies is None else ["--notify" if self.notifies else "--no-notify"]
        return " ".join(given + ([] if self.retry_max is None else [f"--retry-max {self.retry_max}"]))

    def over(self, before: GroupSettings | None) -> GroupSettings:
        """Return what a group has after this change; ``before``: None, it is created."""
        before = before or GroupSettings(notifies=True, retry_max=DEFAULT_RETRIES)
        notifies = before.notifies if self.notifies is None else self.notifies
        return GroupSettings(notifies, before.retry_max if self.retry_max is None else self.retry_max)

    def to_config(self, group: str, config: Mapping[str, object] | None) -> dict[str, object]:
        """Return a group's configuration with these settings; ``config``: as the broker has it, None: a new group."""
        changed: dict[str, object] = {"groupName": group, **(config or {})}
        if self.notifies is not None:
            changed[NOTIFIES] = self.notifies
        if self.retry_max is not None:
            changed[RETRY_MAX] = self.retry_max
        if "attributes" in changed:
            # RocketMQ 5 reads a list of changes here, and keeps the attributes that it does not name.
            changed["attributes"] = {}
        return changed


def settings_in(config: Mapping[str, object]) -> GroupSettings:
    """Return the settings in a broker's configuration. Raises BadBodyError."""
    retry_max = number_of({RETRY_MAX: DEFAULT_RETRIES, **config}, RETRY_MAX, most=2**31 - 1)
    return GroupSettings(config.get(NOTIFIES) is not False, retry_max)


class RocketmqGroups:
    """Raises what :class:`~pointsman_ctl.servers.rocketmq_broker.RocketmqBroker` raises. Changes can be repeated."""

    def __init__(self, broker: RocketmqBroker) -> None:
        self._broker = broker

    async def config(self, group: str, deadline: float) -> Mapping[str, object] | None:
        """Return the settings of a group as the broker has them; None: it has no such group."""
        body = await self._broker.request(Request.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, {}, deadline)
        with self._broker.bad_bodies(Request.GET_ALL_SUBSCRIPTIONGROUP_CONFIG):
            return read_group_config(group, body or b"{}")

    async def settings(self, group: str, deadline: float) -> GroupSettings | None:
        """Return the settings of a group that operators change here; None: the broker has no such group."""
        config = await self.config(group, deadline)
        with self._broker.bad_bodies(Request.GET_ALL_SUBSCRIPTIONGROUP_CONFIG):
            return None if config is None else settings_in(config)

    async def write(self, group: str, settings: GroupSettings, deadline: float) -> None:
        """Set settings of a group, which is created if it is missing."""
        config = settings.to_config(group, await self.config(group, deadline))
        body = json.dumps(config).encode()
        await self._broker.request(Request.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, deadline, body=body, is_read=False)

    async def delete(self, group: str, deadline: float) -> None:
        """Delete a group with its offsets, its retry topic and its dead letters, as mqadmin does."""
        # Its offsets, too: 4.9 calls the field removeOffset.
        ext = {"groupName": group, "cleanOffset": "true", "removeOffset": "true"}
        await self._broker.request(Request.DELETE_SUBSCRIPTIONGROUP, ext, deadline, is_read=False)
        for topic in (retry_topic(group), dlq_topic(group)):
            await self._broker.request(Request.DELETE_TOPIC_IN_BROKER, {"topic": topic}, deadline, is_read=False)
