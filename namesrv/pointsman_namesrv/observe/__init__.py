"""pointsman-observe: the history of a fleet whose name server is RocketMQ's own, by polling that one."""
