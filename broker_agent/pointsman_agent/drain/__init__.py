"""Take the broker out of service in steps, and report the agent's state to operators."""
