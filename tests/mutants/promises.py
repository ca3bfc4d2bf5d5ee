"""What transactions promise, by short names: each has at least one seeded fault that breaks it.

RULES are what the standard fixes (part 4), in the order of the design; CHOICES are the broker's own where the
standard is open; DURABILITY is what a discharge means for the disk; WORK is what goes without saying.
"""

from __future__ import annotations

from typing import Final

RULES: Final[dict[str, str]] = {
    "1": "a coordinator link is never resumed",
    "2": "a declare or discharge that was sent settled: the coordinator detaches with an error",
    "3": "a failed declare or discharge: rejected unless the control link's source excludes it, else detach",
    "4": "a discharge with fail=true always succeeds",
    "5": "the end of a control link, its session or connection rolls back what it declared, at once",
    "6": "a half sent delivery at discharge, or another's delivery: the control link is terminated",
    "7": "an unsettled post has its transactional-state before the discharge is accepted",
    "8": "a settled post that cannot be done: the transaction cannot commit",
    "9": "rollback of a retirement: unsettled stays acquired by the link, settled gets the default outcome",
    "10": "rollback of an acquisition undoes the acquisition and the outcome",
    "11": "a link that does not acquire in transactions is terminated with not-implemented; ours do",
    "12": "the txn-id of a link endpoint is cleared at discharge, its credit stays",
    "13": "global-id only with the capability for distributed transactions",
}

CHOICES: Final[dict[str, str]] = {
    "capabilities": "exactly those that work are offered",
    "unknown id": "the link that carried it is detached; nothing is stored outside of it, nothing settled",
    "foreign control link": "a discharge through another control link is unknown-id",
    "form of the id": "16 random bytes, never used twice in the life of a store",
    "timeout": "rolls back at once, frees everything; the next use says so; the connection lives",
    "rejected post": "a post that is rejected cannot be left out of the commit",
    "lost part": "what nobody could be given (dropped, unknown, decided elsewhere) cannot be left out either",
    "delivery-count": "after a rollback: unchanged, or as the default outcome says",
    "place": "what returns to its queue has its old place",
    "no outcome": "acquired without an outcome at commit stays acquired and unsettled",
    "released": "deliveries of a rolled back acquisition are settled as released",
    "order": "the settlements first, then the outcome of the discharge, in one write",
    "visibility": "posts are seen by nobody before the commit, browsers included",
    "capacity and ttl": "capacity is reserved at the post; ttl is judged at commit",
    "control credit": "at least 10, replenished at once",
    "last wins": "of two dispositions in one transaction for one delivery the last one counts",
    "limits": "operations, bytes, live transactions: resource-limit-exceeded, and it can only roll back",
    "isolation": "what is acquired comes to no other link; a browser sees it until the commit",
    "one commit": "everything of a discharge is one store commit",
}

DURABILITY: Final[dict[str, str]] = {
    "after the commit": "a discharge is accepted only after the store's COMMIT returned",
    "all or nothing": "after a crash all of a transaction is there, or nothing",
    "store error": "an error at COMMIT: rejected with rollback, undone in memory too, and the broker goes on",
    "outcome record": "the record of a discharge is part of its commit",
}

WORK: Final[dict[str, str]] = {
    "requests": "a control link takes declares and discharges, and answers anything else with an error (4.2)",
    "outcomes": "a commit applies each outcome as it is applied outside of transactions (4.4.2, 4.4.3)",
    "question": "who lost the answer to a discharge can ask how it ended",
}

PROMISES: Final = {**RULES, **CHOICES, **DURABILITY, **WORK}
