"""The name server daemon: a pure core (``core``) inside thin shells (``rpc``, ``history``), joined in ``app``."""
