"""RocketMQ's remoting protocol without I/O: frames, headers and bodies, shared by name server and client. Pure."""
