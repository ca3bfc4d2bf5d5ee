"""Room `conformance`."""
