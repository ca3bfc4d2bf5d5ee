"""The examples and the snippets of the documents, run as they stand."""
