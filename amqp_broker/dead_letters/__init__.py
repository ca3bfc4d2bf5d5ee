"""What becomes of messages that nobody accepts, and when one that failed is offered again."""
