"""Room `coordinator`."""
