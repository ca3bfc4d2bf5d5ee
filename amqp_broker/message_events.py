"""What the journal tells of the messages of a queue with `events`: what becomes of each, from its coming to
its end.

    put, publish: archived (a log)
    put, publish --> deliver --> settle: accepted, rejected (and dead), released, modified --> deliver ...
                 --> expire, dead                                       reject: it never came

Verbs of the store, which go into the unit of what they tell of, so that both are stored or neither is; only
`deliver` is a step of its own, which nobody waits for. One event for each run of messages: what they have in
common stands once, what differs in columns. All of it is called only where `queue.events` is true.

Each operation says its own events beside its verbs. One tap behind all of them was thought of, and left: the
verbs do not hold what an event tells (who, in which transaction, with which outcome and for the which time,
what was refused), so each operation would have to say it all the same, at a second place.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from amqp_broker.frames import Accepted, Error, Modified, Rejected, Released
from amqp_broker.frames.message_peek import peek_identity
from amqp_broker.judged_queue import JudgedQueue, coming
from amqp_broker.persistence import Event, Journal, Record, Unit, size_of
from amqp_broker.places import Place
from amqp_broker.queue import ARCHIVED, Queue

PUT: Final = "put"
PUT_BY_DECISION: Final = "publish"
DELIVER: Final = "deliver"
SETTLE: Final = "settle"
DEAD: Final = "dead"
EXPIRE: Final = "expire"
REJECT: Final = "reject"
MESSAGE_EVENTS: Final = frozenset((PUT, PUT_BY_DECISION, DELIVER, SETTLE, DEAD, EXPIRE, REJECT))

RUN_ENTRIES: Final = 1_024  # of one event: what is read of a run is read as a whole
TEXT_CHARACTERS: Final = 1_024  # of a message-id, a group-id or a reason: chosen by peers
LONG_MAX: Final = 2**63 - 1
BECAME_LOG: Final = "its queue is a log now"
OUTCOME_WORDS: Final[dict[type, str]] = {
    Accepted: "accepted", Rejected: "rejected", Released: "released", Modified: "modified",
}  # fmt: skip

Value = str | int | None
Values = list[Value]


def put(
    queue: Queue, records: Sequence[Record], container: str, now_ms: int, txn_id: bytes = b"",
    places: dict[int, Place] | None = None,
) -> Unit:  # fmt: skip
    """Numbered messages become available; what waits for its time is told when it comes. `places`: those in
    sequenced streams, by the ids of the records.
    """
    if queue.waits:
        records = [record for record in records if not record.due_at_ms]
    if isinstance(queue, JudgedQueue):
        records = coming(records)
    fields = _fields_of_new(queue, container, txn_id)
    if container:
        fields["producer"] = container
    if queue.sequences.off:  # nobody has looked for them
        places = _places(queue, records)
    unit: Unit = []
    for run in _runs(records):
        unit.append(journal_run(PUT, now_ms, fields, len(run), _columns_of(queue, run, places)))
    if isinstance(queue, JudgedQueue):
        for rule in queue.rules:
            unit.extend(rule.events(now_ms))
    return unit


def put_by_halves(
    queue: Queue, records: Sequence[Record], group: str, half_ids: Sequence[str], producer: str, now_ms: int,
    txn_id: bytes = b"",
) -> Unit:  # fmt: skip
    """Half messages were committed: their messages become available. `producer` is who had put them."""
    fields = _fields_of_new(queue, producer, txn_id)
    if producer:
        fields["producer"] = producer
    fields["group"] = group
    unit: Unit = []
    for start in range(0, len(records), RUN_ENTRIES):
        run = records[start : start + RUN_ENTRIES]
        columns = _columns_of(queue, run, _places(queue, run))
        columns["half_id"] = [*half_ids[start : start + RUN_ENTRIES]]
        unit.append(journal_run(PUT_BY_DECISION, now_ms, fields, len(run), columns))
    return unit


def put_by_set(
    queue: Queue, first_offset: int, count: int, group: str, set_id: str, producer: str, epoch: int,
    now_ms: int, records: Sequence[Record] = (),
) -> Unit:  # fmt: skip
    """`count` messages of a set became available by the commit of its epoch; their ids, sizes and places are
    told if `records` has them, in order.
    """
    fields = _fields_of_new(queue, "", b"")
    fields |= {"producer": producer, "group": group, "set_id": set_id, "epoch": epoch}
    unit: Unit = []
    for start in range(0, count, RUN_ENTRIES):
        stop = min(start + RUN_ENTRIES, count)
        columns: dict[str, Values] = {}
        if records:
            columns = _columns_of(queue, records[start:stop], _places(queue, records[start:stop]))
        columns["offset"] = [*range(first_offset + start, first_offset + stop)]
        unit.append(journal_run(PUT_BY_DECISION, now_ms, fields, stop - start, columns))
    return unit


def delivered(queue: Queue, records: Sequence[Record], container: str, now_ms: int) -> Unit:
    """Messages were sent to a consumer of `container`: each with its attempt number."""
    fields = _fields(queue, container, b"")
    unit: Unit = []
    for run in _runs(records):
        attempts: Values = [record.delivery_count + 1 for record in run]
        columns = {"offset": _offsets(run), "attempt": attempts}
        unit.append(journal_run(DELIVER, now_ms, fields, len(run), columns))
    return unit


def settled(
    queue: Queue, records: Sequence[Record], outcome: object, container: str, now_ms: int,
    txn_id: bytes = b"", reason: str = "",
) -> Unit:  # fmt: skip
    """A consumer of `container` gave its outcome for messages; those that it rejected are dead."""
    fields = _fields(queue, container, txn_id)
    fields["outcome"] = OUTCOME_WORDS[type(outcome)]
    reason = reason or reason_of(outcome)
    if reason:
        fields["reason"] = reason
    unit: Unit = []
    for run in _runs(records):
        unit.append(journal_run(SETTLE, now_ms, fields, len(run), {"offset": _offsets(run)}))
    if type(outcome) is Rejected:
        unit.extend(dead(queue, [record.offset for record in records], reason or "rejected", now_ms))
    return unit


def made_log(queue: Queue, offsets: Sequence[int], again: Sequence[Record], now_ms: int) -> Unit:
    """Messages waited for a consumer at `offsets` when their queue became a log, and those of `again` got new
    offsets. They are not named once more: nobody sent them twice.
    """
    fields = _fields(queue, "", b"") | {"outcome": ARCHIVED, "reason": BECAME_LOG}
    unit: Unit = []
    for start in range(0, len(offsets), RUN_ENTRIES):
        gone: Values = [*offsets[start : start + RUN_ENTRIES]]
        unit.append(journal_run(SETTLE, now_ms, fields, len(gone), {"offset": gone}))
    for run in _runs(again):
        columns: dict[str, Values] = {"offset": _offsets(run), "bytes": [size_of(each) for each in run]}
        unit.append(journal_run(PUT, now_ms, fields, len(run), columns))
    return unit


def dead(queue: Queue, offsets: Sequence[int], reason: str, now_ms: int) -> Unit:
    """Messages left the queue, and nobody will ever process them."""
    fields = _fields(queue, "", b"")
    fields["reason"] = reason[:TEXT_CHARACTERS]
    unit: Unit = []
    for start in range(0, len(offsets), RUN_ENTRIES):
        run: Values = [*offsets[start : start + RUN_ENTRIES]]
        unit.append(journal_run(DEAD, now_ms, fields, len(run), {"offset": run}))
    return unit


def homeless(
    queue: Queue, destination: str, group: str, half_id: str, reason: str, now_ms: int
) -> Unit:  # fmt: skip
    """A committed half message could not go to its destination; it went to `queue`, the dead letters."""
    fields: dict[str, str | int] = {
        "address": destination, "group": group, "half_id": half_id,
        "reason": f"{reason}: it went to {queue.name!r}"[:TEXT_CHARACTERS],
    }  # fmt: skip
    return [journal_run(DEAD, now_ms, fields, 1, {})]


def expired(queue: Queue, records: Sequence[Record], now_ms: int) -> Unit:
    """The time to live of messages ran out."""
    fields = _fields(queue, "", b"")
    return [
        journal_run(EXPIRE, now_ms, fields, len(run), {"offset": _offsets(run)}) for run in _runs(records)
    ]


def refused(
    queue: Queue, places: Iterable[Place | Error | None], outcomes: Iterable[Any], container: str,
    now_ms: int, txn_id: bytes = b"",
) -> Unit:  # fmt: skip
    """Messages of sequenced streams were rejected, for their places or for what is wrong with them."""
    streams: Values = []
    ids: Values = []
    numbers: Values = []
    reasons: Values = []
    for place, outcome in zip(places, outcomes, strict=True):
        if place is None or type(outcome) is not Rejected:
            continue
        sequenced = place if isinstance(place, Place) else None
        streams.append(None if sequenced is None else sequenced.stream)
        ids.append(None if sequenced is None else _as_long(sequenced.numbering.seq_id))
        numbers.append(None if sequenced is None else sequenced.numbering.seq_no)
        reasons.append(reason_of(outcome))
    fields = _fields(queue, container, txn_id)
    if container:
        fields["producer"] = container
    unit: Unit = []
    for start in range(0, len(streams), RUN_ENTRIES):
        stop = min(start + RUN_ENTRIES, len(streams))
        columns = {
            "seq_stream": streams[start:stop], "seq_id": ids[start:stop], "seq_no": numbers[start:stop],
            "reason": reasons[start:stop],
        }  # fmt: skip
        unit.append(journal_run(REJECT, now_ms, fields, stop - start, columns))
    return unit


def reason_of(outcome: object) -> str:
    """What an outcome says of why, in one line; empty if nothing."""
    if isinstance(outcome, Rejected) and outcome.error is not None:
        error = outcome.error
        text = f"{error.condition}: {error.description}" if error.description else str(error.condition)
        return text[:TEXT_CHARACTERS]
    if isinstance(outcome, Modified):
        words = ["delivery-failed"] if outcome.delivery_failed else []
        return ", ".join([*words, "undeliverable-here"] if outcome.undeliverable_here else words)
    return ""


def places_of(records: Sequence[Record], places: Iterable[Place | Error | None]) -> dict[int, Place]:
    """The places of messages that were judged, by the ids of their records."""
    pairs = zip(records, places, strict=True)
    return {id(record): place for record, place in pairs if isinstance(place, Place)}


def _places(queue: Queue, records: Iterable[Record]) -> dict[int, Place]:
    found = {}
    for record in records:
        place = queue.sequences.place_of(record.body)
        if isinstance(place, Place):
            found[id(record)] = place
    return found


def _columns_of(
    queue: Queue, run: Sequence[Record], places: dict[int, Place] | None
) -> dict[str, Values]:
    """What is told of each message that comes into a queue. A place that the queue has not judged has no id:
    nobody has to keep a rule there.
    """
    ids: Values = []
    streams: Values = []
    numbers: Values = []
    for record in run:
        message_id, group_id, group_sequence = peek_identity(record.body)
        ids.append(None if message_id is None else message_id[:TEXT_CHARACTERS])
        streams.append(None if group_id is None else group_id[:TEXT_CHARACTERS])
        numbers.append(None if group_id is None else group_sequence)
    columns: dict[str, Values] = {
        "offset": _offsets(run), "message_id": ids, "bytes": [size_of(record) for record in run],
        "seq_stream": streams, "seq_no": numbers,
    }  # fmt: skip
    if not places:
        return columns
    seq_ids: Values = [None] * len(run)
    prevs: Values = [None] * len(run)  # where it is not the number below
    for at, record in enumerate(run):
        place = places.get(id(record))
        if place is None:
            continue
        numbering = place.numbering
        streams[at], numbers[at] = place.stream, numbering.seq_no
        if not queue.sequences.off:
            seq_ids[at] = _as_long(numbering.seq_id)
            if numbering.seq_prev != numbering.seq_no - 1:
                prevs[at] = numbering.seq_prev
    columns["seq_id"] = seq_ids
    columns["seq_prev"] = prevs
    return columns


def _as_long(number: int) -> int:
    """A ulong as the long of the same octets, which is what the wire and the archive have."""
    return number if number <= LONG_MAX else number - (1 << 64)


def _fields(queue: Queue, container: str, txn_id: bytes) -> dict[str, str | int]:
    fields: dict[str, str | int] = {"address": queue.name}
    if container:
        fields["container"] = container
    if txn_id:
        fields["txn_id"] = txn_id.hex()
    return fields


def _fields_of_new(queue: Queue, container: str, txn_id: bytes) -> dict[str, str | int]:
    """The fields of messages that become available; in a log that is also their end."""
    fields = _fields(queue, container, txn_id)
    outcome = queue.outcome_at_once()
    if outcome:
        fields["outcome"] = outcome
    return fields


def _offsets(run: Iterable[Record]) -> Values:
    return [record.offset for record in run]


def _runs(records: Sequence[Record]) -> Iterable[Sequence[Record]]:
    if len(records) <= RUN_ENTRIES:
        return (records,) if records else ()
    return [records[start : start + RUN_ENTRIES] for start in range(0, len(records), RUN_ENTRIES)]


def journal_run(
    kind: str, now_ms: int, shared: dict[str, str | int], count: int, columns: dict[str, Values]
) -> Journal:
    """One event; a column whose values are all the same is a field of all."""
    fields = dict(shared)
    own: dict[str, Values] = {}
    for name, values in columns.items():
        first = values[0]
        if values.count(first) != count:
            own[name] = values
        elif first is not None:
            fields[name] = first
    return Journal(Event(kind, now_ms, fields, 0, count, own))
