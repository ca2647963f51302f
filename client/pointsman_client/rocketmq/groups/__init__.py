"""Coordination of a group by RocketMQ brokers themselves: members, queue locks, offsets."""
