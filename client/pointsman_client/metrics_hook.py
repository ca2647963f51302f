"""Hook interface for client metrics. All methods do nothing by default.

Methods are called in the event loop; they must not block or raise. ``prometheus.py`` has an implementation.
"""

from __future__ import annotations

from pointsman_client.core.message_queue import MessageQueue


class MetricsHook:
    """Override the methods you need. Label values are from bounded sets, except topic, group and broker names."""

    def sent(self, *, topic: str, outcome: str, seconds: float, tries: int) -> None:
        """A send ended.

        ``outcome``: a SendStatus, the code of the raised error, PARKED (in an outbox), CANCELLED, or UNCONFIRMED: a
        one-way message was written to a connection, and brokers do not confirm those.
        """

    def send_tried(self, *, queue: MessageQueue, outcome: str, seconds: float) -> None:
        """One attempt of a send ended. ``outcome``: a SendStatus, UNCONFIRMED, or the code of the error."""

    def isolated(self, *, cluster: str, broker_name: str, seconds: float) -> None:
        """A broker was isolated for ``seconds``."""

    def isolation_hit(self, *, cluster: str, broker_name: str) -> None:
        """A queue was skipped because its broker is isolated."""

    def parked(self, *, topic: str, waiting: int) -> None:
        """A message was added to or removed from the outbox, which now holds ``waiting`` messages of the topic."""

    def transaction_ended(self, *, topic: str, state: str, is_checked: bool) -> None:
        """A transaction ended. ``state``: a TransactionState, or UNCONFIRMED: the broker did not confirm the end.

        ``is_checked``: the broker asked this producer; else its own block ended.
        """

    def consumed(self, *, group: str, queue: MessageQueue, result: str, seconds: float) -> None:
        """A listener call ended. ``result``: success, later, raised, timeout, rejected."""

    def call_running(self, *, group: str, queue: MessageQueue, since: float | None) -> None:
        """The oldest running listener call of a queue has run for 5 s or more, ``since`` a time of the client's clock.

        None: no such call runs. Long calls are looked for every 5 s.
        """

    def queue_blocked(self, *, group: str, queue: MessageQueue, since: float | None) -> None:
        """A failing message blocks an ordered queue, ``since`` a time of the client's monotonic clock.

        None: it no longer blocks the queue, or the queue is no longer assigned to this member.
        """

    def pulled(self, *, group: str, queue: MessageQueue, messages: int, seconds: float) -> None:
        """A pull ended."""

    def pull_failed(self, *, group: str, queue: MessageQueue, code: str) -> None:
        """A pull failed."""

    def filtered(self, *, group: str, queue: MessageQueue, messages: int) -> None:
        """Messages were skipped because the subscription does not match their tags."""

    def trimmed(self, *, group: str, queue: MessageQueue, messages: int) -> None:
        """Messages were removed at the broker before the group read them."""

    def acknowledged(self, *, group: str, topic: str, messages: int, result: str) -> None:
        """Leased messages were acknowledged. ``result``: ok, or the code of the error."""

    def sent_back(self, *, group: str, topic: str, destination: str) -> None:
        """A message was sent back after a failed listener call. ``destination``: retry, dlq."""

    def rebalanced(self, *, group: str, topic: str, trigger: str) -> None:
        """A rebalance ran. ``trigger``: start, members, route, subscription, period, retry."""

    def lock_lost(self, *, group: str, queue: MessageQueue) -> None:
        """The lock of an ordered queue expired without a renewal; this member drops the queue and acquires it again."""

    def queues_held(self, *, group: str, topic: str, count: int) -> None:
        """``count`` queues are now assigned to this member."""

    def idle_member(self, *, group: str, topic: str, is_idle: bool) -> None:
        """Whether this member has no queue although the topic has queues.

        Reasons, one of which is logged: more members than queues, a pin to other members, the allocation strategy,
        settings that differ from those of the group's oldest member.
        """

    def standing_aside(self, *, group: str, is_aside: bool) -> None:
        """Whether this member holds no queues because its settings differ from those of the group's oldest member."""

    def offsets_committed(self, *, group: str, queues: int, result: str) -> None:
        """An offset commit ended. ``result``: ok, or the code of the error."""

    def name_server_failed(self, *, addr: str) -> None:
        """A call to a name server had no usable response."""

    def name_server_list_read(self, *, result: str) -> None:
        """The list at an address server was read. ``result``: ok, or failed (the last valid one stays in use)."""

    def credentials_reloaded(self, *, result: str) -> None:
        """Credential files changed. ``result``: applied, or rejected (the last valid ones stay in use)."""

    def route_confirmed(self, *, topic: str, at: float) -> None:
        """A name server confirmed a topic's route; ``at`` is a time of the client's monotonic clock."""

    def route_dropped(self, *, topic: str) -> None:
        """A topic's route was removed from the cache."""
