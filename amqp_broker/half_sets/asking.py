"""Sets that are not decided are asked about on `$half-check/<group>`, like half messages: a check of the
broker without a body, whose application properties say which set it is about.

half_set, half_producer, half_epoch, half_count, half_state (open, sealed, prepared), half_group,
half_attempt, half_age_ms, half_deadline; half_coordinator where another store decides, half_store where
another has the messages; subject "check-set"; no correlation-id, so that nobody takes it for a half-id

On `by-outcome` rejected voids the set; everywhere a `void` message does. Nothing else decides anything.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, Final

from amqp_broker.coordinator import HalfGroup, HalfSettings
from amqp_broker.coordinator.half_sets import OpenSet, StagedSet, set_key
from amqp_broker.frames import Int, Long, Properties, Ulong, encode_message
from amqp_broker.halves.addresses import resolve_address

if TYPE_CHECKING:
    from amqp_broker.halves.halves import Halves

SUBJECT: Final = "check-set"


def write_set_check(group: str, asked: OpenSet, now_ms: int, deadline_ms: int) -> bytes:
    """The check about a set, encoded; `deadline_ms` is by the clock on the wall."""
    staged = asked.staged
    named: dict[str, Any] = {
        "half_set": staged.set_id,
        "half_producer": staged.producer.name,
        "half_epoch": Ulong(staged.epoch),
        "half_count": Ulong(staged.count),
        "half_state": "" if staged.state is None else staged.state.value,
        "half_group": group,
        "half_attempt": Int(asked.attempts + 1),
        "half_age_ms": Long(asked.age_ms(now_ms)),
        "half_deadline": Long(deadline_ms),
    }
    if staged.coordinator:
        named["half_coordinator"] = staged.coordinator
    if staged.store:
        named["half_store"] = staged.store
    properties = Properties(message_id=str(uuid.uuid4()), reply_to=resolve_address(group), subject=SUBJECT)
    return encode_message(properties=properties, application_properties=named, body=b"")


class SetAsking:
    """Has the groups ask about sets from their beginning to their end."""

    def __init__(self, halves: Halves) -> None:
        self._halves = halves

    def begin(self, staged: StagedSet) -> None:
        """Ask about a set, when the time of a first check-back is over."""
        name = staged.producer.group
        group = self._halves.groups.setdefault(name, HalfGroup(name, HalfSettings()))
        first_ms = staged.begun_at_ms + group.settings.first_check_ms
        asked = OpenSet(staged, staged.due_ms if staged.attempts else first_ms)
        asked.attempts = staged.attempts
        group.ask_about(asked)
        self._halves.rearm(group)

    def for_ever(self, staged: StagedSet) -> None:
        """No age ends the set any more: go on asking about it."""
        group = self._halves.groups.get(staged.producer.group)
        asked = None if group is None else group.sets.get(set_key(staged))
        if asked is not None:
            asked.deadline_ms = staged.deadline_ms

    def end(self, staged: StagedSet) -> None:
        """The set was committed or voided: nobody answers a check-back about it any more."""
        group = self._halves.groups.get(staged.producer.group)
        asked = None if group is None else group.sets.pop(set_key(staged), None)
        if asked is not None:
            self._halves.take_back(asked)
