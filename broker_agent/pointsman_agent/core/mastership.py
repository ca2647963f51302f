"""The epoch of a master that may be promoted and demoted: which of two masters is the later one.

Redis has no such number, so the agent stores one with the data: a key with ``epoch member``, replicated like every
other key. A master whose data name another member got them from the master before it. It was promoted, and its epoch is
the next one. An old master that returns, before it is made a replica, still has its own name and the lower number, so
name servers reject it (RocketMQ's controller has ``masterEpoch`` for the same purpose).

A restarted server that reports itself as a master may have another member's name in its data, or none. Either it was
promoted while no agent ran, or it is a replica whose configuration does not say so; Redis Sentinel corrects the latter
after about ten seconds. Until it has been a master for longer, it claims a lower epoch than a live master can have.
That is enough where no other master runs.
"""

from __future__ import annotations

from dataclasses import dataclass

ACCEPT_AFTER_SECONDS = 15.0
"""Sentinel corrects the role of a server that it considers a replica after 8 s plus its own 1 s round."""
MAX_EPOCH = 2**63 - 1


class NoMastership(ValueError):
    """The value of the key was not written by an agent."""


@dataclass(frozen=True, slots=True)
class Mastership:
    """The last promoted member, according to the data."""

    epoch: int
    """From 1."""
    member: str
    """Name of a member, unique in its group and without blanks; it survives restarts and changes of address."""

    def to_text(self) -> str:
        """Return the value of the key."""
        return f"{self.epoch} {self.member}"

    @classmethod
    def from_text(cls, text: str) -> Mastership:
        """Read what :meth:`to_text` wrote. Raises NoMastership."""
        epoch, _, member = text.partition(" ")
        is_number = epoch.isascii() and epoch.isdigit() and len(epoch) <= len(str(MAX_EPOCH))
        if not is_number or not 1 <= int(epoch) <= MAX_EPOCH or not member or member.split() != [member]:
            raise NoMastership(f"must be 'epoch member', got {text[:64]!r}")
        return cls(int(epoch), member)


@dataclass(frozen=True, slots=True)
class Claim:
    """What a master may claim now."""

    epoch: int
    to_keep: Mastership | None
    """The value to write into its data; None: nothing to write."""


class MastershipKeeper:
    """Follows the roles of one member. ``member`` as in :class:`Mastership`."""

    def __init__(self, member: str) -> None:
        self._member = member
        self._replica_run = ""
        """The process last observed as a replica."""
        self._run = ""
        self._master_since = 0.0
        self._epoch = 0
        """Claimed by the process ``_run``. A key that cannot be written, or was deleted, does not lower it."""

    def on_replica(self, run: str) -> None:
        """Record that the process ``run`` is a replica."""
        self._replica_run = run
        self._run = ""

    def claimed(self, run: str) -> int:
        """Return the epoch that ``run`` claims as a master while its data cannot be read; 0: none yet."""
        return self._epoch if run == self._run else 0

    def on_master(self, run: str, held: Mastership | None, *, now: float) -> Claim:
        """Record that the process ``run`` is a master with ``held`` in its data; return what it may claim."""
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
