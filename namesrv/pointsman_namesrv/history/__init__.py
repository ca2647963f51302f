"""The history: events become rows, and rows become files that the nightly jobs read."""
