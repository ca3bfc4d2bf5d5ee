"""Control links, what the coordinator offers, declares, and requests that it cannot do (4.1, 4.2, 4.5)."""

from typing import Any

from amqp_broker.conformance.broker import Broker
from amqp_broker.conformance.dialogue import Session
from amqp_broker.conformance.messages import (
    AMQP_SEQUENCE,
    AMQP_VALUE,
    APPLICATION_PROPERTIES,
    FOOTER,
    MESSAGE_ANNOTATIONS,
    data,
    section,
)
from amqp_broker.conformance.octets import described, list8
from amqp_broker.conformance.outcomes import NotApplicable, Unexpected, expect, expect_state
from amqp_broker.conformance.queues import expect_left
from amqp_broker.conformance.scenario import Case, cases, scenario
from amqp_broker.conformance.transactions import (
    DISTRIBUTED,
    LOCAL,
    MULTI_SSNS,
    MULTI_TXNS,
    Controller,
    Delivered,
    expect_some_error,
    post,
    request,
    within,
)
from amqp_broker.conformance.transcript import describe
from amqp_broker.frames import (
    RECEIVER,
    Accepted,
    Attach,
    Coordinator,
    Declare,
    Declared,
    Discharge,
    Header,
    Properties,
    Rejected,
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


@cases(
    Case("4.2/declare", "4.2-coordinator 4.2-body 4.2-declared 4.5.5-declared 4.1-control-link",
         "A declare is answered with declared and a txn-id, and the transaction can be discharged."),
    Case("4.5.1/no-wish", "4.5.1-desired 4.2-coordinator",
         "A control link that wishes for no capability can declare and discharge.",
         target=Coordinator()),
)
def _works(broker: Broker, **fields: Any) -> None:
    """A control link with such an attach declares and discharges."""
    control = Controller(broker, **fields)
    control.commit(control.declare())


@scenario("4.2/several-at-a-time", "4.5.7-multi-txns", "4.2-declared")
def several_at_a_time(broker: Broker) -> None:
    """Three transactions of one control link have three ids, and are discharged in another order."""
    control = Controller(broker, needs=(MULTI_TXNS,))
    first, second, third = (control.declare() for _ in range(3))
    expect(len({first, second, third}) == 3, "two live transactions have one txn-id")
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
def txn_id(control: Controller) -> None:
    """Ids are up to 32 octets of binary data, and 20 transactions that are live at once have 20 of them."""
    ids = [control.declare() for _ in range(20 if MULTI_TXNS in _capabilities(control) else 1)]
    for txn in ids:
        control.commit(txn)
    if len(set(ids)) != len(ids) or max(len(txn) for txn in ids) > 32:
        got = sorted(txn.hex() for txn in ids)
        raise Unexpected(f"expected {len(ids)} ids of at most 32 octets, got {got}")


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
def capabilities(control: Controller) -> None:
    """The broker's attach has a coordinator as its target, and names capabilities that there are."""
    unknown = _capabilities(control) - CAPABILITIES
    expect(not unknown, f"these are no capabilities of a coordinator: {sorted(unknown)}")


@scenario("4.5.1/exactly", "4.5.1-actual", "4.5.1-desired", profile="full")
def exactly(broker: Broker, session: Session) -> None:
    """The coordinator offers exactly what works, whatever is wished for."""
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
def other_sections(control: Controller) -> None:
    """Other sections around the amqp-value section of a declare are ignored."""
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
def several_frames(control: Controller) -> None:
    """A declare may come in several transfers, as any message."""
    expect_state(control.answer(control.ask(Declare(), frame_octets=2)), Declared)


@scenario("4.1/credit", "4.1-control-link", profile="full")
def credit(control: Controller) -> None:
    """A control link has a credit of at least 10, and has it again when 10 requests are answered."""
    for _ in range(5):
        control.link.await_credit(10)
        with control.peer.one_write():
            requests = [control.ask(Declare(), wait=False) for _ in range(10)]
        ids = [expect_state(control.answer(number), Declared).txn_id for number in requests]
        control.link.await_credit(10)
        for txn in ids:
            control.roll_back(txn)


@scenario("4.2/not-resumed", "4.2-not-resumed", "4.1-closed")
def not_resumed(broker: Broker, control: Controller) -> None:
    """A control link that is detached and attached again is a new one: its transaction has gone."""
    txn = control.declare()
    post(control.session.sender(broker.queue()), txn, b"never", settled=True)
    control.session.catch_up()
    control.link.detach(closed=False)
    again = Controller(broker, control.session, unsettled={b"\x00\x00\x00\x00": Declared(txn_id=txn)})
    expect(not again.attach.unsettled, f"the broker resumes a control link: {describe(again.attach)}")
    again.refused(Discharge(txn_id=txn, fail=False))
    expect_left(broker, broker.queue())


@scenario("4.2/settled-declare", "4.2-04", breaks="4.2-03")
def settled_declare(broker: Broker, control: Controller) -> None:
    """A declare that is sent settled: the control link is detached with an error; a new one works."""
    control.ask(Declare(), settled=True)
    control.link.expect_detach()
    again = Controller(broker, control.session, handle=101, name="control-again")
    again.commit(again.declare())
    again.peer.close()


@scenario("4.2/settled-declare-rolls-back", "4.2-04", "4.1-closed", profile="full", breaks="4.2-03")
def settled_declare_rolls_back(broker: Broker, work: Delivered) -> None:
    """The control link that goes for a settled declare takes its live transactions with it."""
    work.retire(Accepted(), settled=True)
    work.control.ask(Declare(), settled=True)
    work.control.link.expect_detach()
    expect_left(broker, broker.queue(), b"0")


def _global(broker: Broker) -> Declare:
    """Returns a declare that no coordinator without distributed transactions can do."""
    if DISTRIBUTED in (broker.findings.coordinator or ()):
        raise NotApplicable(f"the coordinator offers {DISTRIBUTED}")
    return Declare(global_id=b"a global transaction")


@cases(
    Case("4.5.2/global-id", "4.5.2-02 4.2-05 4.2-06",
         "A declare with a global-id is rejected where transactions are local; the link works on."),
    Case("4.2/no-outcomes", "4.2-06",
         "A source that names no outcomes excludes none: the error comes in a rejected, and the link "
         "works on.",
         outcomes=None, profile="full"),
    Case("4.2/default-outcome-rejected", "4.2-06",
         "A source whose default-outcome is rejected offers it: the error comes in a rejected.",
         source=Source(default_outcome=Rejected()), profile="full"),
)
def _global_is_rejected(broker: Broker, **fields: Any) -> None:
    """Declares with a global-id on a control link with such an attach; the link works on."""
    control = Controller(broker, **fields)
    control.refused(_global(broker))
    control.commit(control.declare())


@scenario("4.2/no-rejected", "4.2-07", "4.5.2-02")
def no_rejected(broker: Broker) -> None:
    """A declare that fails where the source does not offer rejected: the error comes in a detach."""
    control = Controller(broker, outcomes=("amqp:accepted:list",))
    control.ask(_global(broker))
    control.link.expect_detach()
    control.session.catch_up()
    control.peer.close()


NEITHER = {
    "a data section": data(b"declare"),
    "a string": section(AMQP_VALUE, "declare"),
    "an accepted": described(AMQP_VALUE, described(0x24, list8())),
    "an unknown described type": described(AMQP_VALUE, described(0x99, list8())),
    "a sequence": section(AMQP_SEQUENCE, [1]),
    "two declares": request(Declare()) * 2,
    "no body": encode_composite(Header()),
    "no octets": b"",
    "a broken section": b"\x00\x53\x77\xd0\xff\xff",
    "a discharge without a txn-id": described(AMQP_VALUE, described(0x32, list8())),
}
"""Messages that are neither a declare nor a discharge."""


@scenario("4.2/neither", "4.2-body", "4.2-05")
def neither(broker: Broker, control: Controller) -> None:
    """A message that is neither a declare nor a discharge is answered with an error, not with an id."""
    control.link.send(data(b"declare"))
    expect_some_error(control.peer)
    broker.still_serves()


@scenario("4.2/neither-rejected", "4.2-body", "4.2-06", profile="full")
def neither_rejected(broker: Broker, control: Controller) -> None:
    """Each of many messages that are neither declare nor discharge is rejected; the link works on."""
    for what, payload in NEITHER.items():
        broker.transcript.event("", what)
        control.expect_rejected(control.link.send(payload))
    control.commit(control.declare())


@scenario("4.1/no-work-on-control-link", "4.1-no-work")
def no_work_on_control_link(broker: Broker, control: Controller) -> None:
    """A message in a transaction that is sent on the control link is refused with an error."""
    txn = control.declare()
    control.link.send(data(b"work"), state=within(txn))
    expect_some_error(control.peer)
    broker.still_serves()


@scenario("4.1/no-work-terminates", "4.1-no-work", profile="full")
def no_work_terminates(control: Controller) -> None:
    """A declare in a transaction is work on the control link: the link is detached."""
    control.ask(Declare(), state=within(control.declare()))
    control.link.expect_detach()
    control.session.catch_up()
    control.peer.close()
