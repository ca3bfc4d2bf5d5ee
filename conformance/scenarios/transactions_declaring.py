"""Control links, what the coordinator offers, and declares (4.1, 4.2, 4.5)."""

from amqp_broker.conformance.broker import Broker
from amqp_broker.conformance.messages import (
    APPLICATION_PROPERTIES,
    FOOTER,
    MESSAGE_ANNOTATIONS,
    section,
)
from amqp_broker.conformance.outcomes import Unexpected
from amqp_broker.conformance.queues import expect_left
from amqp_broker.conformance.scenario import scenario
from amqp_broker.conformance.transactions import (
    DISTRIBUTED,
    LOCAL,
    MULTI_SSNS,
    MULTI_TXNS,
    Controller,
    expect_state,
    post,
    request,
)
from amqp_broker.conformance.transcript import describe
from amqp_broker.frames import (
    RECEIVER,
    Attach,
    Coordinator,
    Declare,
    Declared,
    Discharge,
    Header,
    Properties,
    Source,
    Symbol,
    encode_composite,
)

CAPABILITIES = {LOCAL, DISTRIBUTED, "amqp:promotable-transactions", MULTI_TXNS, MULTI_SSNS}
"""4.5.7."""

OFFERED = {LOCAL, MULTI_TXNS, MULTI_SSNS}
"""What this project's coordinator offers."""


def _capabilities(control: Controller) -> set[str]:
    """Returns what the broker's attach says that its coordinator can do."""
    target = control.attach.target
    if not isinstance(target, Coordinator):
        raise Unexpected(f"expected a coordinator as the target, got {describe(control.attach)}")
    return {str(one) for one in target.capabilities or ()}


@scenario("4.2/declare", "4.2-coordinator", "4.2-body", "4.2-declared", "4.5.5-declared", "4.1-control-link")
def declare(broker: Broker) -> None:
    """A declare is answered with declared and a txn-id, and the transaction can be discharged."""
    control = Controller(broker)
    control.commit(control.declare())


@scenario("4.2/several-at-a-time", "4.5.7-multi-txns", "4.2-declared")
def several_at_a_time(broker: Broker) -> None:
    """Three transactions of one control link have three ids, and are discharged in another order."""
    control = Controller(broker, needs=(MULTI_TXNS,))
    first, second, third = (control.declare() for _ in range(3))
    if len({first, second, third}) != 3:
        raise Unexpected("two live transactions have one txn-id")
    control.commit(second)
    control.roll_back(third)
    control.commit(first)


@scenario("4.2/two-control-links", "4.2-coordinator", "4.1-control-link", "4.5.7-multi-txns")
def two_control_links(broker: Broker) -> None:
    """Two control links of a session each have their own transactions."""
    one = Controller(broker, needs=(MULTI_TXNS,))
    two = Controller(broker, one.session, handle=101, name="second-control")
    first, second = one.declare(), two.declare()
    two.commit(second)
    one.commit(first)


@scenario("4.5.4/id", "4.5.4-length", "4.5.5-declared")
def txn_id(broker: Broker) -> None:
    """Ids are up to 32 octets of binary data, and 20 transactions one after the other have 20 of them."""
    control = Controller(broker)
    ids = set()
    for _ in range(20):
        txn = control.declare()
        control.commit(txn)
        ids.add(txn)
    if len(ids) != 20 or max(len(txn) for txn in ids) > 32:
        raise Unexpected(f"expected 20 ids of at most 32 octets, got {sorted(txn.hex() for txn in ids)}")


@scenario("4.5.4/sixteen-octets", "4.5.4-length", profile="full")
def sixteen_octets(broker: Broker) -> None:
    """Ids are 16 octets that nobody can guess: no two of 40, of two connections, begin or end alike."""
    controls = [Controller(broker, broker.session(container=f"controller-{number}")) for number in range(2)]
    ids = []
    for control in controls:
        for _ in range(20):
            ids.append(control.declare())
            control.roll_back(ids[-1])
    if {len(txn) for txn in ids} != {16}:
        raise Unexpected(f"expected ids of 16 octets, got {sorted(txn.hex() for txn in ids)}")
    for part in (slice(0, 4), slice(6, 10), slice(12, 16)):
        if len({txn[part] for txn in ids}) != len(ids):
            raise Unexpected(f"two ids have octets in common: {sorted(txn.hex() for txn in ids)}")


