"""Measurements, run by hand: never timed tests."""
