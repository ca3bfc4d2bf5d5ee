"""The checks of half messages that are put and resolved."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from client import CheckFailed, expect
from half_group import (
    ACCEPTED,
    CONFLICT,
    FOUR_HOURS_MS,
    ID_CONFLICT,
    ID_REQUIRED,
    INVALID,
    NOT_ALLOWED,
    SOON,
    UNKNOWN_ID,
    Halves,
    asked_about,
    half,
    halves,
    resolution,
)  # fmt: skip
from proton import Delivery, Message, symbol, ulong
from proton.reactor import AtMostOnce, Copy
from proton.utils import LinkDetached, SendException
from transaction_errors import Detached, detached_with


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
