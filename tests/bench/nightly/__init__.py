"""How long the nightly report takes: a large day, a growing history, one broker that never stays; and an oracle."""
