"""Measure the queues of the broker, and report to the name servers."""
