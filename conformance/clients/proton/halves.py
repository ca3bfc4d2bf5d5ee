"""The half-message dialogue: put, resolve, be asked, answer by message or by outcome.

Each check has its own group, named as its queue: $half/<group>/<queue>, $half-resolve/<group>,
$half-check/<group>.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any
from uuid import UUID

from client import TIMEOUT_S, CheckFailed, Client, Receiver, SettleSecond, check, expect, settle
from controller import COMMIT_FAILED, Controller, provisional
from proton import Condition, Delivery, Message, symbol, ulong
from proton.reactor import AtMostOnce, Copy
from proton.utils import LinkDetached, SendException
from transaction_errors import Detached, detached_with

SOON = {"half_first_check_ms": 100}
"""The broker asks about what was put with this after so many milliseconds."""

AT_ONCE = {"half_first_check_ms": 0}
CHECK_BODY_BYTES = 256 * 1024
LARGE_BODY_BYTES = 1 << 20
FOUR_HOURS_MS = 4 * 3_600_000
REJECTED = 0x25
"""The descriptor of the outcome (part 3.4.3)."""

BY_OUTCOME = "/by-outcome"

UNKNOWN_ID, CONFLICT, ID_CONFLICT = "half:unknown-id", "half:conflict", "half:id-conflict"
ID_REQUIRED, INVALID, NOT_ALLOWED = "half:id-required", "amqp:invalid-field", "amqp:not-allowed"
ACCEPTED = "accepted"


def half(message_id: Any, body: Any = "body", **named: Any) -> Message:
    return Message(id=message_id, body=body, properties=named or None)


def resolution(half_id: Any, subject: str | None) -> Message:
    return Message(correlation_id=half_id, subject=subject)


class Halves:
    """The links of one group; the queue is the client's own."""

    def __init__(self, client: Client, group: str = "") -> None:
        self.client = client
        self.group = group or client.queue
        self.put_to = f"$half/{self.group}/{client.queue}"
        self.resolve_at = f"$half-resolve/{self.group}"
        self.check_at = f"$half-check/{self.group}"
        self._senders: dict[str | None, Any] = {}

    def sender(self, address: str | None) -> Any:
        if address not in self._senders:
            self._senders[address] = self.client.connection.create_sender(address)
        return self._senders[address]

    def answer(self, address: str | None, message: Message) -> tuple[str, Any]:
        """accepted, or the condition with which the message was rejected; and that error."""
        delivery = self.sender(address).link.send(message)
        self.client.connection.wait(lambda: delivery.settled, timeout=TIMEOUT_S, msg="no outcome")
        state, error = delivery.remote_state, delivery.remote.condition
        delivery.settle()
        if state == Delivery.REJECTED:
            return str(error.name), error
        return (ACCEPTED if state == Delivery.ACCEPTED else str(state)), None

    def tell(self, address: str | None, message: Message) -> str:
        return self.answer(address, message)[0]

    def put(self, message: Message) -> str:
        return self.tell(self.put_to, message)

    def prepared(self, message_id: Any, body: Any = "body", **named: Any) -> None:
        expect("put", ACCEPTED, self.put(half(message_id, body, **named)))

    def resolve(self, half_id: Any, subject: str | None) -> str:
        return self.tell(self.resolve_at, resolution(half_id, subject))

    def commit(self, half_id: Any) -> str:
        return self.resolve(half_id, "commit")

    def roll_back(self, half_id: Any) -> str:
        return self.resolve(half_id, "rollback")

    def checker(self, credit: int = 10, way: str = "", options: Any = None) -> Receiver:
        """A link on which the broker asks."""
        return Receiver(self.client, self.check_at + way, credit, options)

    def queued(self) -> list[Any]:
        """What the queue has now."""
        receiver = self.client.receiver(credit=200)
        bodies = [receiver.accept().body for _ in range(receiver.drained())]
        receiver.close()
        return bodies


def halves(name: str) -> Callable[[Callable[[Halves], None]], None]:
    def register(function: Callable[[Halves], None]) -> None:
        check(f"half messages: {name}")(lambda client: function(Halves(client)))

    return register


def asked(receiver: Receiver, half_id: Any) -> tuple[Delivery, Message]:
    """The next check, which must be about this one."""
    delivery, message = receiver.receive()
    expect("correlation-id", half_id, message.correlation_id)
    expect("subject", "check", message.subject)
    return delivery, message


