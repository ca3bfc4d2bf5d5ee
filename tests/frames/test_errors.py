"""Errors with the wire's conditions."""

from __future__ import annotations

from amqp_broker.frames import AmqpError, DecodeError, EncodeError
from amqp_broker.frames.errors import FramingError


def test_conditions() -> None:
    """Each class has its condition; an instance may have a closer one."""
    assert DecodeError("x").condition == DecodeError.condition == "amqp:decode-error"
    assert FramingError("x").condition == "amqp:connection:framing-error"
    assert EncodeError("x").condition == AmqpError().condition == "amqp:internal-error"
    assert DecodeError("x", "amqp:invalid-field").condition == "amqp:invalid-field"
    assert DecodeError.condition == "amqp:decode-error"


def test_text_and_info() -> None:
    """The text has condition and description; info is a map of its own for each error."""
    error = AmqpError("what came", info={"k": 1})
    assert str(error) == "amqp:internal-error: what came"
    assert error.info == {"k": 1}
    assert str(AmqpError()) == "amqp:internal-error"
    assert AmqpError().info is not AmqpError().info
