"""All scenarios of the conformance suite, whole runs: a step of `.ci/run`, named on the command line."""
