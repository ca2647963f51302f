"""Transports of messages to and from brokers, one module each; the interface is in ``transport.py``."""
