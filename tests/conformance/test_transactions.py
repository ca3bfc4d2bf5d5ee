"""The controller's side of the scenarios, against brokers without a coordinator and with a bad one."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import attrs
import pytest

from amqp_broker.client.settings import Endpoint
from amqp_broker.conformance.broker import Broker, Findings, Settings, endpoint_of, probe
from amqp_broker.conformance.messages import AMQP_VALUE, data, section
from amqp_broker.conformance.octets import described
from amqp_broker.conformance.outcomes import NotApplicable, Unexpected, Verdict
from amqp_broker.conformance.queues import body_of, delivery_count, expect_left, put
from amqp_broker.conformance.runner import run_scenario
from amqp_broker.conformance.scenario import load_scenarios
from amqp_broker.conformance.transactions import (
    MULTI_TXNS,
    ROLLBACK,
    Controller,
    copying,
    expect_provisional,
    post,
    request,
)
from amqp_broker.frames import (
    AMQP_HEADER,
    Accepted,
    Attach,
    Close,
    Coordinator,
    Declare,
    Declared,
    Detach,
    Discharge,
    Disposition,
    End,
    Error,
    Flow,
    Header,
    Rejected,
    Source,
    Target,
    TransactionalState,
    Transfer,
    encode_composite,
)
from amqp_broker.testing import running_broker
from amqp_broker.testing.peer import Delivery
from tests.conformance.probed import probed, scenario_broker
from tests.conformance.scripted_server import BEGUN, EVERYTHING, OPENED, Step, octets, scripted_server

SETTINGS = Settings(Endpoint("127.0.0.1", 1, False))

LOCAL = ("amqp:local-transactions",)


def _attach(name: str = "control", target: object = None) -> Attach:
    return Attach(name=name, handle=0, role=True, source=Source(), target=target)  # type: ignore[arg-type]


CREDIT = Flow(
    next_incoming_id=0, incoming_window=100, next_outgoing_id=0, outgoing_window=100, handle=0,
    delivery_count=0, link_credit=10,
)  # fmt: skip


def _said(number: int, state: object, settled: bool = True) -> Disposition:
    return Disposition(role=True, first=number, settled=settled, state=state)  # type: ignore[arg-type]


@contextmanager
def _control(*answers: object) -> Iterator[Controller]:
    """A control link to a server that gives these answers, whatever it is asked."""
    script: list[Step] = [BEGUN + octets(_attach(target=Coordinator()), CREDIT, *answers), EVERYTHING]
    with scripted_server(script) as port:
        settings = Settings(
            Endpoint("127.0.0.1", port, False), timeout_s=0.3, findings=Findings((), True, coordinator=LOCAL)
        )
        with scenario_broker(settings, "4.2/test") as broker:
            yield Controller(broker)


REFUSALS: list[tuple[list[object], str]] = [
    ([_attach("sender-0"), Detach(handle=0, error=Error(condition="amqp:not-implemented"))], "amqp:not-impl"),
    ([End(error=Error(condition="amqp:decode-error"))], "amqp:decode-error"),
    ([Close(error=Error(condition="amqp:internal-error"))], "amqp:internal-error"),
    ([_attach("sender-0", Target(address="made of it")), Detach(handle=0)], "detach(handle=0)"),
    ([], "nothing came"),
]


def _probed(*answers: object) -> list[list[Step]]:
    """The dialogues of a probe: both headers, an open, and a control link that is answered so."""
    attached = BEGUN + octets(*answers)
    opened: list[Step] = [OPENED, EVERYTHING]
    return [[8, AMQP_HEADER, EVERYTHING], opened, opened, [attached, EVERYTHING]]


@pytest.mark.parametrize(("answers", "reason"), REFUSALS, ids=[reason for _, reason in REFUSALS])
def test_what_is_no_coordinator_is_found_out(answers: list[object], reason: str) -> None:
    """A broker that refuses the control link in any way, or says nothing, has no coordinator."""
    with scripted_server(*_probed(*answers)) as port:
        findings = probe(Settings(Endpoint("127.0.0.1", port, False), timeout_s=0.3))
    assert findings.coordinator is None
    assert reason in findings.no_coordinator


def test_a_coordinator_is_found_out() -> None:
    """What our broker's coordinator offers is known after the first connections."""
    with running_broker() as broker:
        findings = probe(Settings(endpoint_of(broker.url)))
    assert findings.coordinator is not None and set(LOCAL) < set(findings.coordinator)


def test_without_a_coordinator_all_of_part_4_is_skipped() -> None:
    """No scenario of part 4 fails, or even connects, where there is no coordinator."""
    settings = attrs.evolve(SETTINGS, findings=Findings((), True, no_coordinator="it says no"))
    results = [run_scenario(one, settings) for one in load_scenarios() if one.id.startswith("4.")]
    assert len(results) > 100
    assert {(result.verdict, result.message) for result in results} == {
        (Verdict.SKIPPED, "no coordinator: it says no")
    }


def test_a_capability_that_is_not_offered_is_a_skip() -> None:
    """A scenario that needs a capability has nothing to show without it."""
    settings = attrs.evolve(SETTINGS, findings=Findings((), True, coordinator=LOCAL))
    with pytest.raises(NotApplicable, match="does not offer amqp:multi-txns-per-ssn"):
        Broker(settings, "4.2/test").require_coordinator(MULTI_TXNS)


