"""``pointsmanctl``: what operators ask name servers. Needs the extra ``cli`` (click, rich)."""

__version__ = "0.1.0"
