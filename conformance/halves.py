"""Both sides of the half-message dialogue, for scenarios: who puts and resolves, who is asked, who receives.

halves = Halves(broker)
producer, consumer = halves.producer(), halves.consumer()
producer.put(half("1", b"the body"))
producer.commit("1")
consumer.receive()

Each of them has a connection of its own; while a scenario waits all of them are kept alive.
"""

import time
from typing import Any

from amqp_broker.conformance.broker import Broker
from amqp_broker.conformance.dialogue import Receiver, Session
from amqp_broker.conformance.messages import (
    APPLICATION_PROPERTIES,
    MESSAGE_ANNOTATIONS,
    data,
    map_of,
    properties_of,
    section,
)
from amqp_broker.conformance.outcomes import NotApplicable, Unexpected, error_of, expect_state
from amqp_broker.conformance.transcript import describe, describe_kind
from amqp_broker.frames import (
    Accepted,
    Attach,
    Close,
    Detach,
    Disposition,
    Error,
    Header,
    Properties,
    Rejected,
    Symbol,
    Transfer,
    encode_composite,
    plain_value,
)
from amqp_broker.testing.peer import Delivery

CAPABILITY = "half-messages"
CONFLICT = "half:conflict"
ID_CONFLICT = "half:id-conflict"
ID_REQUIRED = "half:id-required"
UNKNOWN = "half:unknown-id"
NOT_ALLOWED = "amqp:not-allowed"
NOT_FOUND = "amqp:not-found"
INVALID = "amqp:invalid-field"

SOON = {"half_first_check_ms": 200}
"""Application properties of a half message that is asked about almost at once."""

KEEP_ALIVE_S = 0.25
"""How often connections that wait say something: shorter than any idle time-out of a broker for tests."""

FOR_TESTS = "conformance."
"""What the groups of scenarios begin with, so that access rules can name them."""


def half(
    half_id: Any = None,
    body: bytes = b"the body",
    *,
    named: dict[str, Any] | None = None,
    header: Header | None = None,
    annotations: dict[str, Any] | None = None,
    **properties: Any,
) -> bytes:
    """Returns a message to put; ``half_id`` is its message-id, ``named`` its application properties."""
    sections = [encode_composite(header)] if header else []
    if annotations:
        sections.append(
            section(MESSAGE_ANNOTATIONS, {Symbol(key): value for key, value in annotations.items()})
        )
    sections.append(encode_composite(Properties(message_id=half_id, **properties)))
    if named:
        sections.append(section(APPLICATION_PROPERTIES, named))
    return b"".join([*sections, data(body)])


def resolution(
    half_id: Any, subject: str | None, named: dict[str, Any] | None = None, to: str | None = None
) -> bytes:
    """Returns a message that commits or rolls back."""
    properties = encode_composite(Properties(correlation_id=half_id, subject=subject, to=to))
    return properties + (section(APPLICATION_PROPERTIES, named) if named else b"") + data(b"")


def half_id_annotation(delivery: Delivery) -> Any:
    """Returns the annotation that says which half message a delivered message was."""
    return map_of(delivery.payload, MESSAGE_ANNOTATIONS).get("x-opt-half-id")


class Halves:
    """One scenario's producer group, and everybody who has to do with it."""

    def __init__(self, broker: Broker, group: str = "", queue: str = "q") -> None:
        self.broker = broker
        own = f"{broker.settings.run_id}-{broker.scenario_id.replace('/', '-')}"
        self.group = group or (FOR_TESTS + own)[:64]
        self.queue = broker.queue(queue)
        self._sessions: list[Session] = []
        self._alive_at = time.monotonic()

    def session(self, container: str) -> Session:
        """Returns a session on a connection of its own, which `pause` keeps alive."""
        session = self.broker.session(container=container)
        self._sessions.append(session)
        return session

    def producer(self, container: str = "producer", destination: str = "", group: str = "") -> "Producer":
        """Returns somebody who puts and resolves."""
        return Producer(self, container, destination or self.queue, group or self.group)

    def checker(
        self,
        container: str = "checker",
        *,
        by_outcome: bool = False,
        credit: int = 10,
        session: Session | None = None,
        handle: int = 20,
    ) -> "Checker":
        """Returns somebody who is asked."""
        return Checker(self, session or self.session(container), by_outcome, credit, handle)

    def consumer(self, credit: int = 10, **fields: Any) -> Receiver:
        """Returns a receiver at the destination."""
        return self.session("consumer").receiver(self.queue, credit=credit, **fields)

    def pause(self, seconds: float) -> None:
        """Lets time pass on connections that stay alive."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(left, KEEP_ALIVE_S))
            self.keep_alive()

    def keep_alive(self) -> None:
        """Says something on each connection, unless it has just been done."""
        if time.monotonic() - self._alive_at < KEEP_ALIVE_S / 2:
            return
        self._alive_at = time.monotonic()
        for session in self._sessions:
            session.peer.send_empty_frame()

    def leave(self, session: Session) -> None:
        """Drops a connection without a word."""
        self._sessions.remove(session)
        session.peer.drop()

    def next(self, receiver: Receiver, within_s: float = 0.0) -> Delivery:
        """Returns the next delivery of a link, however long the others have nothing to say meanwhile."""
        self.keep_alive()
        end = time.monotonic() + max(within_s, self.broker.settings.timeout_s)
        while not receiver.peer.has_more(KEEP_ALIVE_S) and time.monotonic() < end:
            self.keep_alive()
        return receiver.receive(skip=(Disposition,))

    def silent(self, receiver: Receiver, seconds: float = 0.3) -> None:
        """Raises Unexpected when a link is sent something in this time."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            receiver.peer.expect_nothing(Transfer, Detach, Close, within_s=min(left, KEEP_ALIVE_S))
            self.keep_alive()

    def require_short(self) -> None:
        """Ends the scenario as not applicable unless this group has the short times of second_broker.toml."""
        producer = self.producer("asks")
        number = producer.put_link.send(half("asks", named={"half_max_age_ms": 3_600_000}))
        if isinstance(producer.answer(number), Accepted):
            producer.roll_back("asks")
            raise NotApplicable(f"the group {self.group!r} has no short times here (see second_broker.toml)")


