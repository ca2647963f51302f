"""What brokers and operators said, kept on disk, so that a restarted server knows its routes before anybody speaks."""
