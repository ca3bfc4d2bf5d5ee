"""Topics: what is sent to one is copied to each of its subscriptions, and to the queues bound to it."""
