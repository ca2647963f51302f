"""What rows of history mean: lines to rows, rows to the route of a topic at a moment.

The name server and the report use it, so both give one answer to one question. Standard library only, and no I/O.
"""
