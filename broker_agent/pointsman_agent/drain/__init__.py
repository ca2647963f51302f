"""Taking the broker out of service in steps, and what operators ask the agent."""
