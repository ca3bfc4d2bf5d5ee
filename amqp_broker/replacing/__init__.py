"""Queues in which a new message takes the place of an older one, in the commit of its posting."""
