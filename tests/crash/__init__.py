"""Proofs that what was acknowledged survives the end of the whole broker at any moment."""
