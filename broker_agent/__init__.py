"""The sidecar beside a broker: tells each name server that the broker lives and which topics it holds."""
