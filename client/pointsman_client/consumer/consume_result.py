"""What a listener may answer."""

from __future__ import annotations

from enum import StrEnum


class ConsumeResult(StrEnum):
    """A listener's answer; None is taken as SUCCESS."""

    SUCCESS = "SUCCESS"
    RECONSUME_LATER = "RECONSUME_LATER"
    """Try it again later: a concurrent consumer sends it back; an ordered one takes it as SUSPEND."""
    SUSPEND = "SUSPEND"
    """Let the queue rest, then try the same message again; a concurrent consumer takes it as RECONSUME_LATER."""
