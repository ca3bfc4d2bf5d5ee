"""What stands in the store's journal, as `$events` shows it: types and fields of the wire.

Message events are stored under their types. Those of half messages and their sets have other names:

    half.put          half        half.committed, half.rolled_back    decide, outcome committed or rolled-back
    half.asked        check       half.parked                         park
    half.answered     answer      half.resumed                        resume
    set.sealed        seal        epoch.decided                       decide, outcome committed
    set.voided        void
"""

from __future__ import annotations

from typing import Final

from amqp_broker.persistence import Event

Fields = dict[str, str | int]

TYPES: Final[dict[str, str]] = {
    "half.put": "half",
    "half.asked": "check",
    "half.answered": "answer",
    "half.committed": "decide",
    "half.rolled_back": "decide",
    "half.parked": "park",
    "half.resumed": "resume",
    "set.sealed": "seal",
    "set.voided": "void",
    "epoch.decided": "decide",
}
INSIDE: Final = "who"
"""A field that administrators see, and that is none of the wire's."""
OUTCOMES: Final[dict[str, str]] = {"half.committed": "committed", "half.rolled_back": "rolled-back"}
NAMES: Final[dict[str, str]] = {"destination": "address", "queue": "address", "attempts": "attempt"}
"""Fields of half.<what> that have another name on the wire."""


def event_type(kind: str) -> str:
    """The type of a stored kind."""
    return TYPES.get(kind, kind)


def event_fields(event: Event) -> Fields:
    """The fields of a stored event, by the names of the wire."""
    if event.kind not in TYPES:
        return event.fields
    fields: Fields = {NAMES.get(name, name): value for name, value in event.fields.items() if name != INSIDE}
    outcome = OUTCOMES.get(event.kind)
    if outcome is not None:
        fields["outcome"] = outcome
    return fields
