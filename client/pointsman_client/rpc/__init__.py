"""Channels to name servers and agents, on grpc.aio or on gRPC's own threads, and translation of their errors."""
