"""``pointsmanctl``: inspect and administer name servers. Requires the extra ``cli`` (click, rich)."""

__version__ = "0.1.0"
