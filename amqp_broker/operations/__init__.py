"""What a commit makes true: operations, batches of them, and the writer that commits them in groups."""
