"""``pointsmanctl``: inspect and administer name servers. Requires the extra ``cli`` (click, rich)."""

__version__ = "0.2.0.dev0"
