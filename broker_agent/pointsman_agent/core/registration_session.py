"""State machine of the registration with one name server: the next step, from its last response and the own state.

Level-triggered: :meth:`Session.next_step` is called after every event and compares states; there is no queue of pending
actions. The rules, in the order in which they apply:

1. When the agent stops: notify a server that holds the registration once, then finish.
2. During a wait (after a failure, a refusal, or while another broker holds the identity), or while the broker's role is
   unknown, wait.
3. After a call without a response, send a heartbeat: it is the cheapest way to find out whether the server responds
   again. A server whose responses are lost gets one full registration, and then heartbeats.
4. Register when the server requested it, does not know the broker, or has other content. If only topics differ, and the
   server's topics are known, send the difference.
5. Send a heartbeat when the probe's verdict or the strength of its evidence changed, or an interval has passed.

``now`` is monotonic seconds of the caller's clock. Nothing here reads a clock or draws a number by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Protocol

from pointsman_agent.core.deltas import KnownTopicSets, TopicDelta, small_delta
from pointsman_agent.core.own_state import Leave, OwnState, RegistrationKey
from pointsman_agent.core.probe_verdict import Evidence, ProbeStatus
from pointsman_agent.core.topic_set import DataVersion, TopicSet

EARLIEST_BEAT = 0.9
"""Share of the interval: each wait is drawn from here to 1, so that agents started together drift apart and none
is late by design (a server counts heartbeats over 1.5 intervals as late)."""

RECLAIM_SHARE = 0.5
"""Share of the expiry: how often an identity is claimed back from a registration with the own address. Two agents of
one broker then register four times per expiry, and a single agent is back before it expires."""


class BeatStatus(Enum):
    """Status in the response to a heartbeat."""

    OK = "ok"
    UNKNOWN_BROKER = "unknown_broker"
    STALE_GENERATION = "stale_generation"
    TOPICS_OUT_OF_DATE = "topics_out_of_date"


class Failure(Enum):
    """How a call failed, by the action that follows."""

    UNREACHABLE = "unreachable"
    """No response, or the connection broke: retry soon."""
    TEMPORARY_ERROR = "temporary_error"
    """The server could not process it now: retry with backoff."""
    REFUSED = "refused"
    """The server rejects the request; an immediate retry cannot succeed."""
    HELD_BY_OTHER = "held_by_other"
    """Another live broker holds the identity with a higher state version."""


class RegistrationState(Enum):
    """State of the registration at the server."""

    UNREGISTERED = "unregistered"
    REGISTERED = "registered"
    UNREACHABLE = "unreachable"
    """It may still hold the registration, but does not respond."""
    HELD_BY_OTHER = "held_by_other"
    REFUSED = "refused"
    LEFT = "left"


@dataclass(frozen=True, slots=True)
class Register:
    """Send the full registration."""


@dataclass(frozen=True, slots=True)
class Update:
    """Send the difference to the topics that the server holds."""

    delta: TopicDelta


@dataclass(frozen=True, slots=True)
class Beat:
    """Send a heartbeat and wait for its response."""

    hand_over: bool = False


@dataclass(frozen=True, slots=True)
class Unregister:
    """Unregister the broker."""

    is_drained: bool = False
    """Whether its clients were moved to other brokers first; else it was stopped."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Do nothing for ``seconds``, or until the own state changes or something arrives on the stream."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Finish:
    """Nothing is left to send."""


Step = Register | Update | Beat | Unregister | Wait | Finish


class Backoff(Protocol):
    """The waits between retries (``pointsman.backoff.FullJitterBackoff``)."""

    def next_wait(self) -> float:
        """Return the seconds to wait before the next retry."""
        ...

    def reset(self) -> None:
        """Start with the shortest wait again."""
        ...


