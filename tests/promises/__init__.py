"""What was promised, and whether it is kept: the books and the judgements of all proofs.

A store that was told verbs is judged by a `book`: a store in memory that was told the same. What clients are
told: `messages` says who may get a message, `fates` how a transaction ended, and `delivered` what a queue may
hold in the end.
"""
