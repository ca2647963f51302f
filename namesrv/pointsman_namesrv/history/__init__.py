"""What happened, kept: events become rows, rows become files that the nightly jobs read."""
