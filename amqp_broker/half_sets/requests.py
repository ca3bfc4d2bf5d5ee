"""What is said about sets of half messages on `$half-resolve/<group>`, as values.

subject        body: amqp-value, a map
seal           {producer, epoch, set, count, checksum, coordinator? | store?}
commit-epoch   {producer, epoch, sets: [{set, count, checksum, store?}, ...], coordinator?}
void           {producer, epoch?, sets: [set, ...], coordinator? | store?}
status         {producer, epoch?}, reply-to = a queue that the asker reads
   reply       correlation-id as asked, subject "ok", body: {store_id, decided, decided_at_ms?, coordinator?,
               winners: [{set, count, checksum, store?}], latest?, latest_coordinator?,
               sets: [{set, epoch, state, count, checksum?, store?, coordinator?}]}

`sets` may be a string, for clients whose maps have no lists in them (MapMessage of JMS): a line for each
set, `set count checksum store?` to commit and `set` to void.

`coordinator` is the store that decides and `store` the one that has a set's messages, where it is not this
one.

Numbers may be of any integral type. A checksum is a number modulo 2^64, so that a client that has no unsigned
numbers sends a negative one; `read_...` raise NodeRefused, which says what was expected.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

import attrs

from amqp_broker.coordinator.half_sets import CHECKSUM_MODULUS, EPOCH_MAX, StagedSet, Winner
from amqp_broker.frames import (
    INTEGERS,
    AmqpValue,
    Long,
    Message,
    Properties,
    Symbol,
    Ulong,
    encode_message,
)
from amqp_broker.halves.addresses import is_set_name
from amqp_broker.nodes.refusals import NodeRefused
from amqp_broker.persistence import Decision

SEAL: Final = "seal"
COMMIT_EPOCH: Final = "commit-epoch"
VOID: Final = "void"
STATUS: Final = "status"
SET_SUBJECTS: Final = (SEAL, COMMIT_EPOCH, VOID, STATUS)
REPLY_SUBJECT: Final = "ok"
WINNERS_MAX: Final = 10_000  # sets that one message names: as many tasks has no stage of a sensible job

_LINE: Final = re.compile(r"(\S+) ([0-9]{1,20}) (-?[0-9]{1,20})(?: (\S+))?", re.ASCII)


@attrs.frozen
class SealRequest:
    """One set is complete: it has so many messages with this sum of checksums."""

    producer: str
    epoch: int
    set_id: str
    count: int
    checksum: int
    coordinator: str = ""
    store: str = ""


@attrs.frozen
class CommitRequest:
    """These sets are the epoch, in this order; so `coordinator` decided, if it is not this store."""

    producer: str
    epoch: int
    winners: tuple[Winner, ...]
    coordinator: str = ""


@attrs.frozen
class VoidRequest:
    """These sets are not wanted; `epoch` is where to look for a decision that says otherwise (None: in the
    latest ones).

    `coordinator`: that one voted that they never win. `store`: that one has them, and is to be given it.
    """

    producer: str
    epoch: int | None
    sets: tuple[str, ...]
    coordinator: str = ""
    store: str = ""


@attrs.frozen
class StatusRequest:
    """The question what is decided, and what is staged."""

    producer: str
    epoch: int | None
    correlation_id: Any
    reply_to: Any


SetRequest = SealRequest | CommitRequest | VoidRequest | StatusRequest


def read_set_request(message: Message, properties: Properties, own_store: str = "") -> SetRequest | None:
    """The request that a message is; None if its subject is none of these. A coordinator or store that is
    `own_store` is as none. Raises NodeRefused, and DecodeError.
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
        epoch = _number(fields, "epoch", EPOCH_MAX)
        return SealRequest(producer, epoch, *_one_set(fields), *_elsewhere(fields, own_store))
    if subject == COMMIT_EPOCH:
        epoch = _number(fields, "epoch", EPOCH_MAX)
        return _commit_request(producer, epoch, fields, own_store)
    asked_epoch = None if fields.get("epoch") is None else _number(fields, "epoch", EPOCH_MAX)
    if subject == VOID:
        coordinator, store = _elsewhere(fields, own_store)
        if store and asked_epoch is None:
            raise _invalid("epoch", "a number, since there is a store", None)
        return VoidRequest(producer, asked_epoch, _set_ids(fields), coordinator, store)
    return StatusRequest(producer, asked_epoch, properties.correlation_id, properties.reply_to)


def _commit_request(producer: str, epoch: int, fields: dict[str, Any], own_store: str) -> CommitRequest:
    coordinator = _store_id(fields, "coordinator", own_store)
    winners = _winners(fields, own_store)
    if coordinator:
        for winner in winners:
            if winner.store:
                raise _invalid("sets", "sets of this store, since there is a coordinator", winner.store)
    return CommitRequest(producer, epoch, winners, coordinator)


def _elsewhere(fields: dict[str, Any], own_store: str) -> tuple[str, str]:
    coordinator = _store_id(fields, "coordinator", own_store)
    store = _store_id(fields, "store", own_store)
    if coordinator and store:
        raise _invalid("coordinator", "a coordinator or a store", coordinator)
    return coordinator, store


