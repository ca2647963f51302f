"""The registered brokers, stored on disk, so that a restarted server has its routes before the first heartbeat."""
