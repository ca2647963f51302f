"""Operators' settings, written to disk before they are acknowledged."""
