"""One module for each command, or for commands on the same things; and what several of them do."""
