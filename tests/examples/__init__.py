"""The examples and the README's snippets, run as they stand."""
