"""Termini as they really are: what is answered, what is refused, and what the anonymous terminus tells
(3.5).
"""

from __future__ import annotations

from typing import Any

import pytest

from amqp_broker.frames import (
    LIFETIME_POLICIES,
    Accepted,
    Declared,
    DeleteOnClose,
    Described,
    Error,
    Modified,
    Properties,
    Rejected,
    Released,
    Source,
    Symbol,
    Target,
    takes_rejected,
)
from amqp_broker.nodes.refusals import NodeRefused, detach_error
from amqp_broker.nodes.termini import OUTCOMES, source_answer, target_answer
from tests.support.by_hand import Served, at_hand, text

ALL = tuple(OUTCOMES.values())
ACCEPTED, REJECTED, RELEASED, MODIFIED = ALL
OTHER = Described(Symbol("example:another:list"), [])


def refused(call: Any, *arguments: Any) -> str:
    """The condition with which it is refused; the description says what came."""
    with pytest.raises(NodeRefused) as caught:
        call(*arguments)
    error = caught.value.error
    assert error.description is not None and ("expected" in error.description or "(" in error.description)
    return error.condition


@pytest.mark.parametrize(
    ("wished", "default", "held"),
    [
        (None, None, ALL),
        ((), None, ALL),
        ((ACCEPTED,), None, (ACCEPTED,)),
        ((ACCEPTED, RELEASED), Released(), (ACCEPTED, RELEASED)),
        ((ACCEPTED, "example:another:list"), None, (ACCEPTED,)),
        (None, Modified(delivery_failed=True), ALL),
        ((), Rejected(), ALL),
    ],
)
def test_outcomes_that_can_be_had(wished: Any, default: Any, held: Any) -> None:
    """Those that were asked for and are known; all where none were asked for."""
    answer = source_answer(Source(outcomes=wished, default_outcome=default), "q")
    assert answer.outcomes == held
    assert answer.default_outcome == (default or Released())


@pytest.mark.parametrize(
    ("wished", "default", "condition"),
    [
        (("example:another:list",), None, "amqp:not-implemented"),
        (("amqp:received:list",), None, "amqp:not-implemented"),
        (None, OTHER, "amqp:not-implemented"),
        (None, Declared(txn_id=b"t"), "amqp:not-implemented"),
        ((ACCEPTED,), Released(), "amqp:invalid-field"),
        ((ACCEPTED, REJECTED), Modified(), "amqp:invalid-field"),
    ],
)
def test_outcomes_that_cannot_be_had_are_refused(wished: Any, default: Any, condition: str) -> None:
    """Not answered with others: the receiver would choose what nobody understands, or lose by a default that
    it excluded.
    """
    assert refused(source_answer, Source(outcomes=wished, default_outcome=default), "q") == condition


@pytest.mark.parametrize("durable", [1, 2])
@pytest.mark.parametrize(
    ("expiry", "timeout"),
    [("never", 0), ("connection-close", 0), ("session-end", 1), ("link-detach", 3_600)],
)
def test_a_source_that_does_not_last_says_so(durable: int, expiry: str, timeout: int) -> None:
    """Who asks for a durable source beyond its session does not come back for what was not kept."""
    answer = source_answer(Source(durable=durable, expiry_policy=expiry, timeout=timeout), "q")
    assert (answer.durable, answer.expiry_policy, answer.timeout) == (0, "link-detach", 0)


@pytest.mark.parametrize(
    "fields",
    [
        {"durable": 0, "expiry_policy": "never", "timeout": 9},
        {"durable": 2, "expiry_policy": "session-end"},
        {"durable": 1, "expiry_policy": "link-detach"},
    ],
)
def test_a_terminus_is_answered_as_it_is(fields: Any) -> None:
    """Not durable, and gone with its link, whatever was asked for."""
    for answer in (source_answer(Source(**fields), "q"), target_answer(Target(**fields), "q")):
        assert (answer.durable, answer.expiry_policy, answer.timeout) == (0, "link-detach", 0)


@pytest.mark.parametrize("policy", [None, *(policy() for policy in LIFETIME_POLICIES)])
def test_lifetime_policies_of_the_standard(policy: Any) -> None:
    """All are taken; without one it is delete-on-close (3.5.10)."""
    fields: dict[str, Any] = {
        "dynamic": True,
        "dynamic_node_properties": {"lifetime-policy": policy} if policy else None,
    }
    for answer in (source_answer(Source(**fields), "q"), target_answer(Target(**fields), "q")):
        assert answer.dynamic_node_properties is not None
        assert answer.dynamic_node_properties["lifetime-policy"] == (policy or DeleteOnClose())


@pytest.mark.parametrize(
    ("policy", "condition"),
    [
        (OTHER, "amqp:not-implemented"),
        ("delete-on-close", "amqp:invalid-field"),
        (Accepted(), "amqp:invalid-field"),
    ],
)
def test_other_lifetime_policies_are_refused(policy: Any, condition: str) -> None:
    """A policy "of a type which provides the lifetime-policy archetype" may be defined by others: it is not
    implemented here, not malformed; what is no policy is.
    """
    fields: dict[str, Any] = {"dynamic": True, "dynamic_node_properties": {"lifetime-policy": policy}}
    assert refused(source_answer, Source(**fields), "q") == condition
    assert refused(target_answer, Target(**fields), "q") == condition


NOWHERE = [None, "temporary.gone", "$nothing"]


async def relayed(at: Served, to: str | None, *, settled: bool, outcomes: tuple[str, ...] | None) -> None:
    """A message through the anonymous terminus."""
    sender = await at.sender(None, source=Source(outcomes=outcomes))
    sender.send([text(b"x", properties=Properties(to=to))], settled=settled)
    await at.settle()


@pytest.mark.parametrize("to", NOWHERE)
@pytest.mark.parametrize("outcomes", [None, ALL])
@at_hand()
async def test_what_cannot_be_routed_is_rejected(at: Served, to: str | None, outcomes: Any) -> None:
    """With the error that a link to the address would have had."""
    await relayed(at, to, settled=False, outcomes=outcomes)
    assert len(at.outcomes) == 1 and at.conditions != ["accepted"] and not at.detached


@pytest.mark.parametrize("to", NOWHERE)
@pytest.mark.parametrize(("settled", "outcomes"), [(True, None), (False, (ACCEPTED,))])
@at_hand()
async def test_where_no_rejected_is_heard_the_detach_names_the_delivery(
    at: Served, to: str | None, settled: bool, outcomes: Any
) -> None:
    """A settled message, or a source that does not offer rejected: the detach's info has the delivery-tag."""
    await relayed(at, to, settled=settled, outcomes=outcomes)
    (gone,) = at.detached
    assert not at.outcomes and gone.error is not None and gone.error.info is not None
    assert isinstance(gone.error.info["delivery-tag"], bytes)


def test_who_offers_rejected_hears_it() -> None:
    """A source that says nothing of outcomes takes those of the standard."""
    assert takes_rejected(None) and takes_rejected(Source()) and takes_rejected(Source(outcomes=ALL))
    assert not takes_rejected(Source(outcomes=(ACCEPTED,)))
    error = Error(condition="amqp:not-found", info={"x": 1})
    assert detach_error(Target(address="q"), error, b"t") is error
    relayed_error = Error(condition="amqp:not-found", info={"x": 1, "delivery-tag": b"t"})
    assert detach_error(Target(), error, b"t") == relayed_error
