"""Seeded faults: each must make a named suite fail, or that suite is the bug."""
