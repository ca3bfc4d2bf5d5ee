"""Filters of a source (3.5.8): which messages a link is given."""