def asked_about(receiver: Receiver, *half_ids: Any) -> list[tuple[Delivery, Message]]:
    """The next checks, one for each of these; what is due in the same millisecond has no order."""
    found = {}
    for _ in half_ids:
        delivery, message = receiver.receive()
        found[typed(message.correlation_id)] = delivery, message
    expect("correlation-ids", sorted(map(typed, half_ids)), sorted(found))
    return [found[typed(half_id)] for half_id in half_ids]


def typed(value: Any) -> str:
    """7 and "7" are ids of two half messages. proton hands out int for ulong, and binary as a view."""
    if isinstance(value, memoryview):
        return repr(bytes(value))
    return repr(int(value) if isinstance(value, ulong) else value)


# --- put and resolve


@halves("nobody sees one that was put; committed, it is delivered as it was sent")
def commit(group: Halves) -> None:
    client = group.client
    put = half("1", "the body", color="blue", size=ulong(7))
    put.subject, put.user_id, put.group_id = "s", b"me", "g"
    expect("put", ACCEPTED, group.put(put))
    expect("browsed", 0, client.receiver(options=Copy()).drained())
    consumer = client.receiver()
    expect("arrived", 0, consumer.drained())
    consumer.link.flow(10)
    expect("commit", ACCEPTED, group.commit("1"))
    message = consumer.accept()
    expect("body", "the body", message.body)
    expect("application properties", {"color": "blue", "size": ulong(7)}, message.properties)
    got = (message.id, message.subject, message.user_id, message.group_id)
    expect("properties", ("1", "s", b"me", "g"), got)
    expect("x-opt-half-id", "1", message.annotations[symbol("x-opt-half-id")])


@halves("rolled back, it is never delivered")
def roll_back(group: Halves) -> None:
    group.prepared("1")
    expect("rollback", ACCEPTED, group.roll_back("1"))
    expect("queue", [], group.queued())


@halves("put again: accepted, one message")
def put_again(group: Halves) -> None:
    for _ in range(3):
        group.prepared("1")
    expect("commit", ACCEPTED, group.commit("1"))
    expect("queue", ["body"], group.queued())


@halves("commit and rollback again: accepted, delivered once")
def resolve_again(group: Halves) -> None:
    group.prepared("1", "once")
    group.prepared("2", "never")
    for _ in range(3):
        expect("outcomes", (ACCEPTED, ACCEPTED), (group.commit("1"), group.roll_back("2")))
    expect("queue", ["once"], group.queued())


@halves("the opposite of what was decided: half:conflict, and by whom")
def contradiction(group: Halves) -> None:
    group.prepared("1", "committed")
    group.prepared("2", "rolled back")
    expect("outcomes", (ACCEPTED, ACCEPTED), (group.commit("1"), group.roll_back("2")))
    for half_id, subject, state in (("1", "rollback", "committed"), ("2", "commit", "rolled back")):
        condition, error = group.answer(group.resolve_at, resolution(half_id, subject))
        expect("outcome", CONFLICT, condition)
        info = {str(key): value for key, value in error.info.items()}
        expect("half_state", state, info["half_state"].replace("-", " "))
        expect("half_resolved_by", "producer", info["half_resolved_by"])
        expect("half_resolved_at is a time", True, info["half_resolved_at"] > 1_700_000_000_000)
        expect("the description has the state", True, info["half_state"] in error.description)
    expect("queue", ["committed"], group.queued())


@halves("a refusal is an exception of BlockingSender.send")
def exception(group: Halves) -> None:
    for address, message in ((group.put_to, half(None)), (group.resolve_at, resolution("1", "commit"))):
        try:
            group.sender(address).send(message)
        except SendException as error:
            expect("state", Delivery.REJECTED, error.state)
        else:
            raise CheckFailed(f"send to {address}: expected SendException, got none")


