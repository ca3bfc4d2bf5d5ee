"""Proofs that what was acknowledged survives a power cut, an I/O error and a full disk."""
