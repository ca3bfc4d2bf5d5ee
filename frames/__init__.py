"""Room `frames`."""
