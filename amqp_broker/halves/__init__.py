"""Half messages: their nodes, what is asked of them, check-back, administration."""
