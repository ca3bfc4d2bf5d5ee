"""The conformance suite against brokers that misbehave, in processes: a step of `.ci/run`, named on the command line."""