def _store_id(fields: dict[str, Any], name: str, own_store: str) -> str:
    value = fields.get(name)
    if value is None or value == own_store:
        return ""
    if not is_set_name(value):
        raise _invalid(name, "the log of a store: 1 to 128 of A-Z a-z 0-9 . _ -", value)
    assert isinstance(value, str)
    return value


def _fields(message: Message) -> dict[str, Any]:
    sections = message.body_sections()
    value = sections[0].value if len(sections) == 1 and isinstance(sections[0], AmqpValue) else None
    if not isinstance(value, dict):
        raise NodeRefused("amqp:invalid-field", "expected one amqp-value section with a map as body")
    return _by_name(value)


def _by_name(found: dict[Any, Any]) -> dict[str, Any]:
    return {key.value if isinstance(key, Symbol) else key: value for key, value in found.items()}


def _invalid(name: str, expected: str, got: object) -> NodeRefused:
    return NodeRefused("amqp:invalid-field", f"{name}: expected {expected}, got {got!r:.80}")


def _number(fields: dict[str, Any], name: str, most: int) -> int:
    value = fields.get(name)
    number = value.value if isinstance(value, INTEGERS) else value
    if type(number) is not int or not 0 <= number <= most:
        raise _invalid(name, f"a number from 0 to {most}", value)
    return number


def _checksum(fields: dict[str, Any]) -> int:
    value = fields.get("checksum")
    number = value.value if isinstance(value, INTEGERS) else value
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
    if isinstance(value, str):
        value = value.split("\n") if value else []
        value = value if value[-1:] != [""] else value[:-1]  # the last line may have its end
    if not isinstance(value, (list, tuple)) or len(value) > WINNERS_MAX:
        raise _invalid("sets", f"a list of at most {WINNERS_MAX}", value)
    return list(value)


def _winners(fields: dict[str, Any], own_store: str) -> tuple[Winner, ...]:
    winners: dict[str, Winner] = {}
    in_lines = isinstance(fields.get("sets"), str)
    for each in _list(fields):
        if not in_lines and not isinstance(each, dict):
            raise _invalid("sets", "maps {set, count, checksum}", each)
        named = _of_line(each) if in_lines else _by_name(each)
        winner = Winner(*_one_set(named), _store_id(named, "store", own_store))
        if winner.set_id in winners:
            raise _invalid("sets", "each set once", winner.set_id)
        winners[winner.set_id] = winner
    return tuple(winners.values())


def _of_line(line: str) -> dict[str, Any]:
    found = _LINE.fullmatch(line)
    if found is None:
        raise _invalid("sets", "lines of set, count, checksum and, if it is elsewhere, store", line)
    set_id, count, checksum, store = found.groups()
    return {"set": set_id, "count": int(count), "checksum": int(checksum), "store": store}


def _set_ids(fields: dict[str, Any]) -> tuple[str, ...]:
    found = _list(fields)
    for each in found:
        if not is_set_name(each):
            raise _invalid("sets", "ids of sets: 1 to 128 of A-Z a-z 0-9 . _ -", each)
    return tuple(dict.fromkeys(found))


def write_status(
    correlation_id: Any, own_store: str, decided: Decision | None, latest: Decision | None,
    sets: Iterable[StagedSet],
) -> bytes:  # fmt: skip
    """The reply to a status request; `decided` is about the epoch asked about, None: there is no decision."""
    body: dict[str, Any] = {
        "store_id": own_store,
        "decided": decided is not None,
        "winners": [] if decided is None else [_described(Winner(*each)) for each in decided.winners],
        "sets": [_described_set(each) for each in sets],
    }
    if decided is not None:
        body["decided_at_ms"] = Long(decided.decided_at_ms)
        if decided.coordinator:
            body["coordinator"] = decided.coordinator
    if latest is not None:
        body["latest"] = Ulong(latest.epoch)
        if latest.coordinator:
            body["latest_coordinator"] = latest.coordinator
    return encode_message(
        properties=Properties(correlation_id=correlation_id, subject=REPLY_SUBJECT), body=AmqpValue(body)
    )


def _described(winner: Winner) -> dict[str, Any]:
    body = {"set": winner.set_id, "count": Ulong(winner.count), "checksum": Ulong(winner.checksum)}
    return {**body, "store": winner.store} if winner.store else body


def _described_set(staged: StagedSet) -> dict[str, Any]:
    body: dict[str, Any] = {
        "set": staged.set_id,
        "epoch": Ulong(staged.epoch),
        "state": "" if staged.state is None else staged.state.value,
        "count": Ulong(staged.count),
    }
    if (staged.store or staged.coordinator) and staged.sealed is not None:
        body["checksum"] = Ulong(staged.sealed.checksum)  # whoever goes on with it names it so
        body["store" if staged.store else "coordinator"] = staged.store or staged.coordinator
    return body
