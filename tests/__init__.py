"""The proofs of the broker, one directory for each room and for each kind of proof."""
