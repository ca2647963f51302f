"""Registration of the broker: one loop for each name server."""
