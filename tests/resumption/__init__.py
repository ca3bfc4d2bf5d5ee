"""Links that are resumed."""
