"""What the hidden node of a set's part says of itself, in the settings that the store keeps."""

from __future__ import annotations

from typing import Any, Final

import attrs

from amqp_broker.coordinator.half_sets import ELSEWHERE, SetPart, SetState, Winner
from amqp_broker.halves.addresses import SET as SET_ADDRESS
from amqp_broker.halves.addresses import parse_half_address

SET_KIND: Final = "set"  # of the hidden nodes
LOST_STORE: Final = "unknown"  # which store has the messages of a set, where that is damaged
LEVELS: Final = 5  # of the names of hidden nodes, before the destination


def settings_of(part: SetPart, voided_at_ms: int | None = None) -> dict[str, object]:
    """What a hidden node says of itself; with `voided_at_ms`: as the trace of a set that never wins."""
    staged = part.staged
    settings: dict[str, object] = {
        "group": staged.producer.group,
        "producer": staged.producer.name,
        "epoch": staged.epoch,
        "set": staged.set_id,
        "destination": part.destination,
        "begun_at_ms": staged.begun_at_ms,
        "container_id": staged.container_id,
    }
    if staged.sealed is not None:
        settings["sealed_count"] = staged.sealed.count
        settings["sealed_checksum"] = staged.sealed.checksum
    if staged.coordinator:
        settings["home"] = staged.coordinator  # as stores of every version have it
    if staged.store:
        settings["store"] = staged.store
    if staged.attempts:
        settings["attempts"] = staged.attempts
        settings["due_at_ms"] = staged.due_ms
    if voided_at_ms is not None:
        settings["begun_at_ms"] = voided_at_ms
    if voided_at_ms is not None or staged.state is SetState.VOIDED:
        settings["voided"] = True
    return settings


@attrs.frozen
class SetSettings:
    """The settings of a hidden node, read back. `sealed` is None where the set is open, or was `voided` for
    good.
    """

    group: str
    producer: str
    epoch: int
    set_id: str
    destination: str
    begun_at_ms: int
    container_id: str
    sealed: Winner | None
    coordinator: str = ""
    store: str = ""
    voided: bool = False
    attempts: int = 0
    due_at_ms: int = 0

    @classmethod
    def read(cls, settings: dict[str, Any]) -> SetSettings:
        """The settings that a hidden node has. Raises ValueError where they are not those of a set."""
        try:
            set_id = str(settings["set"])
            sealed = None
            if "sealed_count" in settings:
                sealed = Winner(set_id, int(settings["sealed_count"]), int(settings["sealed_checksum"]))
            return cls(
                str(settings["group"]),
                str(settings["producer"]),
                int(settings["epoch"]),
                set_id,
                str(settings["destination"]),
                int(settings["begun_at_ms"]),
                str(settings["container_id"]),
                sealed,
                str(settings.get("home", "")),
                str(settings.get("store", "")),
                settings.get("voided") is True,
                int(settings.get("attempts", 0)),
                int(settings.get("due_at_ms", 0)),
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"not the settings of a set: {error!r}") from None

    @classmethod
    def of_name(cls, name: str, now_ms: int) -> SetSettings | None:
        """What the name of a node says whose settings are lost: of an open set, as old as can be known. If
        another store has its messages, it never wins, since that may have been said.
        """
        if name.endswith("/") and name.count("/") == LEVELS:  # without a destination
            found = cls.of_name(f"{name}{LOST_STORE}", now_ms)
            return found and attrs.evolve(found, destination=ELSEWHERE, store=LOST_STORE, voided=True)
        address = parse_half_address(name)
        if address is None or address.kind != SET_ADDRESS:
            return None
        return cls(
            address.group, address.producer, address.epoch, address.set_id, address.destination, now_ms, "",
            None,
        )  # fmt: skip
