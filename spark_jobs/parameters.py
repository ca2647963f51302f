"""The numbers of the flap score, in one place: defaults, or a TOML file's ``[flapping]`` table.

The score is BGP's route flap damping (RFC 2439): each event adds points, the sum decays by half every half-life, a
broker is flagged when it rises above one threshold and cleared when it falls below a lower one.
"""

from __future__ import annotations

import math
import tomllib
from dataclasses import asdict, dataclass, fields
from pathlib import Path


class ParametersError(ValueError):
    """A parameters file that cannot be used; the text names every fault."""


@dataclass(frozen=True, slots=True)
class FlapParameters:
    """Points, thresholds and times of the flap score."""

    half_life_minutes: float = 60.0
    suppress_above: float = 3_000.0
    """A broker is flapping when its penalty rises above this: four quick outages, or one every 35 minutes for long."""
    reuse_below: float = 1_000.0
    """The flag is cleared when the penalty has fallen below this."""
    ceiling: float = 16_000.0
    """No penalty rises above this, so that a flag clears at most four half-lives after the last event."""
    points_outage: float = 1_000.0
    """EXPIRED or PROBE_FAILED seen by every observer; charged once an outage."""
    points_restarted: float = 1_000.0
    """A new incarnation without an outage."""
    points_moved: float = 500.0
    """ADDRESS_CHANGED or ROLE_CHANGED."""
    points_suspected: float = 300.0
    """Suspected, and back with a beat."""
    points_shutdown: float = 200.0
    """A polite SHUTDOWN that is back within `shutdown_return_seconds`."""
    points_late: float = 100.0
    """A late beat."""
    shutdown_return_seconds: float = 300.0
    same_sign_seconds: float = 600.0
    """Suspicions and late beats that several observers saw within such a slot of time are charged as the observer that
    saw most of them saw them."""
    degraded_points: float = 300.0
    """A broker charged with this much in a day, and not flapping, is degraded."""
    chronic_days: int = 3
    """A broker that flapped on so many of the last seven days is chronic."""
    dead_after_hours: float = 24.0
    """A broker down for longer, and not back at the day's end, is dead."""

    def __post_init__(self) -> None:
        """Raise `ParametersError` naming every value that makes no sense."""
        faults = [
            f"{field.name} = {getattr(self, field.name)!r} is not a number of at least 0"
            for field in fields(self)
            if not _is_count(getattr(self, field.name))
        ]
        if not faults:
            faults = list(self._relations())
        if faults:
            raise ParametersError("; ".join(faults))

    def _relations(self) -> list[str]:
        rules = (
            # Below that, a day has so many half-lives that its doublings leave a double's range.
            (self.half_life_minutes >= 5, f"half_life_minutes = {self.half_life_minutes} is below 5"),
            (self.reuse_below < self.suppress_above, "reuse_below is not below suppress_above"),
            (self.suppress_above < self.ceiling, "suppress_above is not below ceiling"),
            (self.same_sign_seconds >= 1, "same_sign_seconds is below 1"),
            (1 <= self.chronic_days <= 7, f"chronic_days = {self.chronic_days} is not 1 to 7"),
        )
        return [fault for holds, fault in rules if not holds]

    def as_dict(self) -> dict[str, float | int]:
        return asdict(self)


def _is_count(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf


def load(path: Path | None) -> FlapParameters:
    """Read the ``[flapping]`` table of a TOML file over the defaults; None gives the defaults.

    Raises:
        ParametersError: the file is no TOML, or holds a name or value we do not know.
        OSError: the file cannot be read.
    """
    if path is None:
        return FlapParameters()
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ParametersError(f"{path}: {error}") from error
    known = {field.name for field in fields(FlapParameters)}
    table = content.get("flapping", {})
    unknown = sorted(set(content) - {"flapping"})
    if not isinstance(table, dict):
        raise ParametersError(f"{path}: flapping is not a table")
    unknown += sorted(f"flapping.{name}" for name in set(table) - known)
    if unknown:
        raise ParametersError(f"{path}: unknown: {', '.join(unknown)}; known: {', '.join(sorted(known))}")
    try:
        return FlapParameters(**table)
    except ParametersError as error:
        raise ParametersError(f"{path}: {error}") from error
