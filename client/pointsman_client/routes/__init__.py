"""Lookup, watch, poll and cache of routes; :class:`NameServerClient` is the public API."""
