"""What was promised, and whether it is kept: the books and the judgements of all proofs.

A store that was told verbs is judged by a `book`: a store in memory that was told the same. Who may get a
message is judged by `messages`.
"""
