"""Measures the queues of the broker, and tells the name servers."""
