"""Certificates of servers and callers: loaded, replaced while running, denied, and checked on the command line."""