@scenario("4.5.1/capabilities", "4.5.1-actual", "4.5.7-local")
def capabilities(broker: Broker) -> None:
    """The broker's attach has a coordinator as its target, and names capabilities that there are."""
    control = Controller(broker)
    unknown = _capabilities(control) - CAPABILITIES
    if unknown:
        raise Unexpected(f"these are no capabilities of a coordinator: {sorted(unknown)}")


@scenario("4.5.1/no-wish", "4.5.1-desired", "4.2-coordinator")
def no_wish(broker: Broker) -> None:
    """A control link that wishes for no capability can declare and discharge."""
    control = Controller(broker, target=Coordinator())
    control.commit(control.declare())


@scenario("4.5.1/exactly", "4.5.1-actual", "4.5.1-desired", profile="full")
def exactly(broker: Broker) -> None:
    """The coordinator offers exactly what works, whatever is wished for."""
    session = broker.session()
    for number, wish in enumerate(((), (LOCAL,), tuple(CAPABILITIES))):
        wished = Coordinator(capabilities=tuple(wish) or None)
        control = Controller(broker, session, handle=number, name=f"control-{number}", target=wished)
        if _capabilities(control) != OFFERED:
            raise Unexpected(f"expected the capabilities {sorted(OFFERED)}, got {describe(control.attach)}")


@scenario("4.5.1/other-direction", "4.1-control-link", profile="full")
def other_direction(broker: Broker) -> None:
    """A link on which the broker would send to a coordinator is refused with an error."""
    session = Controller(broker).session
    session.put(
        Attach(
            name="backwards",
            handle=5,
            role=RECEIVER,
            source=Source(address=broker.queue()),
            target=Coordinator(),
        )
    )
    session.peer.expect(Attach, name="backwards")
    session.peer.expect_detach("amqp:not-implemented", "amqp:invalid-field", "amqp:not-allowed")
    broker.still_serves()


@scenario("4.2/other-sections", "4.2-02")
def other_sections(broker: Broker) -> None:
    """Other sections around the amqp-value section of a declare are ignored."""
    control = Controller(broker)
    payload = b"".join(
        (
            encode_composite(Header(durable=True, priority=9, ttl=1, delivery_count=3)),
            section(MESSAGE_ANNOTATIONS, {Symbol("x-opt-any"): "thing"}),
            encode_composite(Properties(subject="discharge", reply_to="nobody")),
            section(APPLICATION_PROPERTIES, {"fail": True}),
            request(Declare()),
            section(FOOTER, {Symbol("x-opt-end"): 1}),
        )
    )
    expect_state(control.answer(control.link.send(payload)), Declared)


@scenario("4.2/several-frames", "4.2-body", "4.2-declared")
def several_frames(broker: Broker) -> None:
    """A declare may come in several transfers, as any message."""
    control = Controller(broker)
    expect_state(control.answer(control.ask(Declare(), frame_octets=2)), Declared)


@scenario("4.1/credit", "4.1-control-link", profile="full")
def credit(broker: Broker) -> None:
    """A control link has a credit of at least 10, and has it again when 10 requests are answered."""
    control = Controller(broker)
    for _ in range(5):
        control.link.await_credit(10)
        with control.peer.one_write():
            requests = [control.ask(Declare(), wait=False) for _ in range(10)]
        ids = [expect_state(control.answer(number), Declared).txn_id for number in requests]
        control.link.await_credit(10)
        for txn in ids:
            control.roll_back(txn)


@scenario("4.2/not-resumed", "4.2-not-resumed", "4.1-closed")
def not_resumed(broker: Broker) -> None:
    """A control link that is detached and attached again is a new one: its transaction has gone."""
    control = Controller(broker)
    txn = control.declare()
    post(control.session.sender(broker.queue()), txn, b"never", settled=True)
    control.session.catch_up()
    control.link.detach(closed=False)
    again = Controller(broker, control.session, unsettled={b"\x00\x00\x00\x00": Declared(txn_id=txn)})
    if again.attach.unsettled:
        raise Unexpected(f"the broker resumes a control link: {describe(again.attach)}")
    again.refused(Discharge(txn_id=txn, fail=False))
    expect_left(broker, broker.queue())
