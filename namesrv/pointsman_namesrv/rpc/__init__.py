"""gRPC around the core: decode, one call of the core, hand the events on, encode."""
