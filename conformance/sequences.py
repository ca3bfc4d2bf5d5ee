"""Both sides of the dialogue of sequenced streams, for scenarios: places, their outcomes, and where a stream
stands.

sender = stream_sender(broker, "s")
expect_told(sender, [placed(place) for place in chain(1, 3)], ACCEPTED * 3)
"""

from collections.abc import Iterable, Sequence
from typing import Any

from amqp_broker.conformance.broker import Broker
from amqp_broker.conformance.dialogue import Sender, Session
from amqp_broker.conformance.messages import (
    APPLICATION_PROPERTIES,
    MESSAGE_ANNOTATIONS,
    data,
    info_of,
    section,
)
from amqp_broker.conformance.outcomes import NotApplicable, Unexpected
from amqp_broker.conformance.transactions import within
from amqp_broker.conformance.transcript import describe, describe_value
from amqp_broker.frames import Accepted, Disposition, Open, Rejected, Symbol, TransactionalState, Uint, Ulong
from amqp_broker.frames.sasl import SaslInit

CAPABILITY = "tx-sequence"
GAP = "seq:gap"
STALE = "seq:stale"
MISSING = "seq:missing"
INVALID = "amqp:invalid-field"
UNAUTHORIZED = "amqp:unauthorized-access"
FULL = "amqp:resource-limit-exceeded"
ACCEPTED = ["accepted"]
REQUIRED, OFF, PATIENT = "sequenced", "unsequenced", "patient"
"""Queues of second_broker.toml: with sequences required, off, and with outcomes that wait."""

Place = tuple[int, int, int]
"""(id, number, prev)."""


def chain(first: int, last: int, seq_id: int = 1) -> list[Place]:
    """Returns the places from one number to another, each behind the one before."""
    return [(seq_id, number, number - 1) for number in range(first, last + 1)]


def body(place: Place) -> bytes:
    """Returns the body that says a place."""
    return b"%d.%d" % place[:2]


def placed(place: Place, stream: str | None = "s") -> bytes:
    """Returns a message whose place is in message annotations; ``stream`` None leaves it to the link."""
    fields: dict[Any, Any] = {
        Symbol("x-opt-seq-id"): Ulong(place[0]),
        Symbol("x-opt-seq-no"): Uint(place[1]),
        Symbol("x-opt-seq-prev"): Uint(place[2]),
    }
    if stream is not None:
        fields[Symbol("x-opt-seq-stream")] = stream
    return section(MESSAGE_ANNOTATIONS, fields) + data(body(place))


def stated(place: Place, stream: Any = "s", **changed: Any) -> bytes:
    """Returns a message whose place is in application properties; ``changed`` are other properties."""
    fields = {"seq_stream": stream, "seq_id": place[0], "seq_no": place[1], "seq_prev": place[2]}
    return section(APPLICATION_PROPERTIES, {**fields, **changed}) + data(body(place))


def stream_sender(
    broker: Broker, stream: str | None = None, address: str = "", container: str = "", **fields: Any
) -> Sender:
    """Returns a sender on a connection of its own; its attach names ``stream`` for all messages."""
    return sender_on(broker.session(container=container), address or broker.queue(), stream, **fields)


def sender_on(
    session: Session, address: str | None, stream: str | None = None, handle: int = 0, **fields: Any
) -> Sender:
    """Returns a sender on a session."""
    properties = None if stream is None else {"seq-stream": stream}
    return session.sender(address, handle, f"sender-{handle}", properties=properties, **fields)


def expect_link_refused(broker: Broker, stream: Any, condition: str, session: Session | None = None) -> None:
    """Raises Unexpected unless a link that names a stream is refused with this condition."""
    session = session or broker.session()
    session.put_sender(broker.queue(), 7, properties={"seq-stream": stream}).expect_refused(condition)


def standing(sender: Sender) -> tuple[int, int]:
    """Returns where the answer to the attach says that the stream stands."""
    properties = sender.attach.properties
    found = properties or {}
    seq_id, seq_no = [getattr(found.get(name), "value", None) for name in ("seq-id", "seq-no")]
    if not isinstance(seq_id, int) or not isinstance(seq_no, int):
        raise Unexpected(f"expected seq-id and seq-no in the attach, got {describe_value(properties)}")
    return seq_id, seq_no


def capabilities(sender: Sender) -> tuple[str, ...]:
    """Returns the capabilities of the target that the broker answered with."""
    target = sender.attach.target
    return tuple(str(one) for one in getattr(target, "capabilities", None) or ())


def states_of(
    sender: Sender, payloads: Iterable[bytes], txn_id: bytes | None = None, **fields: Any
) -> list[Any]:
    """Sends messages one behind the other, and returns their outcomes: provisional ones in a transaction."""
    if txn_id is not None:
        fields["state"] = within(txn_id)
    numbers = [sender.send(payload, **fields) for payload in payloads]
    return [_outcome(sender.session.await_outcome(number), txn_id) for number in numbers]


def _outcome(disposition: Disposition, txn_id: bytes | None) -> Any:
    state = disposition.state
    if txn_id is None:
        return state
    if not isinstance(state, TransactionalState) or state.txn_id != txn_id:
        raise Unexpected(f"expected an outcome in transaction {txn_id.hex()}, got {describe(disposition)}")
    return state.outcome


def words(states: Iterable[Any]) -> list[str]:
    """Returns `accepted`, or the condition of a rejection, for each outcome."""
    return [_word(state) for state in states]


def _word(state: Any) -> str:
    if isinstance(state, Accepted):
        return "accepted"
    if isinstance(state, Rejected) and state.error is not None:
        return state.error.condition
    raise Unexpected(f"expected accepted, or rejected with an error, got {describe_value(state)}")


def expect_told(
    sender: Sender, payloads: Iterable[bytes], expected: Sequence[str], txn_id: bytes | None = None
) -> list[Any]:
    """Sends messages and returns their outcomes; raises Unexpected unless these are what is expected."""
    states = states_of(sender, payloads, txn_id)
    if words(states) != list(expected):
        raise Unexpected(f"expected {list(expected)}, got {words(states)}")
    return states


def info(state: Any) -> dict[str, Any]:
    """Returns the numbers in the info map of a rejection, by their names."""
    return info_of(state.error) if isinstance(state, Rejected) and state.error else {}


def other_principal(broker: Broker) -> Session:
    """Returns a session of somebody else: ANONYMOUS beside the user of the URL."""
    if broker.settings.address.user is None:
        raise NotApplicable("one principal only: the URL names no user")
    broker.require_mechanism("ANONYMOUS")
    peer = broker.connect()
    broker.log_in(peer, SaslInit(mechanism="ANONYMOUS", initial_response=b"somebody else"))
    peer.put(broker.own_open(container="other"))
    peer.expect(Open)
    return peer.begin()


def ranges(session: Session) -> list[tuple[int, int, str]]:
    """Returns (first, last, outcome) of each disposition that a session has received about its deliveries."""
    return [
        (one.first, one.first if one.last is None else one.last, _word(one.state))
        for one in session.seen
        if isinstance(one, Disposition) and one.role is True
    ]
