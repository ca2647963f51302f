"""The gRPC server of both daemons: handlers, health, reflection, start and stop."""
