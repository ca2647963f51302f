"""DataFrame to DataFrame, and nothing else: no session, no files."""
