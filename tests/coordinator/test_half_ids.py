"""Ids of half messages: by type and value, there and back."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from amqp_broker.coordinator.half_ids import HALF_ID_BYTES_MAX, half_id_of, half_id_value, shown_half_id
from amqp_broker.frames import Symbol, Ulong

VALUES = ["1", b"1", UUID(int=1), Ulong(1), "ö" * 128, b"x" * HALF_ID_BYTES_MAX]


@pytest.mark.parametrize("value", VALUES)
def test_an_id_comes_back_with_its_type(value: Any) -> None:
    """The check's correlation-id has the type of the producer's."""
    half_id = half_id_of(value)
    assert half_id is not None
    again = half_id_value(half_id)
    assert again == value and type(again) is type(value)


def test_ids_of_other_types_are_other_ids() -> None:
    """ "1", 0x31, the uuid 1 and the ulong 1 are four half messages."""
    ids = [half_id_of(value) for value in VALUES]
    assert len(set(ids)) == len(VALUES)
    assert len({shown_half_id(each) for each in ids if each is not None}) == len(VALUES)


@pytest.mark.parametrize("value", [None, "", b"", 1, Symbol("s"), "x" * 257, b"x" * 257, "ö" * 129, 1.5])
def test_what_is_no_message_id_is_none(value: object) -> None:
    """Empty, too long, or of a type that a message-id can't have (3.2.11)."""
    assert half_id_of(value) is None
