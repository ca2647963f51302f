"""Decide the next step towards one name server, from what it last answered and what it should hold.

Level-triggered: :meth:`Session.next_step` is asked again after everything that happens and compares states; it keeps
no list of things to do. The rules, in the order in which they are tried:

1. When the agent leaves: say so once to a server that holds our registration, then finish.
2. While a wait is on (a reconnect, a refusal, somebody else holding our identity), or the broker's position is not
   known, wait.
3. After a call without an answer, beat: it is the cheapest way to learn whether the server can be heard again. So a
   server that hears and is not heard gets one whole registration, and beats.
4. Register when the server asked for it, when it never heard of us, or when it was told other content. Where only
   topics differ, and what it holds is known, tell it the difference.
5. Beat when the probe's verdict or the strength of its evidence changed, or an interval has passed.

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
"""Share of the interval: each wait is drawn from here to 1, so that agents started together drift apart and none is
ever late by its own doing (a server counts beats over 1.5 intervals as late)."""

RECLAIM_SHARE = 0.5
"""Of the expiry: how often an identity that a registration from our own address took over is taken back. Two agents
beside one broker then register four times an expiry between them, and one that is alone is back before it expires."""


class BeatStatus(Enum):
    """What a server wants after a beat."""

    OK = "ok"
    UNKNOWN_BROKER = "unknown_broker"
    STALE_GENERATION = "stale_generation"
    TOPICS_OUT_OF_DATE = "topics_out_of_date"


class Failure(Enum):
    """How a call failed, by what it asks of us."""

    UNREACHABLE = "unreachable"
    """No answer, or the connection broke: try again soon."""
    TEMPORARY_ERROR = "temporary_error"
    """The server could not do it now: try again, ever more slowly."""
    REFUSED = "refused"
    """The server does not want what we say; saying it again at once cannot help."""
    HELD_BY_OTHER = "held_by_other"
    """A living broker holds our identity with a higher state version."""


class RegistrationState(Enum):
    """How we stand with the server."""

    UNREGISTERED = "unregistered"
    REGISTERED = "registered"
    UNREACHABLE = "unreachable"
    """It may still hold us; we cannot hear it."""
    HELD_BY_OTHER = "held_by_other"
    REFUSED = "refused"
    LEFT = "left"


@dataclass(frozen=True, slots=True)
class Register:
    """Send the whole registration."""


@dataclass(frozen=True, slots=True)
class Update:
    """Send the difference to the topics that the server holds."""

    delta: TopicDelta


@dataclass(frozen=True, slots=True)
class Beat:
    """Send a beat and wait for its answer."""

    hand_over: bool = False


@dataclass(frozen=True, slots=True)
class Unregister:
    """Say that the broker leaves."""

    is_drained: bool = False
    """Whether its clients were sent elsewhere first; else it was stopped."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Do nothing for so many seconds, or until the own state changes or the stream says something."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Finish:
    """There is nothing left to say."""


Step = Register | Update | Beat | Unregister | Wait | Finish


class Backoff(Protocol):
    """The waits between tries (``pointsman.wire.backoff.FullJitterBackoff``)."""

    def next_wait(self) -> float:
        """Seconds to wait before the next try."""
        ...

    def reset(self) -> None:
        """Start over."""
        ...


