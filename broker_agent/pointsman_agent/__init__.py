"""The sidecar of a broker: registers it with every name server, and coordinates its consumer groups."""

__version__ = "0.2.0.dev0"
