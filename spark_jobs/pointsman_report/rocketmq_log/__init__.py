"""From the log of RocketMQ's own name server to a history that the report reads. Needs neither Spark nor Java."""
