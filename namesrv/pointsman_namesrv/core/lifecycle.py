"""The life cycle of this node: its states and the transitions between them.

WARMING comes first: an unknown topic may belong to a broker that has not registered yet (RocketMQ
``needWaitForService``). Times are monotonic seconds.
"""

from __future__ import annotations

from collections.abc import Callable

from pointsman.wire.refusals import NotReady
from pointsman_namesrv.core.events import Event, EventKind
from pointsman_namesrv.core.model import NodeState, Reason

MIN_WARM_UP = 5.0
"""Seconds in which agents reconnect: a broker that the snapshot does not contain may be among them."""

_NEXT: dict[NodeState, tuple[NodeState, ...]] = {
    NodeState.WARMING: (NodeState.READY, NodeState.DRAINING),
    NodeState.READY: (NodeState.DRAINING,),
    NodeState.DRAINING: (NodeState.WARMING,),
}
"""What may follow each state, until the node stops. Undrained, a node is WARMING, and READY if its warm-up is over."""


class NodeLifecycle:
    """The state of one node from start to stop. Each change returns the events for the history.

    The warm-up lasts ``warm_up_seconds``. After :meth:`restored` it ends when all restored brokers are back, but not
    before :data:`MIN_WARM_UP`. Once over, it stays over.
    """

    def __init__(self, *, started_at: float, warm_up_seconds: float) -> None:
        self._started_at = started_at
        self._latest = self._earliest = started_at + warm_up_seconds
        # Attributes, not properties: every call reads them.
        self.state = NodeState.WARMING
        """What this node serves; changed here alone. DRAINING also while it stops."""
        self.is_stopping = False
        """Whether :meth:`stop` was called, after which nothing changes."""
        self._was_ready = False
        self._listeners: list[Callable[[], None]] = []

    @property
    def is_warmed_up(self) -> bool:
        """Whether the warm-up is over. It stays over."""
        return self._was_ready

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` after each change."""
        self._listeners.append(listener)

    def restored(self, brokers: int, *, complete: bool) -> None:
        """Record what the snapshot provided. For a broker that it lacks, the node can only wait.

        Without brokers the warm-up keeps its full length, also at the first start: the folder may have been lost.
        """
        if brokers and complete:
            self._earliest = min(self._latest, self._started_at + MIN_WARM_UP)

    def end_warm_up(self, *, now: float, still_provisional: int) -> tuple[Event, ...]:
        """Become READY if the node is WARMING and its warm-up is over.

        ``still_provisional``: restored brokers without a heartbeat since, whose time has not expired.
        """
        is_over = self._was_ready or now >= (self._latest if still_provisional else self._earliest)
        if not (is_over and self._enter(NodeState.READY)) or self._was_ready:
            return ()
        # One event per run: readers of the history count this node as an observer from here on, drained or not.
        self._was_ready = True
        return (Event(kind=EventKind.NAMESRV_READY),)

    def drain(self, *, by: str) -> tuple[Event, ...]:
        """Send clients to other nodes; brokers are served as before."""
        return (_draining_event(True, by),) if self._enter(NodeState.DRAINING) else ()

    def undrain(self, *, by: str, now: float, still_provisional: int) -> tuple[Event, ...]:
        """Serve clients again. For ``still_provisional`` see :meth:`end_warm_up`."""
        if not self._enter(NodeState.WARMING):
            return ()
        return (*self.end_warm_up(now=now, still_provisional=still_provisional), _draining_event(False, by))

    def stop(self) -> None:
        """Be DRAINING from now on."""
        self.state, self.is_stopping = NodeState.DRAINING, True
        self._notify()

    def refusal(self) -> NotReady:
        """See :func:`draining`."""
        return draining(stopping=self.is_stopping)

    def _enter(self, state: NodeState) -> bool:
        """Change the state if that may follow now, and return whether it did."""
        if self.is_stopping or state not in _NEXT[self.state]:
            return False
        self.state = state
        self._notify()
        return True

    def _notify(self) -> None:
        for listener in self._listeners:
            listener()


def draining(*, stopping: bool) -> NotReady:
    """Return the refusal of calls on a draining node; ``stopping``: of all calls, because it stops."""
    state = "stopping" if stopping else NodeState.DRAINING
    return NotReady(f"this name server is {state}; use another one", node_state=NodeState.DRAINING)


def _draining_event(draining: bool, by: str) -> Event:
    return Event(kind=EventKind.NAMESRV_DRAINING, reason=Reason.ADMIN, detail={"draining": draining, "by": by})
