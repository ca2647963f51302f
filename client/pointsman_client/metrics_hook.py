"""Where the library says what it does, for whoever counts. Every method may be left as it is: it does nothing.

Methods are called in the event loop and must return at once and raise nothing. ``prometheus.py`` has an adapter.
"""

from __future__ import annotations

from pointsman_client.core.message_queue import MessageQueue


class MetricsHook:
    """Override what you count. Label values come from bounded sets except topic, group and broker names."""

    def sent(self, *, topic: str, outcome: str, seconds: float, tries: int) -> None:
        """A send ended. ``outcome``: a SendStatus, the code of the error raised, PARKED (in an outbox), CANCELLED."""

    def send_tried(self, *, queue: MessageQueue, outcome: str, seconds: float) -> None:
        """One try of a send to a queue ended. ``outcome``: a SendStatus, or the code of the error."""

    def isolated(self, *, cluster: str, broker_name: str, seconds: float) -> None:
        """A broker was isolated for so long."""

    def isolation_hit(self, *, cluster: str, broker_name: str) -> None:
        """A queue was passed over because its broker is isolated."""

    def parked(self, *, topic: str, waiting: int) -> None:
        """A message was put into the outbox, or left it: now so many wait there."""

    def consumed(self, *, group: str, queue: MessageQueue, result: str, seconds: float) -> None:
        """A listener ended. ``result``: success, later, raised, timeout."""

    def queue_blocked(self, *, group: str, queue: MessageQueue, since: float | None) -> None:
        """An ordered queue is blocked by a message that fails, ``since`` by the client's monotonic clock; None: it is
        not any longer, or not this member's."""

    def pulled(self, *, group: str, queue: MessageQueue, messages: int, seconds: float) -> None:
        """A pull ended."""

    def pull_failed(self, *, group: str, queue: MessageQueue, code: str) -> None:
        """A pull failed."""

    def filtered(self, *, group: str, queue: MessageQueue, messages: int) -> None:
        """Messages were skipped because the subscription does not select their tags."""

    def trimmed(self, *, group: str, queue: MessageQueue, messages: int) -> None:
        """Messages were gone before the group read them."""

    def sent_back(self, *, group: str, topic: str, destination: str) -> None:
        """A message that a listener failed on was sent on. ``destination``: retry, dlq."""

    def rebalanced(self, *, group: str, topic: str, trigger: str) -> None:
        """Queues were shared out anew. ``trigger``: start, members, route, subscription, period, retry."""

    def queues_held(self, *, group: str, topic: str, count: int) -> None:
        """So many queues are this member's now."""

    def idle_member(self, *, group: str, topic: str, is_idle: bool) -> None:
        """This member has no queue of the topic though it has some, or has one again.

        There are more members than queues, others are pinned, or the strategy gives it none; the log says which.
        """

    def offsets_committed(self, *, group: str, queues: int, result: str) -> None:
        """A commit ended. ``result``: ok, or the code of the error."""

    def name_server_failed(self, *, addr: str) -> None:
        """A name server gave no answer that could be used."""

    def credentials_reloaded(self, *, result: str) -> None:
        """Files of the credentials changed. ``result``: applied; rejected, the last valid ones stay in use."""

    def route_confirmed(self, *, topic: str, at: float) -> None:
        """A name server said what a topic's route is; ``at`` by the client's monotonic clock."""

    def route_dropped(self, *, topic: str) -> None:
        """A topic's route is no longer kept."""