class Producer:
    """Who puts half messages for one destination, and resolves them."""

    def __init__(self, halves: Halves, container: str, destination: str, group: str) -> None:
        self.halves = halves
        self.queue = destination
        self.session = halves.session(container)
        self.put_link = self.session.sender(f"$half/{group}/{destination}", handle=10, name="put")
        self.resolve_link = self.session.sender(f"$half-resolve/{group}", handle=11, name="resolve")

    @staticmethod
    def given(broker: Broker) -> "Producer":
        """Makes the producer of a group of its own."""
        return Halves(broker).producer()

    def answer(self, number: int) -> Any:
        """Waits for the settled outcome of one delivery and returns it."""
        self.halves.keep_alive()
        return self.session.await_settled(number, skip=(Transfer,))

    def put(self, *payloads: bytes) -> None:
        """Puts half messages; each must be accepted."""
        for payload in payloads:
            expect_state(self.answer(self.put_link.send(payload)), Accepted)

    def refused(self, payload: bytes, *conditions: str) -> Error:
        """Puts what must be rejected with one of these conditions; returns the error."""
        number = self.put_link.send(payload)
        return error_of(expect_state(self.answer(number), Rejected), *conditions)

    def resolve(self, half_id: Any, subject: str | None, named: dict[str, Any] | None = None) -> Any:
        """Resolves one, and returns the outcome."""
        return self.answer(self.resolve_link.send(resolution(half_id, subject, named)))

    def commit(self, half_id: Any) -> None:
        """Commits one; that must be accepted."""
        expect_state(self.resolve(half_id, "commit"), Accepted)

    def roll_back(self, half_id: Any) -> None:
        """Rolls one back; that must be accepted."""
        expect_state(self.resolve(half_id, "rollback"), Accepted)

    def conflict(self, half_id: Any, subject: str | None, *conditions: str) -> Error:
        """Resolves what must be rejected with one of these conditions; returns the error."""
        return error_of(expect_state(self.resolve(half_id, subject), Rejected), *conditions)


class Check:
    """A check that came: the broker asks what became of a half message."""

    def __init__(self, delivery: Delivery) -> None:
        self.delivery = delivery
        self.properties = properties_of(delivery.payload) or Properties()
        self.named: dict[str, Any] = plain_value(map_of(delivery.payload, APPLICATION_PROPERTIES))

    @property
    def half_id(self) -> Any:
        """Which half message it asks about."""
        return self.properties.correlation_id

    @property
    def attempt(self) -> Any:
        """The how-many-th one it is, from 1."""
        return self.named.get("half_attempt")


class Checker:
    """Who is asked on one link."""

    def __init__(self, halves: Halves, session: Session, by_outcome: bool, credit: int, handle: int) -> None:
        self.halves = halves
        self.session = session
        address = f"$half-check/{halves.group}" + ("/by-outcome" if by_outcome else "")
        self.link = session.receiver(address, handle, f"check-{handle}", credit)

    def asked(self, half_id: Any, attempt: int = 1, within_s: float = 0.0) -> Check:
        """Waits for a check, which must be about this half message, and this attempt."""
        check = Check(self.halves.next(self.link, within_s))
        if (check.half_id, check.attempt) != (half_id, attempt):
            got = f"{check.half_id!r}, attempt {check.attempt}"
            raise Unexpected(f"expected a check of {half_id!r}, attempt {attempt}, got one of {got}")
        return check

    def answers(self, check: Check, outcome: Any, *, settled: bool = True) -> None:
        """Gives a check an outcome."""
        self.link.settle(check.delivery, outcome, settled=settled)

    def settlement(self, check: Check, kind: type) -> None:
        """Waits until the broker settles a check itself, which must be with this outcome."""
        number = check.delivery.delivery_id
        while number not in self.session.settlements:
            self.halves.keep_alive()
            self.session.peer.expect_frame(Disposition, skip=(Transfer,))
        disposition = self.session.settlements[number]
        if not disposition.settled or not isinstance(disposition.state, kind):
            raise Unexpected(f"expected a settled {describe_kind(kind)}, got {describe(disposition)}")

    def is_silent(self, seconds: float = 0.3) -> None:
        """Raises Unexpected when it is asked something in this time."""
        self.halves.silent(self.link, seconds)


def refusal(session: Session, address: str, *conditions: str, receiver: bool = False, **fields: Any) -> Error:
    """Attaches what must be refused: a null terminus, then detach with one of these conditions (2.6.3)."""
    put = session.put_receiver if receiver else session.put_sender
    return put(address, 30, f"refused {address}"[:200], **fields).expect_refused(*conditions)


def expect_capability(attach: Attach | None, terminus: Any) -> None:
    """Raises Unexpected unless an attach says what it is a node of."""
    assert attach is not None
    capabilities = [str(one) for one in getattr(terminus, "capabilities", None) or ()]
    if CAPABILITY not in capabilities or plain_value(attach.properties or {}).get("half-version") != 1:
        raise Unexpected(f"expected the capability {CAPABILITY} and half-version 1, got {describe(attach)}")
