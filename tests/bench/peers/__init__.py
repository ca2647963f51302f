"""What a Python team would pick instead of this client, measured beside it."""
