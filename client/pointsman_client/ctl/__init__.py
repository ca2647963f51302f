"""``pointsmanctl``: what operators ask name servers. Needs the extra ``cli`` (click, rich)."""
