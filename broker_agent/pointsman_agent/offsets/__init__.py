"""Committed offsets: the service, the stores that outlive the agent, and what brings one to the other."""
