"""What the daemons are made of: their process, TLS, access control, gRPC server, and metrics and health over HTTP."""

import os

# gRPC's C core writes its own lines to standard error, which are not JSON; what matters is raised as an exception too.
# It reads this at import, so it must be set before; only daemons import this package.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
