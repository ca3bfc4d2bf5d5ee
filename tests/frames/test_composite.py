"""How composites are built, compared and printed."""

from __future__ import annotations

from typing import Any

import pytest

from amqp_broker.frames import Accepted, Attach, Open, Released, Source
from amqp_broker.frames.declarations import DECLARATIONS, FieldDeclaration, declare
from amqp_broker.frames.sasl import SaslChallenge, SaslInit, SaslOutcome, SaslResponse


@pytest.mark.parametrize("made", DECLARATIONS)
def test_every_field_is_optional_and_has_the_default_of_the_standard(made: type) -> None:
    """A composite can be built from nothing; mandatory fields wait for their value as None."""
    value = made()
    for field in DECLARATIONS[made].fields:
        assert getattr(value, field.attribute) == field.default
        assert not (field.mandatory and field.default is not None)
    assert value == made()


def test_equality_needs_class_and_all_fields() -> None:
    """Two outcomes without fields are different; an open equals an open with the same fields."""
    assert Accepted() == Accepted()
    different: object = Released()
    assert Accepted() != different
    assert Open(container_id="a") == Open("a")
    assert Open(container_id="a") != Open(container_id="a", hostname="b")


def test_a_composite_has_no_other_attributes() -> None:
    """A wrong name is an error, not a silent new attribute."""
    opened = Open(container_id="a")
    with pytest.raises(AttributeError):
        opened.containerid = "b"  # type: ignore[attr-defined]


def test_what_is_absent_or_default_is_not_printed() -> None:
    """The log shows what the peer said."""
    attach = Attach(name="l", handle=0, role=True, source=Source(address="q", durable=2))
    assert repr(attach) == "Attach(name='l', handle=0, role=True, source=Source(address='q', durable=2))"
    assert repr(Accepted()) == "Accepted()"


@pytest.mark.parametrize(
    "value",
    [
        SaslInit(mechanism="PLAIN", initial_response=b"\x00guest\x00hunter2"),
        SaslChallenge(challenge=b"hunter2"),
        SaslResponse(response=b"hunter2"),
        SaslOutcome(code=0, additional_data=b"hunter2"),
        SaslResponse(response="hunter2"),  # type: ignore[arg-type]
    ],
)
def test_secrets_are_never_printed(value: Any) -> None:
    """What a SASL frame carries for its mechanism is shown by its length only."""
    assert "hunter2" not in repr(value)
    assert "redacted" in repr(value)


def test_two_composites_cannot_share_a_descriptor() -> None:
    """A second declaration with a code that is taken is our own mistake."""
    with pytest.raises(AssertionError, match="open"):
        declare(Open, DECLARATIONS[Open])


def test_a_field_of_a_wide_type_refuses_every_other_constructor() -> None:
    """The table of a uint field knows null and the three encodings of uint."""
    field = FieldDeclaration("x", "uint", False, None, False, "", False, "c")
    assert [code for code in range(256) if field.actions[code]] == [0x40, 0x43, 0x52, 0x70]