class Session:
    """The agent's side of the exchange with one name server.

    ``interval`` and ``expiry`` apply until the server's response to a registration replaces them. ``reconnect`` paces
    retries of an unreachable server, ``repeat`` those of one that keeps requesting registrations or reports errors.
    ``draw(a, b)`` is ``random.uniform`` in production.
    """

    def __init__(
        self,
        *,
        own_addr: str,
        interval: float,
        expiry: float,
        reconnect: Backoff,
        repeat: Backoff,
        draw: Callable[[float, float], float],
    ) -> None:
        self.interval = interval
        self.expiry = expiry
        self.generation = 0
        """The generation assigned to the registration; 0 if this identity was never held."""
        self.broker_id = 0
        """The broker id that is claimed, and that all messages use."""
        self.state = RegistrationState.UNREGISTERED
        self.holder_addr = ""
        """Holder of the identity while ``state`` is HELD_BY_OTHER; the own address: another agent registered it."""
        self._own_addr = own_addr
        self._reconnect = reconnect
        self._repeat = repeat
        self._draw = draw
        self._must_register = True
        self._was_requested = False
        self._is_response_lost = False
        self._reclaimed_at: float | None = None
        self._known = KnownTopicSets()
        self._needs_full_registration = False
        self._sent_key: RegistrationKey | None = None
        self._sent_outcome: tuple[ProbeStatus, Evidence] | None = None
        self._register_not_before: float | None = None
        self._not_before: float | None = None
        self._next_beat: float | None = None
        self._failed_at: float | None = None

    def next_step(self, own: OwnState, *, now: float) -> Step:
        """Say what to do now."""
        if own.leave is not None:
            return self._leave_step(own.leave)
        if not own.may_claim:
            return Wait(self.interval)
        self._claim(own.broker_id)
        if self._not_before is not None and now < self._not_before:
            return Wait(self._not_before - now)
        register_at = self._register_at(own, now=now)
        if register_at is not None and now >= register_at:
            return self._register_step(own)
        if self._must_register and register_at is not None:
            return Wait(register_at - now)
        if self._next_beat is None or now >= self._next_beat or self._sent_outcome != own.probe_outcome:
            return Beat()
        return Wait(min(self._next_beat, register_at or self._next_beat) - now)

    def on_registered(self, generation: int, own: OwnState, *, interval: float, expiry: float, now: float) -> None:
        """Record an accepted registration of ``own``; the server's ``interval`` and ``expiry`` apply from now on."""
        self.generation = generation
        self.interval = interval
        self.expiry = expiry
        self._must_register = False
        self._is_response_lost = False
        self._needs_full_registration = False
        self._sent_key = own.registration_key
        self._sent_outcome = own.probe_outcome
        self._register_not_before = None
        # An immediate heartbeat opens the stream: its end reports a crash long before the heartbeats expire.
        self._next_beat = None
        self._on_reachable(RegistrationState.REGISTERED, now=now)

    def on_updated(self, own: OwnState, *, now: float) -> None:
        """Record an accepted change to the topics of ``own``."""
        if self._sent_key is not None:
            self._sent_key = replace(self._sent_key, data_version=own.data_version)
        self._register_not_before = None
        self._on_reachable(RegistrationState.REGISTERED, now=now)

    def on_beat_response(
        self,
        answer: BeatStatus,
        own: OwnState,
        *,
        holder_addr: str,
        sent_at: float,
        held_version: DataVersion | None = None,
    ) -> None:
        """Record the response to the heartbeat of ``own`` sent at ``sent_at``; ``held_version``: of the topics."""
        self._sent_outcome = own.probe_outcome
        self._next_beat = sent_at + self.interval * self._draw(EARLIEST_BEAT, 1.0)
        if answer is BeatStatus.STALE_GENERATION and not self._may_take_back(holder_addr, now=sent_at):
            self._yield_to(holder_addr, now=sent_at)
            return
        if answer is BeatStatus.OK:
            self._was_requested = False
            if not self._is_response_lost:
                self._repeat.reset()
            if self._sent_key is not None:
                self._sent_key = replace(self._sent_key, data_version=own.data_version)
            self._on_reachable(RegistrationState.REGISTERED, now=sent_at)
            return
        if answer is BeatStatus.TOPICS_OUT_OF_DATE:
            # It holds the registration nevertheless, so heartbeats continue while the update has to wait.
            sent, self._sent_key = self._sent_key, None
            if sent is not None and held_version is not None:
                self._sent_key = replace(sent, data_version=held_version)
            self._needs_full_registration |= self._was_requested
            self._on_reachable(RegistrationState.REGISTERED, now=sent_at)
        else:
            if self.state is RegistrationState.HELD_BY_OTHER:
                self._register_not_before = None
            self._must_register = True
            self._on_reachable(RegistrationState.UNREGISTERED, now=sent_at)
        if self._was_requested and (self._register_not_before is None or sent_at >= self._register_not_before):
            self._register_not_before = sent_at + self._repeat.next_wait()
        self._was_requested = True

    def on_register_failure(self, failure: Failure, *, now: float, holder_addr: str = "") -> None:
        """Record a failed registration. The server still holds what it held before."""
        if failure in {Failure.UNREACHABLE, Failure.TEMPORARY_ERROR}:
            # If heartbeats pass but registrations break, do not register after each heartbeat.
            self._is_response_lost = True
            self._register_not_before = now + self._repeat.next_wait()
            self._on_unreachable(Failure.UNREACHABLE, now=now)
            return
        self.state = RegistrationState.HELD_BY_OTHER if failure is Failure.HELD_BY_OTHER else RegistrationState.REFUSED
        self.holder_addr = holder_addr
        self._register_not_before = now + self.expiry

    def on_update_failure(self, failure: Failure, *, now: float, holder_addr: str = "") -> None:
        """Record a failed update. A ``holder_addr`` means that another registration superseded this generation."""
        if failure in {Failure.UNREACHABLE, Failure.TEMPORARY_ERROR}:
            self._on_unreachable(failure, now=now)
        elif holder_addr and not self._may_take_back(holder_addr, now=now):
            self._yield_to(holder_addr, now=now)
        else:
            # Whatever the reason, a full registration has the same content and needs no base version.
            self._needs_full_registration = True
            self._must_register |= bool(holder_addr)

    def on_beat_failure(self, failure: Failure, *, now: float) -> None:
        """Record a heartbeat without a response, or the end of the stream."""
        if failure in {Failure.UNREACHABLE, Failure.TEMPORARY_ERROR}:
            self._on_unreachable(failure, now=now)
            return
        self.state = RegistrationState.REFUSED
        self._pause(self.expiry, now=now)

    def on_new_credentials(self) -> None:
        """Retry immediately after a failure or refusal, which the old credentials may have caused."""
        if self.state in {RegistrationState.REFUSED, RegistrationState.UNREACHABLE}:
            self._not_before = self._register_not_before = None

    def on_left(self) -> None:
        """Record that unregistering or handing over was attempted."""
        self.state = RegistrationState.LEFT

    def _claim(self, broker_id: int) -> None:
        """Claim another broker id from now on; responses for the previous one no longer apply."""
        if broker_id == self.broker_id:
            return
        self.broker_id = broker_id
        self.generation = 0
        self._must_register = True
        self._sent_key = None
        self._register_not_before = None
        if self.state is not RegistrationState.UNREACHABLE:
            self.state = RegistrationState.UNREGISTERED
            self.holder_addr = ""
            self._not_before = None

    def _register_at(self, own: OwnState, *, now: float) -> float | None:
        """Return when to register; None if not needed, or if a heartbeat has to come first."""
        if self.state is RegistrationState.UNREACHABLE:
            return None
        # Other content counts only while the server is known to hold the registration.
        is_outdated = self.state is RegistrationState.REGISTERED and self._sent_key != own.registration_key
        if not (self._must_register or is_outdated):
            return None
        return now if self._register_not_before is None else self._register_not_before

    def _register_step(self, own: OwnState) -> Register | Update:
        wanted = TopicSet(own.topics.topics, own.data_version)
        held = self._held_topics(own)
        delta = None if held is None else small_delta(held, wanted)
        if held is not None and delta is not None:
            self._known.remember(held)
        self._known.remember(wanted)
        return Register() if delta is None else Update(delta)

    def _held_topics(self, own: OwnState) -> TopicSet | None:
        """Return the topics that the server holds, if they are known and only topics differ."""
        sent = self._sent_key
        if self._must_register or self._needs_full_registration or sent is None:
            return None
        if replace(sent, data_version=own.data_version) != own.registration_key:
            return None
        return self._known.of_version(sent.data_version)

    def _may_take_back(self, holder_addr: str, *, now: float) -> bool:
        """Return whether to register over a holder with a later generation."""
        if self.generation == 0:
            return True  # a first claim of this broker id; the server decides between two claims
        if holder_addr != self._own_addr:
            return False
        if self._is_response_lost:
            return True  # the holder is the own registration whose response was lost
        is_too_soon = self._reclaimed_at is not None and now - self._reclaimed_at < RECLAIM_SHARE * self.expiry
        if not is_too_soon:
            self._reclaimed_at = now
        return not is_too_soon

    def _yield_to(self, holder_addr: str, *, now: float) -> None:
        """Leave the identity to its holder; otherwise two agents would keep taking it from each other."""
        self._must_register = False
        self._on_reachable(RegistrationState.HELD_BY_OTHER, now=now)
        self.holder_addr = holder_addr
        if holder_addr != self._own_addr:
            self._pause(self.expiry, now=now)

    def _leave_step(self, leave: Leave) -> Step:
        may_hold_us = (
            self.state in {RegistrationState.REGISTERED, RegistrationState.UNREACHABLE} and not self._must_register
        )
        if not may_hold_us:
            return Finish()
        return Beat(hand_over=True) if leave is Leave.HAND_OVER else Unregister(is_drained=leave is Leave.DRAIN)

    def _on_reachable(self, state: RegistrationState, *, now: float) -> None:
        self.state = state
        self.holder_addr = ""
        self._not_before = None
        # Do not reset the backoff for a server that responds once after each reconnect and then breaks.
        if self._failed_at is None or now - self._failed_at >= self.interval:
            self._reconnect.reset()

    def _on_unreachable(self, failure: Failure, *, now: float) -> None:
        self.state = RegistrationState.UNREACHABLE
        self.holder_addr = ""
        self._failed_at = now
        backoff = self._reconnect if failure is Failure.UNREACHABLE else self._repeat
        self._pause(backoff.next_wait(), now=now)

    def _pause(self, seconds: float, *, now: float) -> None:
        self._not_before = now + seconds
        self._next_beat = None
