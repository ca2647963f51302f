"""ConsumerGroupService: the members of this broker's consumer groups, pushed to all members."""
