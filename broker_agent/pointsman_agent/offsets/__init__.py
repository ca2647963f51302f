"""Committed offsets: the service, the stores, and the flusher between memory and store."""