@halves("put with other content, or when it is decided: half:id-conflict, half:conflict")
def put_conflict(group: Halves) -> None:
    group.prepared("1")
    expect("other content", ID_CONFLICT, group.put(half("1", "other")))
    expect("other destination", ID_CONFLICT, group.tell(f"{group.put_to}-2", half("1")))
    expect("commit", ACCEPTED, group.commit("1"))
    expect("put after the commit", CONFLICT, group.put(half("1")))
    group.prepared("2")
    expect("rollback", ACCEPTED, group.roll_back("2"))
    expect("put after the rollback", CONFLICT, group.put(half("2")))
    expect("queue", ["body"], group.queued())


@halves("put without an id: half:id-required")
def without_id(group: Halves) -> None:
    expect("neither", ID_REQUIRED, group.put(half(None)))
    expect("an empty one", ID_REQUIRED, group.put(half("")))
    expect("one of 257 octets", ID_REQUIRED, group.put(half("x" * 257)))
    group.prepared("x" * 256)


@halves("unknown id: half:unknown-id, and the link goes on")
def unknown(group: Halves) -> None:
    group.prepared("1")
    expect("outcomes", (UNKNOWN_ID, UNKNOWN_ID), (group.commit("2"), group.roll_back("2")))
    expect("another group", UNKNOWN_ID, Halves(group.client, f"{group.group}-2").commit("1"))
    expect("commit", ACCEPTED, group.commit("1"))


@halves("another subject, no correlation-id: amqp:invalid-field")
def invalid(group: Halves) -> None:
    group.prepared("1")
    expect("another subject", INVALID, group.resolve("1", "Commit"))
    expect("no subject", INVALID, group.resolve("1", None))
    expect("no correlation-id", INVALID, group.commit(None))
    expect("rollback", ACCEPTED, group.roll_back("1"))


@halves("ids of every type are told apart; asked about, answered with what the check carries")
def ids(group: Halves) -> None:
    uuid = UUID(int=7)
    half_ids = [ulong(7), "7", uuid, uuid.bytes, str(uuid), b"7"]
    receiver = group.checker()
    for number, half_id in enumerate(half_ids):
        group.prepared(half_id, str(number), **SOON)
    for number, (_, message) in enumerate(asked_about(receiver, *half_ids)):
        expect("body", str(number), message.body)
        correlation_id = message.correlation_id
        if isinstance(correlation_id, memoryview):  # proton would send it as null
            correlation_id = bytes(correlation_id)
        answer = group.resolve(correlation_id, "rollback" if number % 2 else "commit")
        expect("answer", ACCEPTED, answer)
    expect("queue", ["0", "2", "4"], group.queued())


@halves("the application property half_id goes before the message-id")
def id_property(group: Halves) -> None:
    group.prepared("message-1", half_id="order-1")
    expect("by message-id", UNKNOWN_ID, group.commit("message-1"))
    expect("by half_id", ACCEPTED, group.commit("order-1"))
    message = group.client.receiver().accept()
    expect("message-id, properties", ("message-1", {"half_id": "order-1"}), (message.id, message.properties))
    expect("x-opt-half-id", "order-1", message.annotations[symbol("x-opt-half-id")])


@halves("reserved names and other values are refused, not dropped")
def reserved(group: Halves) -> None:
    for name, value, condition in (
        ("half_other", 1, NOT_ALLOWED),
        ("seq_id", 1, NOT_ALLOWED),
        ("half_first_check_ms", "soon", INVALID),
        ("half_first_check_ms", -1, INVALID),
        ("half_max_age_ms", FOUR_HOURS_MS + 1, INVALID),
        ("half_id", 7, INVALID),
    ):
        expect(name, condition, group.put(half("1", "body", **{name: value})))
    delayed = half("1")
    delayed.annotations = {symbol("x-opt-delivery-delay"): ulong(1000)}
    expect("x-opt-delivery-delay", NOT_ALLOWED, group.put(delayed))
    expect("commit", UNKNOWN_ID, group.commit("1"))


def refused(group: Halves, address: str, options: Any = None) -> str:
    """The condition with which a sending link is refused."""
    try:
        group.client.connection.create_sender(address, options=options)
    except LinkDetached as error:
        return str(error.condition)
    return "none"


@halves("settled puts and resolutions are refused")
def settled(group: Halves) -> None:
    for address in (group.put_to, group.resolve_at):
        expect("attach with snd-settle-mode settled", NOT_ALLOWED, refused(group, address, AtMostOnce()))
        mixed = group.client.connection.create_sender(address, handler=Detached(), name=f"mixed {address}")
        message = half("1")
        message.correlation_id, message.subject = "1", "commit"
        mixed.link.send(message).settle()  # before it is written
        expect("settled transfer", NOT_ALLOWED, detached_with(group.client, mixed.link))
    expect("commit", UNKNOWN_ID, group.commit("1"))


