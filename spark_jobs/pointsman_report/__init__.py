"""The nightly report over the history of name servers: commands, tables, and the jobs that fill them."""

__version__ = "0.2.0.dev0"
