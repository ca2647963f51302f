"""The gRPC wire beside its messages: refusals and error details, channels and their credentials, times, JSON."""
