"""Name servers, agents and RocketMQ brokers: calls to them, and what their responses contain. Knows no output."""
