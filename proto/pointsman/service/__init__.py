"""What every daemon needs: configuration, clock, logs, metrics and health over HTTP, its life as a process."""
