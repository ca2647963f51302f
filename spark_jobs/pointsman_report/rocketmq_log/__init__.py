"""Import of logs of RocketMQ's own name server as history. Needs neither Spark nor Java."""
