"""The registered brokers, kept on disk, so that a restarted server knows its routes before a heartbeat arrives."""
