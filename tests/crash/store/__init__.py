"""A process with a store, killed at named points: what was committed is there, wholly."""
