"""Shared by the agent's services: the gRPC server, refusals and their statuses, pages."""
