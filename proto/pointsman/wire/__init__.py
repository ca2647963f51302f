"""What stands on the wire beside the messages: names, error details, channel options, backoff; and the clock."""
