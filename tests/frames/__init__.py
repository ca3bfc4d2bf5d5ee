"""Tests of the room `frames`."""
