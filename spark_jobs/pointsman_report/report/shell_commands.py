"""Commands of ``pointsman-report`` that the page shows, to be copied into a shell."""

from __future__ import annotations

from shlex import quote

from pointsman.names import printable
from pointsman_report.report.table_rows import Key

PROGRAM = "pointsman-report"


def explain_command(topic: str, at: str, *, cluster: str, warehouse: str) -> str:
    """Return the command that explains a topic's route at a moment (RFC 3339)."""
    return _line("explain", f"--at={at}", f"--cluster={cluster}", f"--warehouse={warehouse}", "--", topic)


def history_command(broker: Key, *, day: str, warehouse: str, days: int = 7) -> str:
    """Return the command that shows a broker up to a day (YYYY-MM-DD); empty if its name would be read as another."""
    cluster, name, number = broker
    if not (cluster and name) or "/" in cluster + name:
        return ""
    named = f"{cluster}/{name}/{number}"
    return _line("history", f"--to={day}", f"--days={days}", f"--warehouse={warehouse}", "--", named)


def _line(*words: str) -> str:
    """Quote the words for a shell; empty if one cannot be shown as it is."""
    if any(word != printable(word) for word in words):
        return ""
    optional = words if words[-1].startswith("-") else [word for word in words if word != "--"]
    return " ".join(quote(word) for word in (PROGRAM, *optional))
