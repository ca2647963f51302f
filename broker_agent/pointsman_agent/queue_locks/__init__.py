"""Locks of the broker's queues for groups that consume in order."""
