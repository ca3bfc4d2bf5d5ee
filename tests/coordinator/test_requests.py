"""Messages to the coordinator, its capabilities, and how a failure is told (4.2, 4.3, 4.5)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_broker.coordinator import (
    ControlLinkTerminated,
    TransactionError,
    coordinator_answer,
    decode_request,
    failed_answer,
)
from amqp_broker.coordinator.errors import MalformedRequest, NotAllowed, NotSupported, UnknownTransaction
from amqp_broker.coordinator.requests import CAPABILITIES
from amqp_broker.frames import (
    AmqpValue,
    Data,
    Declare,
    Discharge,
    Header,
    Rejected,
    Source,
    TransactionalState,
    decode_composite,
    encode_composite,
    encode_message,
)
from tests.support.examples import examples

TXN = b"0123456789abcdef"


def message(value: Any, **sections: Any) -> bytes:
    """A message whose body is one amqp-value section."""
    return encode_message(body=AmqpValue(value), **sections)


@pytest.mark.parametrize("request_", [Declare(), Discharge(txn_id=TXN), Discharge(txn_id=TXN, fail=True)])
def test_declare_and_discharge_are_read(request_: Declare | Discharge) -> None:
    """One amqp-value section holds the request, and a header is ignored (4.2)."""
    assert decode_request(message(request_), False) == request_
    assert decode_request(message(request_, header=Header(durable=True)), False) == request_


def test_rule_2_a_settled_request_is_refused() -> None:
    """Rule 2: a declare or discharge MUST NOT be sent settled; the coordinator detaches (4.2, 4.3)."""
    with pytest.raises(NotAllowed) as refused:
        decode_request(message(Declare()), True)
    offers = Source(outcomes=("amqp:rejected:list",))
    assert failed_answer(offers, refused.value) is None
    assert refused.value.error().condition == "amqp:illegal-state"


def test_no_transactional_work_on_a_control_link() -> None:
    """A transfer with a transactional-state on a control link is refused (4.1)."""
    with pytest.raises(NotAllowed):
        decode_request(message(Declare()), False, TransactionalState(txn_id=TXN))


def test_rule_13_a_global_id_is_not_implemented() -> None:
    """Rule 13: global-id needs distributed-transactions, which is not offered (4.5.2)."""
    assert "amqp:distributed-transactions" not in CAPABILITIES
    with pytest.raises(NotSupported) as refused:
        decode_request(message(Declare(global_id=b"g")), False)
    assert refused.value.condition == "amqp:not-implemented"


@pytest.mark.parametrize(
    ("payload", "error", "condition"),
    [
        (b"", MalformedRequest, "amqp:decode-error"),
        (b"\x00\x53\x77", MalformedRequest, "amqp:decode-error"),
        (b"rubbish", MalformedRequest, "amqp:decode-error"),
        (encode_message(body=Data(b"x")), MalformedRequest, "amqp:decode-error"),
        (b"\x00\x53\x77\x00\x53\x32\x45", MalformedRequest, "amqp:decode-error"),  # discharge without txn-id
        (message("declare"), NotSupported, "amqp:not-implemented"),
        (message(TransactionalState(txn_id=TXN)), NotSupported, "amqp:not-implemented"),
    ],
)
def test_anything_else_is_malformed(payload: bytes, error: type[Exception], condition: str) -> None:
    """A message that is neither declare nor discharge has its own answer."""
    with pytest.raises(error) as refused:
        decode_request(payload, False)
    assert isinstance(refused.value, TransactionError)
    assert refused.value.condition == condition


@examples(200)
@given(st.binary(max_size=40).map(lambda tail: b"\x00\x53\x77" + tail) | st.binary(max_size=40))
def test_no_bytes_raise_anything_else(payload: bytes) -> None:
    """Any octets give a request or a TransactionError."""
    try:
        assert isinstance(decode_request(payload, False), (Declare, Discharge))
    except TransactionError:
        pass


def test_rule_3_rejected_where_not_excluded_else_detach() -> None:
    """Rule 3: the transaction-error goes into `rejected`, unless the source says which outcomes it takes and
    that is none of them: then a detach carries it (4.2). Who says nothing of outcomes waits for one.
    """
    error = UnknownTransaction("which?")
    answer = failed_answer(Source(outcomes=("amqp:accepted:list", "amqp:rejected:list")), error)
    assert isinstance(answer, Rejected) and answer.error is not None
    assert answer.error.condition == "amqp:transaction:unknown-id"
    assert answer.error.description == "which?"
    for source in (None, Source(), Source(outcomes=()), Source(default_outcome=Rejected())):
        assert failed_answer(source, error) == answer
    assert failed_answer(Source(outcomes=("amqp:accepted:list",)), error) is None


def test_rule_6_is_told_by_a_detach_always() -> None:
    """Rule 6: the control link MUST be terminated, even if its source offers rejected (4.4.1, 4.4.2)."""
    error = ControlLinkTerminated("partial", "control")
    assert failed_answer(Source(outcomes=("amqp:rejected:list",)), error) is None
    assert error.error().condition == "amqp:transaction:rollback"


def test_capabilities_are_those_that_are_implemented() -> None:
    """The offered list is the mapping's keys, and each value is code that runs (4.5.1)."""
    answer = coordinator_answer()
    assert answer.capabilities == tuple(CAPABILITIES)
    assert all(callable(found) for found in CAPABILITIES.values())
    assert decode_composite(encode_composite(answer))[0] == answer
