"""The sidecar beside a broker: tells each name server that the broker lives and which topics it holds."""

__version__ = "0.1.0"
