"""What operators set, on the disk before it is acknowledged."""
