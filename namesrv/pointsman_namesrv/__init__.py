"""The name server daemon: a pure core (``core``) inside thin shells (``rpc``, ``history``), joined in ``app``."""

__version__ = "0.2.0.dev0"
