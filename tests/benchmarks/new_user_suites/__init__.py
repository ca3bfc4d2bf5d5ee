"""Three suites of a hundred tests, as a user would write them from the documentation alone."""
