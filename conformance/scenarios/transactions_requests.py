"""Requests that a coordinator cannot do, and messages that are none (4.2)."""

from amqp_broker.conformance.broker import Broker
from amqp_broker.conformance.messages import (
    AMQP_SEQUENCE,
    AMQP_VALUE,
    data,
    section,
)
from amqp_broker.conformance.octets import described, list8
from amqp_broker.conformance.outcomes import NotApplicable, Unexpected
from amqp_broker.conformance.queues import expect_left
from amqp_broker.conformance.scenario import scenario
from amqp_broker.conformance.transactions import (
    DISTRIBUTED,
    Controller,
    Delivered,
    expect_some_error,
    request,
    within,
)
from amqp_broker.conformance.transcript import describe
from amqp_broker.frames import (
    Accepted,
    Coordinator,
    Declare,
    Header,
    Rejected,
    Source,
    encode_composite,
)


def _capabilities(control: Controller) -> set[str]:
    """Returns what the broker's attach says that its coordinator can do."""
    target = control.attach.target
    if not isinstance(target, Coordinator):
        raise Unexpected(f"expected a coordinator as the target, got {describe(control.attach)}")
    return {str(one) for one in target.capabilities or ()}


@scenario("4.2/settled-declare", "4.2-04")
def settled_declare(broker: Broker) -> None:
    """A declare that is sent settled: the control link is detached with an error; a new one works."""
    control = Controller(broker)
    control.ask(Declare(), settled=True)
    control.link.expect_detach()
    again = Controller(broker, control.session, handle=101, name="control-again")
    again.commit(again.declare())
    again.peer.close()


@scenario("4.2/settled-declare-rolls-back", "4.2-04", "4.1-closed", profile="full")
def settled_declare_rolls_back(broker: Broker) -> None:
    """The control link that goes for a settled declare takes its live transactions with it."""
    work = Delivered(broker)
    work.retire(Accepted(), settled=True)
    work.control.ask(Declare(), settled=True)
    work.control.link.expect_detach()
    expect_left(broker, broker.queue(), b"0")


def _global(broker: Broker) -> Declare:
    """Returns a declare that no coordinator without distributed transactions can do."""
    if DISTRIBUTED in (broker.findings.coordinator or ()):
        raise NotApplicable(f"the coordinator offers {DISTRIBUTED}")
    return Declare(global_id=b"a global transaction")


@scenario("4.5.2/global-id", "4.5.2-02", "4.2-05", "4.2-06")
def global_id(broker: Broker) -> None:
    """A declare with a global-id is rejected where transactions are local; the link works on."""
    control = Controller(broker)
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


@scenario("4.2/no-outcomes", "4.2-06", profile="full")
def no_outcomes(broker: Broker) -> None:
    """A source that names no outcomes excludes none: the error comes in a rejected, and the link works on."""
    control = Controller(broker, outcomes=None)
    control.refused(_global(broker))
    control.commit(control.declare())


@scenario("4.2/default-outcome-rejected", "4.2-06", profile="full")
def default_outcome_rejected(broker: Broker) -> None:
    """A source whose default-outcome is rejected offers it: the error comes in a rejected."""
    control = Controller(broker, source=Source(default_outcome=Rejected()))
    control.refused(_global(broker))


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
def neither(broker: Broker) -> None:
    """A message that is neither a declare nor a discharge is answered with an error, not with an id."""
    control = Controller(broker)
    control.link.send(data(b"declare"))
    expect_some_error(control.peer)
    broker.still_serves()


@scenario("4.2/neither-rejected", "4.2-body", "4.2-06", profile="full")
def neither_rejected(broker: Broker) -> None:
    """Each of many messages that are neither declare nor discharge is rejected; the link works on."""
    control = Controller(broker)
    for what, payload in NEITHER.items():
        broker.transcript.event("", what)
        control.expect_rejected(control.link.send(payload))
    control.commit(control.declare())


@scenario("4.1/no-work-on-control-link", "4.1-no-work")
def no_work_on_control_link(broker: Broker) -> None:
    """A message in a transaction that is sent on the control link is refused with an error."""
    control = Controller(broker)
    txn = control.declare()
    control.link.send(data(b"work"), state=within(txn))
    expect_some_error(control.peer)
    broker.still_serves()


@scenario("4.1/no-work-terminates", "4.1-no-work", profile="full")
def no_work_terminates(broker: Broker) -> None:
    """A declare in a transaction is work on the control link: the link is detached."""
    control = Controller(broker)
    control.ask(Declare(), state=within(control.declare()))
    control.link.expect_detach()
    control.session.catch_up()
    control.peer.close()
