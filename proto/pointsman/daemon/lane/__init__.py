"""gRPC over our own HTTP/2: a listener beside grpcio's, for the same handlers."""
