"""Where posted messages come from."""

from __future__ import annotations

from typing import Final

from amqp_broker.places import Place


class Origin:
    """The container of their connection, their transaction (empty: none),
    and the places in sequenced streams of those that have one, by the id of their record.
    """

    __slots__ = ("container", "places", "txn_id")

    def __init__(self, container: str, txn_id: bytes, places: dict[int, Place] | None = None) -> None:
        self.container = container
        self.txn_id = txn_id
        self.places = places


OF_THE_BROKER: Final = Origin("", b"")
"""Of what the broker posts by itself, also of messages that were posted before."""
