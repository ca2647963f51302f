"""ConsumerGroupService: who is in the consumer groups of this broker, told to their members."""
