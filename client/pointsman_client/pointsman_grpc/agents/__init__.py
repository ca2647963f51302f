"""Coordination at the brokers' agents: group membership, queue locks, offsets."""
