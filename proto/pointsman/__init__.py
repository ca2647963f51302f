"""What all parts of Pointsman share: the wire, code on it, and the common parts of daemons."""

__version__ = "0.1.0"
