"""The conformance suite against brokers that misbehave: a step of `.ci/run`, named on the command line."""
