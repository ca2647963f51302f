"""What all parts of Pointsman share: the wire, what stands on it, and what every daemon needs."""

__version__ = "0.1.0"
