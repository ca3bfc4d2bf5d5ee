"""Room `links`."""
