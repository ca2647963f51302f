"""The epoch of a master that may be promoted and demoted: who of two masters is the later one.

Redis keeps no such number, so the agent keeps one among the data: a key with ``epoch member``, copied to the replicas
like everything else. A master whose data name another member got them from the master before it: it was promoted, and
its epoch is the next one. An old master that comes back before it is told of its successor still has its own name and
the lower number, and name servers refuse it (RocketMQ's controller gives ``masterEpoch`` to the same end).

A server that was restarted, and now says that it is a master with another member's name in its data, or with none, may
have been promoted while nobody looked, or may be a replica whose configuration does not say so, about to be told. Redis
Sentinel corrects such a one after some ten seconds. Until it has been a master for longer than that, it claims less
than the living master can have, which is enough where nobody else serves.
"""

from __future__ import annotations

from dataclasses import dataclass

ACCEPT_AFTER_SECONDS = 15.0
"""Sentinel corrects the role of a server that it takes for a replica after 8 s and a round of its own, which is 1 s."""
MAX_EPOCH = 2**63 - 1


class NoMastership(ValueError):
    """The text under the key is none that an agent wrote."""


@dataclass(frozen=True, slots=True)
class Mastership:
    """Who was promoted last, as the data say."""

    epoch: int
    """From 1."""
    member: str
    """Of the group, unique in it and without blanks; the same over restarts and changes of address."""

    def to_text(self) -> str:
        """Write it as it stands under the key."""
        return f"{self.epoch} {self.member}"

    @classmethod
    def from_text(cls, text: str) -> Mastership:
        """Read what :meth:`to_text` wrote. Raises NoMastership."""
        epoch, _, member = text.partition(" ")
        is_number = epoch.isascii() and epoch.isdigit() and len(epoch) <= len(str(MAX_EPOCH))
        if not is_number or not 1 <= int(epoch) <= MAX_EPOCH or not member or member.split() != [member]:
            raise NoMastership(f"is no 'epoch member': {text[:64]!r}")
        return cls(int(epoch), member)


@dataclass(frozen=True, slots=True)
class Claim:
    """What a master may claim now."""

    epoch: int
    to_keep: Mastership | None
    """What its data shall say from now on; None: what they say stays."""


class MastershipKeeper:
    """Follows one member through its roles. ``member`` as in :class:`Mastership`."""

    def __init__(self, member: str) -> None:
        self._member = member
        self._replica_run = ""
        """The process last seen as a replica."""
        self._run = ""
        self._master_since = 0.0
        self._epoch = 0
        """Claimed by the process ``_run``: a key that cannot be written, or is deleted, takes nothing back."""

    def on_replica(self, run: str) -> None:
        """Take in that the process ``run`` is a replica."""
        self._replica_run = run
        self._run = ""

    def claimed(self, run: str) -> int:
        """What the process ``run`` claims as a master while its data cannot be read; 0: nothing yet."""
        return self._epoch if run == self._run else 0

    def on_master(self, run: str, held: Mastership | None, *, now: float) -> Claim:
        """Take in that the process ``run`` is a master whose data say ``held``, and return what it may claim."""
        if run != self._run:
            self._run, self._master_since, self._epoch = run, now, 0
        was_promoted = bool(run) and run == self._replica_run
        is_accepted = was_promoted or now - self._master_since >= ACCEPT_AFTER_SECONDS
        is_own = held is not None and held.member == self._member
        held_epoch = 0 if held is None else held.epoch
        if self._epoch:
            epoch = max(self._epoch, held_epoch if is_own else 0)
        elif is_own and not was_promoted:
            epoch = held_epoch
        elif is_accepted:
            epoch = min(MAX_EPOCH, held_epoch + 1)
        else:
            return Claim(max(0, held_epoch - 1), None)
        self._epoch = epoch
        kept = Mastership(epoch, self._member)
        return Claim(epoch, kept if kept != held else None)
