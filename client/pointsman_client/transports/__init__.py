"""How messages come to brokers and from them, one module a transport; ``transport.py`` says what it must do."""
