"""Options and arguments of commands, their completion, and the invocation that they give."""

DEFAULT_TIMEOUT_SECONDS = 3.0
"""Of --timeout; here, so that its help needs no gRPC."""
