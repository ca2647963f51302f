"""RocketMQ's remoting protocol, sans I/O: frames, headers and bodies, shared by name server and client. Pure."""
