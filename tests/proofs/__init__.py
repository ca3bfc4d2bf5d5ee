"""What takes seconds for one test: named on the command line, and a step of `.ci/run`."""
