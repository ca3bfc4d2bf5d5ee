"""What is said about sets of half messages on `$half-resolve/<group>`, as values.

subject        body: amqp-value, a map
seal           {producer, epoch, set, count, checksum}
commit-epoch   {producer, epoch, sets: [{set, count, checksum}, ...]}
void           {producer, epoch?, sets: [set, ...]}
status         {producer, epoch?}, reply-to = a queue that the asker reads
   reply       correlation-id as asked, subject "ok", body: {decided, decided_at_ms?,
               winners: [{set, count, checksum}], latest?, sets: [{set, epoch, state, count}]}

Numbers may be of any integral type. A checksum is a number modulo 2^64, so that a client that has no unsigned
numbers sends a negative one; `read_...` raise HalfRefused, which says what was expected.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import attrs

from amqp_broker.coordinator import CHECKSUM_MODULUS, EPOCH_MAX, StagedSet, Winner
from amqp_broker.frames import (
    AmqpValue,
    Byte,
    Int,
    Long,
    Message,
    Properties,
    Short,
    Symbol,
    Ubyte,
    Uint,
    Ulong,
    Ushort,
    encode_message,
)
from amqp_broker.halves.addresses import is_set_name
from amqp_broker.halves.requests import HalfRefused

SEAL: Final = "seal"
COMMIT_EPOCH: Final = "commit-epoch"
VOID: Final = "void"
STATUS: Final = "status"
SET_SUBJECTS: Final = (SEAL, COMMIT_EPOCH, VOID, STATUS)
REPLY_SUBJECT: Final = "ok"
WINNERS_MAX: Final = 10_000  # sets that one message names: as many tasks has no stage of a sensible job

_INTEGERS: Final = (Ulong, Long, Uint, Int, Ushort, Short, Ubyte, Byte)


@attrs.frozen
class SealRequest:
    """One set is complete: so many messages with this sum of checksums."""

    producer: str
    epoch: int
    set_id: str
    count: int
    checksum: int


@attrs.frozen
class CommitRequest:
    """These sets are the epoch, in this order."""

    producer: str
    epoch: int
    winners: tuple[Winner, ...]


@attrs.frozen
class VoidRequest:
    """These sets are not wanted; `epoch` is where to look for a decision that says otherwise (None: in the
    latest ones).
    """

    producer: str
    epoch: int | None
    sets: tuple[str, ...]


@attrs.frozen
class StatusRequest:
    """What is decided, and what is staged."""

    producer: str
    epoch: int | None
    correlation_id: Any
    reply_to: Any


SetRequest = SealRequest | CommitRequest | VoidRequest | StatusRequest


def read_set_request(message: Message, properties: Properties) -> SetRequest | None:
    """The request that a message is; None if its subject is none of these. Raises HalfRefused, and
    DecodeError.
    """
    subject = properties.subject
    if subject not in SET_SUBJECTS:
        return None
    fields = _fields(message)
    producer = fields.get("producer")
    if not is_set_name(producer):
        raise _invalid("producer", "1 to 128 of A-Z a-z 0-9 . _ -", producer)
    assert isinstance(producer, str)
    if subject == SEAL:
        return SealRequest(producer, _number(fields, "epoch", EPOCH_MAX), *_one_set(fields))
    if subject == COMMIT_EPOCH:
        return CommitRequest(producer, _number(fields, "epoch", EPOCH_MAX), _winners(fields))
    epoch = None if fields.get("epoch") is None else _number(fields, "epoch", EPOCH_MAX)
    if subject == VOID:
        return VoidRequest(producer, epoch, _set_ids(fields))
    return StatusRequest(producer, epoch, properties.correlation_id, properties.reply_to)


def _fields(message: Message) -> dict[str, Any]:
    sections = message.body_sections()
    value = sections[0].value if len(sections) == 1 and isinstance(sections[0], AmqpValue) else None
    if not isinstance(value, dict):
        raise HalfRefused("amqp:invalid-field", "expected one amqp-value section with a map as body")
    return _by_name(value)


def _by_name(found: dict[Any, Any]) -> dict[str, Any]:
    return {key.value if isinstance(key, Symbol) else key: value for key, value in found.items()}


def _invalid(name: str, expected: str, got: object) -> HalfRefused:
    return HalfRefused("amqp:invalid-field", f"{name}: expected {expected}, got {got!r:.80}")


def _number(fields: dict[str, Any], name: str, most: int) -> int:
    value = fields.get(name)
    number = value.value if isinstance(value, _INTEGERS) else value
    if type(number) is not int or not 0 <= number <= most:
        raise _invalid(name, f"a number from 0 to {most}", value)
    return number


def _checksum(fields: dict[str, Any]) -> int:
    value = fields.get("checksum")
    number = value.value if isinstance(value, _INTEGERS) else value
    if type(number) is not int:
        raise _invalid("checksum", "a number modulo 2^64", value)
    return number % CHECKSUM_MODULUS


def _one_set(fields: dict[str, Any]) -> tuple[str, int, int]:
    set_id = fields.get("set")
    if not is_set_name(set_id):
        raise _invalid("set", "1 to 128 of A-Z a-z 0-9 . _ -", set_id)
    assert isinstance(set_id, str)
    return set_id, _number(fields, "count", EPOCH_MAX), _checksum(fields)


def _list(fields: dict[str, Any]) -> list[Any]:
    value = fields.get("sets")
    if not isinstance(value, (list, tuple)) or len(value) > WINNERS_MAX:
        raise _invalid("sets", f"a list of at most {WINNERS_MAX}", value)
    return list(value)


def _winners(fields: dict[str, Any]) -> tuple[Winner, ...]:
    winners: dict[str, Winner] = {}
    for each in _list(fields):
        if not isinstance(each, dict):
            raise _invalid("sets", "maps {set, count, checksum}", each)
        winner = Winner(*_one_set(_by_name(each)))
        if winner.set_id in winners:
            raise _invalid("sets", "each set once", winner.set_id)
        winners[winner.set_id] = winner
    return tuple(winners.values())


def _set_ids(fields: dict[str, Any]) -> tuple[str, ...]:
    found = _list(fields)
    for each in found:
        if not is_set_name(each):
            raise _invalid("sets", "ids of sets: 1 to 128 of A-Z a-z 0-9 . _ -", each)
    return tuple(dict.fromkeys(found))


def write_status(
    correlation_id: Any, decided_at_ms: int | None, winners: Iterable[Winner], latest: int | None,
    sets: Iterable[StagedSet],
) -> bytes:  # fmt: skip
    """The reply to a status request; `decided_at_ms` None: there is no decision of the epoch asked about."""
    body: dict[str, Any] = {
        "decided": decided_at_ms is not None,
        "winners": [
            {"set": each.set_id, "count": Ulong(each.count), "checksum": Ulong(each.checksum)}
            for each in winners
        ],
        "sets": [
            {
                "set": each.set_id,
                "epoch": Ulong(each.epoch),
                "state": "" if each.state is None else each.state.value,
                "count": Ulong(each.count),
            }
            for each in sets
        ],
    }
    if decided_at_ms is not None:
        body["decided_at_ms"] = Long(decided_at_ms)
    if latest is not None:
        body["latest"] = Ulong(latest)
    return encode_message(
        properties=Properties(correlation_id=correlation_id, subject=REPLY_SUBJECT), body=AmqpValue(body)
    )
