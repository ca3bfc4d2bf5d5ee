"""Room `persistence`."""
