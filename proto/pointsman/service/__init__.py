"""What every daemon needs: configuration, command line, logs, metrics and health over HTTP, its life as a process."""

import os

# gRPC's C core writes lines of its own to standard error, which are no JSON; what matters comes as an exception too.
# It reads this when it is imported, so it must be set before; only daemons import this package.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