def test_declare_and_discharge() -> None:
    """Declared gives the id, accepted ends the transaction."""
    with _control(_said(0, Declared(txn_id=b"txn")), _said(1, Accepted())) as control:
        assert control.declare() == b"txn"
        control.commit(b"txn")


def _asks_in_vain(control: Controller) -> object:
    return control.expect_rejected(control.ask(Discharge(txn_id=b"txn", fail=False)), ROLLBACK)


def _waits_for_the_end(control: Controller) -> object:
    return control.link.expect_detach(ROLLBACK)


def _posts(control: Controller) -> object:
    assert control.declare() == b"txn"
    (number,) = post(control.link, b"txn", b"posted")
    return expect_provisional(control.link, number, b"txn", Accepted)


DECLARED = (_said(0, Declared(txn_id=b"txn")), _said(7, Declared(txn_id=b"other")))
OTHER_ERROR = Error(condition="amqp:not-found")
BAD_ANSWERS: list[tuple[Callable[[Controller], object], tuple[object, ...], str]] = [
    (Controller.declare, (_said(0, Accepted()),), "expected declared, got accepted"),
    (Controller.declare, (_said(0, Declared(txn_id=b"txn"), settled=False),), "expected a settled outcome"),
    (Controller.declare, (_said(0, TransactionalState(txn_id=b"t", outcome=Accepted())),),
     "expected declared"),
    (Controller.declare, (_said(1, Declared(txn_id=b"txn")),), "nothing came"),
    (Controller.declare, (Detach(handle=0),), "got detach"),
    (_asks_in_vain, (_said(0, Accepted()),), "expected rejected, got accepted"),
    (_asks_in_vain, (_said(0, Rejected()),), f"expected {ROLLBACK}"),
    (_asks_in_vain, (_said(0, Rejected(error=OTHER_ERROR)),), f"expected {ROLLBACK}"),
    (_waits_for_the_end, (Detach(handle=0),), "with an error"),
    (_waits_for_the_end, (Detach(handle=1, error=Error(condition=ROLLBACK)),), "handle 0 with an error"),
    (_waits_for_the_end, (Detach(handle=0, error=OTHER_ERROR),), f"expected {ROLLBACK}"),
    (_posts, (*DECLARED, _said(1, Accepted())), "expected transactionalstate"),
    (_posts, (*DECLARED, _said(1, TransactionalState(txn_id=b"other", outcome=Accepted()))), "4.4.4.1-03"),
    (_posts, (*DECLARED, _said(1, TransactionalState(txn_id=b"txn"))), "expected accepted, got None"),
    (_posts, (*DECLARED, _said(1, TransactionalState(txn_id=b"txn", outcome=Rejected()))),
     "expected accepted, got rejected"),
]  # fmt: skip


@pytest.mark.parametrize(("asks", "answers", "message"), BAD_ANSWERS)
def test_a_bad_answer_is_told(
    asks: Callable[[Controller], object], answers: tuple[object, ...], message: str
) -> None:
    """A declare that is not declared, a request that should fail, the end of a control link, a provisional
    outcome: another state, another transaction or link, no error or another one.
    """
    with _control(*answers) as control, pytest.raises(Unexpected, match=message):
        asks(control)


def test_every_transfer_of_a_post_names_its_transaction() -> None:
    """A message over several transfers carries the state in each of them (4.4.1)."""
    with _control() as control:
        sent: list[object] = []
        control.session.put = lambda performative, payload=b"": sent.append(performative)  # type: ignore[method-assign]
        control.link.send(b"abc", frame_octets=1, state=TransactionalState(txn_id=b"txn"))
    states = [frame.state for frame in sent if isinstance(frame, Transfer)]
    assert states == [TransactionalState(txn_id=b"txn")] * 3


def test_what_is_left_at_a_queue_is_told() -> None:
    """Fewer messages, more, others and another order than expected are told."""
    with (
        running_broker() as server,
        scenario_broker(probed(server.url, run_id="left", timeout_s=0.3), "4.4/test") as broker,
    ):
        put(broker, "good", b"1", b"2")
        expect_left(broker, "good", b"2", b"1")
        expect_left(broker, "good", b"1", b"2", in_order=True)
        for number, bodies in enumerate(((b"1",), (b"1", b"2", b"3"), (b"1", b"3"))):
            put(broker, f"bad-{number}", b"1", b"2")
            with pytest.raises(Unexpected):
                expect_left(broker, f"bad-{number}", *bodies)
        put(broker, "turned", b"1", b"2")
        with pytest.raises(Unexpected, match="at the queue"):
            expect_left(broker, "turned", b"2", b"1", in_order=True)
        assert copying(broker, "good").remote_attach is not None


def test_messages_of_a_controller_are_what_they_seem() -> None:
    """The request is one amqp-value section with the composite; bodies and counts are read back."""
    assert request(Declare()) == section(AMQP_VALUE, None)[:3] + encode_composite(Declare())
    assert request(Declare()) == described(AMQP_VALUE, encode_composite(Declare()))
    for body in (b"", b"short", b"x" * 300):
        payload = encode_composite(Header(delivery_count=2)) + data(body)
        delivery = Delivery(Transfer(handle=0, delivery_id=0), payload)
        assert (body_of(delivery), delivery_count(delivery)) == (body, 2)
    with pytest.raises(Unexpected, match="no data section"):
        body_of(Delivery(Transfer(handle=0, delivery_id=0), request(Declare())))
