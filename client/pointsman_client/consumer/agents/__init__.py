"""What a consumer has of the agents beside the brokers: its place in the group, queue locks, offsets."""
