"""How long the nightly report takes: a large day, a growing history, one broker that flaps all day; and an oracle."""
