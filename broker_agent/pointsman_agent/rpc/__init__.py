"""What every service of the agent has in common: the gRPC server, refusals and their statuses, pages."""
