"""A broker that is used by everything at once for an hour or a night: nothing of it may grow."""