class Session:
    """The agent's side of its conversation with one name server.

    ``interval`` and ``expiry`` are our own until the server's answer to a registration replaces them. ``reconnect``
    paces a server that is away, ``repeat`` one that asks for registration after registration or is in trouble.
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
        """The registration's fence; 0 while we never held this identity."""
        self.broker_id = 0
        """The position that is claimed, and that every word on the wire speaks of."""
        self.state = RegistrationState.UNREGISTERED
        self.holder_addr = ""
        """Who holds our identity, while ``standing`` is HELD_BY_OTHER; our own address: another agent speaks for it."""
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
        """Take in an accepted registration of ``own``; ``interval`` and ``expiry`` are what the server holds us to."""
        self.generation = generation
        self.interval = interval
        self.expiry = expiry
        self._must_register = False
        self._is_response_lost = False
        self._needs_full_registration = False
        self._sent_key = own.registration_key
        self._sent_outcome = own.probe_outcome
        self._register_not_before = None
        # A beat at once opens the stream, whose end tells the server of a crash long before silence does.
        self._next_beat = None
        self._on_reachable(RegistrationState.REGISTERED, now=now)

    def on_updated(self, own: OwnState, *, now: float) -> None:
        """Take in an accepted change to the topics of ``own``."""
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
        """Take in the answer to the beat of ``own`` sent at ``sent_at``. ``held_version``: of topics, where it says."""
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
            # It holds us all the same, so beats go on if the registration has to wait.
            told, self._sent_key = self._sent_key, None
            if told is not None and held_version is not None:
                self._sent_key = replace(told, data_version=held_version)
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
        """Take in a registration that was not accepted. What the server held of us before, it still holds."""
        if failure in {Failure.UNREACHABLE, Failure.TEMPORARY_ERROR}:
            # A path that carries beats and breaks on registrations must not be sent one after each beat.
            self._is_response_lost = True
            self._register_not_before = now + self._repeat.next_wait()
            self._on_unreachable(Failure.UNREACHABLE, now=now)
            return
        self.state = RegistrationState.HELD_BY_OTHER if failure is Failure.HELD_BY_OTHER else RegistrationState.REFUSED
        self.holder_addr = holder_addr
        self._register_not_before = now + self.expiry

    def on_update_failure(self, failure: Failure, *, now: float, holder_addr: str = "") -> None:
        """Take in a change that was not accepted. A ``holder_addr`` says that our generation is over."""
        if failure in {Failure.UNREACHABLE, Failure.TEMPORARY_ERROR}:
            self._on_unreachable(failure, now=now)
        elif holder_addr and not self._may_take_back(holder_addr, now=now):
            self._yield_to(holder_addr, now=now)
        else:
            # Whatever it was refused for, a whole registration says the same without a base.
            self._needs_full_registration = True
            self._must_register |= bool(holder_addr)

    def on_beat_failure(self, failure: Failure, *, now: float) -> None:
        """Take in a beat without an answer, or the end of the stream."""
        if failure in {Failure.UNREACHABLE, Failure.TEMPORARY_ERROR}:
            self._on_unreachable(failure, now=now)
            return
        self.state = RegistrationState.REFUSED
        self._pause(self.expiry, now=now)

    def on_new_credentials(self) -> None:
        """Try again without a wait what failed or was refused, perhaps for the credentials before."""
        if self.state in {RegistrationState.REFUSED, RegistrationState.UNREACHABLE}:
            self._not_before = self._register_not_before = None

    def on_left(self) -> None:
        """Take in that the leave was said, or could not be said."""
        self.state = RegistrationState.LEFT

    def _claim(self, broker_id: int) -> None:
        """Claim another position in the group from now on; what was said of the one before says nothing of it."""
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
        """When to register: None where there is no need to, or where a beat has to come first."""
        if self.state is RegistrationState.UNREACHABLE:
            return None
        # Told otherwise counts only where the registration is known to be ours.
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
        """What the server holds, where it is known and nothing else has to be told."""
        told = self._sent_key
        if self._must_register or self._needs_full_registration or told is None:
            return None
        if replace(told, data_version=own.data_version) != own.registration_key:
            return None
        return self._known.of_version(told.data_version)

    def _may_take_back(self, holder_addr: str, *, now: float) -> bool:
        """Whether to register over whoever holds our identity in a later generation."""
        if self.generation == 0:
            return True  # a position that we never held is claimed; the server decides between two claims
        if holder_addr != self._own_addr:
            return False
        if self._is_response_lost:
            return True  # the registration that took our place is the one that we were not answered
        is_too_soon = self._reclaimed_at is not None and now - self._reclaimed_at < RECLAIM_SHARE * self.expiry
        if not is_too_soon:
            self._reclaimed_at = now
        return not is_too_soon

    def _yield_to(self, holder_addr: str, *, now: float) -> None:
        """Leave our identity to its holder, who would take it back: two agents in a fight."""
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
        # A server that answers one beat after each reconnect and breaks again must not be tried at full speed.
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
