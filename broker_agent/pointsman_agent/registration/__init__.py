"""One loop for each name server: makes what it holds of this broker equal to what the broker is."""
