"""RocketMQ's own wire: a server on the same core as ``rpc``, with the shared codec."""
