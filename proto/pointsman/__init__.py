"""What all parts of Pointsman share: the gRPC wire, RocketMQ's, grammars of names, the clock, and what daemons need."""

__version__ = "0.2.0.dev0"