@halves("the answer to the attach; bad addresses and wrong ends refused")
def attach(group: Halves) -> None:
    senders = [group.sender(address).link for address in (group.put_to, group.resolve_at)]
    checker = group.checker().link
    for link, terminus in [
        *((sender, sender.remote_target) for sender in senders),
        (checker, checker.remote_source),
    ]:
        expect("half-version", 1, int(link.remote_properties["half-version"]))
        terminus.capabilities.rewind()
        terminus.capabilities.next()
        capabilities = terminus.capabilities.get_object()
        named = getattr(capabilities, "elements", [capabilities])
        expect("capabilities", ["half-messages"], [str(each) for each in named])
    long = "g" * 65
    for address in ("$half", "$half/g", "$half/g/", "$half/a b/q", f"$half/{long}/q", "$half-resolve/g/q"):
        expect(address, "amqp:not-found", refused(group, address))
    expect("a sender to the checks", NOT_ALLOWED, refused(group, group.check_at))


@halves("by another connection, when the producer is gone")
def elsewhere(group: Halves) -> None:
    group.prepared("1")
    group.client.reconnect()
    other = Halves(group.client)
    expect("commit", ACCEPTED, other.commit("1"))
    expect("queue", ["body"], other.queued())


@halves("the order of the queue is that of the commits")
def order(group: Halves) -> None:
    for number in range(100):
        group.prepared(ulong(number), number)
    numbers = [number * 37 % 100 for number in range(100)]
    expect("commits", {ACCEPTED}, {group.commit(ulong(number)) for number in numbers})
    expect("queue", numbers, group.queued())


@halves("through the anonymous terminus")
def anonymous(group: Halves) -> None:
    group.client.send([Message(body="the queue is there")])
    put = half("1")
    put.address = group.put_to
    expect("put", ACCEPTED, group.tell(None, put))
    for subject, outcome in (("commit", ACCEPTED), ("rollback", CONFLICT)):
        answer = resolution("1", subject)
        answer.address = group.resolve_at
        expect(subject, outcome, group.tell(None, answer))
    expect("queue", ["the queue is there", "body"], group.queued())


# --- be asked


@halves("asked; the check says everything; answered by message")
def asked_by_message(group: Halves) -> None:
    receiver = group.checker()
    group.prepared("1", "the body", color="blue", half_first_check_ms=200)
    delivery, message = asked(receiver, "1")
    expect("body, reply-to", ("the body", group.resolve_at), (message.body, message.reply_to))
    expect("message-id", True, isinstance(message.id, str) and message.id != "1")
    named = message.properties
    expected = {
        "color": "blue",
        "half_id": "1",
        "half_group": group.group,
        "half_destination": group.client.queue,
    }
    expect("application properties", expected, {name: named.get(name) for name in expected})
    expect("half_attempt", 1, int(named["half_attempt"]))
    expect("half_age_ms is 200 or a little more", True, 200 <= named["half_age_ms"] < 20_000)
    late_ms = named["half_deadline"] - time.time() * 1000 - FOUR_HOURS_MS
    expect("half_deadline in 4 h", True, abs(late_ms) < 60_000)
    expect("answer", ACCEPTED, group.tell(message.reply_to, resolution(message.correlation_id, "commit")))
    wait_settled(group, delivery)
    expect("the check that was out", Delivery.RELEASED, delivery.remote_state)
    delivery.settle()
    expect("queue", ["the body"], group.queued())


def wait_settled(group: Halves, delivery: Delivery) -> None:
    group.client.connection.wait(
        lambda: delivery.settled, timeout=TIMEOUT_S, msg="the check was not settled by the broker"
    )


