"""RocketMQ's own wire: a shell around the shared codec, beside ``rpc`` and on the same core."""
