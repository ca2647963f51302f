"""Messages in memory, for tests: ``memory_transport.py``."""

from pointsman_client.memory.memory_transport import MemoryTransport

__all__ = ["MemoryTransport"]
