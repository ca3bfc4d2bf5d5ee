"""Queues in which a new message puts older ones out, in the commit of its posting: rings, last values."""