@halves("accepting automatically, or rejecting, decides nothing without by-outcome")
def outcomes_ignored(group: Halves) -> None:
    # Had the accept committed, the rollback behind it would be a conflict.
    accepting = Receiver(group.client, group.check_at, 1, auto_accept=True)
    group.prepared("1", "accepted", **SOON)
    asked(accepting, "1")
    expect("rollback", ACCEPTED, group.roll_back("1"))
    accepting.close()
    receiver = group.checker()
    group.prepared("2", "rejected", **SOON)
    settle(asked(receiver, "2")[0], Delivery.REJECTED)
    expect("commit", ACCEPTED, group.commit("2"))
    expect("queue", ["rejected"], group.queued())


@halves("by outcome: accepted commits, also automatically")
def accepted(group: Halves) -> None:
    receiver = Receiver(group.client, group.check_at + BY_OUTCOME, 1, auto_accept=True)
    consumer = group.client.receiver()
    group.prepared("1", **SOON)
    asked(receiver, "1")
    expect("delivered", "body", consumer.accept().body)
    expect("commit", ACCEPTED, group.commit("1"))
    condition, error = group.answer(group.resolve_at, resolution("1", "rollback"))
    expect("rollback", CONFLICT, condition)
    expect("half_resolved_by", True, "half_resolved_by=check" in error.description)


@halves("by outcome: rejected rolls back; the settlement comes after it is stored")
def rejected(group: Halves) -> None:
    receiver = group.checker(way=BY_OUTCOME, options=SettleSecond())
    group.prepared("1", **SOON)
    delivery, _ = asked(receiver, "1")
    delivery.local.condition = Condition("app:failed", "no money")
    delivery.update(Delivery.REJECTED)
    wait_settled(group, delivery)
    expect("state", Delivery.REJECTED, delivery.remote_state)
    delivery.settle()
    expect("afterwards", (ACCEPTED, CONFLICT), (group.roll_back("1"), group.commit("1")))
    expect("queue", [], group.queued())


@halves("by outcome: released is asked again after a second as the same attempt; modified not")
def released(group: Halves) -> None:
    receiver = group.checker(way=BY_OUTCOME)
    group.prepared("1", "released", **SOON)
    group.prepared("2", "modified", **SOON)
    (first, _), (second, _) = asked_about(receiver, "1", "2")
    settle(first, Delivery.RELEASED)
    second.local.failed = True
    settle(second, Delivery.MODIFIED)
    again, message = asked(receiver, "1")
    expect("half_attempt", 1, int(message.properties["half_attempt"]))
    again.local.undeliverable = True
    settle(again, Delivery.MODIFIED)
    expect("by message", (ACCEPTED, ACCEPTED), (group.commit("1"), group.roll_back("2")))
    expect("queue", ["released"], group.queued())


@halves("by outcome: a connection that ends decides nothing; another is asked")
def ended(group: Halves) -> None:
    with group.client.another() as other:
        there = Halves(other).checker(way=BY_OUTCOME)
        group.prepared("1", **AT_ONCE)
        asked(there, "1")
    here = group.checker()
    _, message = asked(here, "1")
    expect("half_attempt", 1, int(message.properties["half_attempt"]))
    expect("rollback", ACCEPTED, group.roll_back("1"))
    expect("queue", [], group.queued())


@halves("no credit, no check; asked at once when there is some")
def credit(group: Halves) -> None:
    receiver = group.checker(credit=0)
    group.prepared("1", **AT_ONCE)
    receiver.link.flow(1)
    delivery, message = asked(receiver, "1")
    expect("half_attempt", 1, int(message.properties["half_attempt"]))
    settle(delivery, Delivery.ACCEPTED)
    group.prepared("2", **AT_ONCE)
    group.client.flush()
    expect("checks beyond the credit", 0, receiver.waiting)
    receiver.link.flow(1)
    asked(receiver, "2")


@halves("drain of a link of checks: what is due comes, then the credit is gone")
def drain(group: Halves) -> None:
    receiver = group.checker(credit=0)
    receiver.link.flow(5)
    expect("none is due", 0, receiver.drained())
    group.prepared("1", **AT_ONCE)
    group.client.flush()
    expect("checks without credit", 0, receiver.waiting)
    receiver.link.flow(5)
    expect("due", 1, receiver.drained())
    settle(asked(receiver, "1")[0], Delivery.ACCEPTED)


@halves("a large body comes whole when it is committed, and is left out of the check")
def large(group: Halves) -> None:
    receiver = group.checker()
    fitting, whole = "x" * (CHECK_BODY_BYTES - 1024), b"half" * (LARGE_BODY_BYTES // 4)
    group.prepared("fitting", fitting, **SOON)
    group.prepared("large", whole, **SOON)
    (_, first), (_, second) = asked_about(receiver, "fitting", "large")
    expect("body that fits", True, first.body == fitting)
    omitted = first.properties.get("half_body_omitted"), second.properties.get("half_body_omitted")
    expect("half_body_omitted", (None, True), omitted)
    expect("commit", ACCEPTED, group.commit("large"))
    expect("same octets", True, group.client.receiver().accept().body == whole)


# --- in transactions of AMQP


@halves("in a transaction: a put that is aborted leaves nothing; committed, it is prepared")
def transactional_put(group: Halves) -> None:
    controller = Controller(group.client)
    sender = group.sender(group.put_to)
    transaction = controller.declare()
    controller.send(transaction, sender, [half("1")])
    expect("before the end", UNKNOWN_ID, group.commit("1"))
    controller.abort(transaction)
    expect("after the abort", UNKNOWN_ID, group.commit("1"))
    transaction = controller.declare()
    controller.send(transaction, sender, [half("1")])
    controller.commit(transaction)
    expect("queue", [], group.queued())
    expect("commit", ACCEPTED, group.commit("1"))
    expect("queue", ["body"], group.queued())


@halves("in a transaction: a resolution is done at its commit, not at its abort")
def transactional_resolution(group: Halves) -> None:
    controller = Controller(group.client)
    group.prepared("1", "committed")
    group.prepared("2", "rolled back")
    answers = [resolution("1", "commit"), resolution("2", "rollback")]
    for fail in (True, False):
        transaction = controller.declare()
        controller.send(transaction, group.sender(group.resolve_at), answers)
        expect("queue before the end", [], group.queued())
        controller.discharge(transaction, fail)
        expect("queue afterwards", [] if fail else ["committed"], group.queued())
    expect("commit, rollback again", (ACCEPTED, ACCEPTED), (group.commit("1"), group.roll_back("2")))


@halves("in a transaction: what is refused is a provisional rejected, the rest commits")
def transactional_refusal(group: Halves) -> None:
    controller = Controller(group.client)
    transaction = controller.declare()
    controller.send(transaction, group.sender(group.put_to), [half("1")])
    (delivery,) = controller.post(transaction, group.sender(group.put_to), [half(None)])
    expect("outcome", REJECTED, provisional(transaction, delivery)[1])
    (delivery,) = controller.post(transaction, group.sender(group.resolve_at), [resolution("1", "Commit")])
    expect("outcome", REJECTED, provisional(transaction, delivery)[1])
    controller.commit(transaction)
    expect("commit", ACCEPTED, group.commit("1"))


@halves("in a transaction: decided otherwise meanwhile, the commit is rejected and nothing of it happens")
def transactional_conflict(group: Halves) -> None:
    controller = Controller(group.client, offer_rejected=True)
    group.prepared("1", "never")
    transaction = controller.declare()
    controller.send(transaction, group.sender(group.resolve_at), [resolution("1", "commit")])
    controller.send(transaction, group.client.sender(), [Message(body="of the same transaction")])
    expect("rollback", ACCEPTED, group.roll_back("1"))
    answer = controller.discharge(transaction, fail=False)
    expect("commit", f"{COMMIT_FAILED}: amqp:transaction:rollback", answer)
    expect("queue", [], group.queued())


@halves("in a transaction: what is received and what is decided by it, both or neither")
def transactional_both(group: Halves) -> None:
    controller = Controller(group.client)
    group.prepared("1", "the order")
    payments = f"{group.client.queue}-payments"
    group.client.connection.create_sender(payments).send(Message(body="paid"))
    for fail in (True, False):
        receiver = group.client.receiver_of(payments, 1)
        transaction = controller.declare(settle_before_discharge=True)
        delivery, message = receiver.receive()
        expect("received", "paid", message.body)
        transaction.accept(delivery)
        controller.send(transaction, group.sender(group.resolve_at), [resolution("1", "commit")])
        controller.discharge(transaction, fail)
        receiver.close()
        expect("queue", [] if fail else ["the order"], group.queued())
    expect("payments left", 0, group.client.receiver_of(payments, 10).drained())
