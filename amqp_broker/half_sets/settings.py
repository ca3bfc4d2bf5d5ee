"""What the hidden node of a set's part says of itself, in the settings that the store keeps."""

from __future__ import annotations

from typing import Any, Final

import attrs

from amqp_broker.coordinator import SetPart, Winner

SET_KIND: Final = "set"  # of the hidden nodes


def settings_of(part: SetPart) -> dict[str, object]:
    """What a hidden node says of itself."""
    staged = part.owner
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
    return settings


@attrs.frozen
class SetSettings:
    """The same, read back; `sealed` None: it is open."""

    group: str
    producer: str
    epoch: int
    set_id: str
    destination: str
    begun_at_ms: int
    container_id: str
    sealed: Winner | None

    @classmethod
    def read(cls, settings: dict[str, Any]) -> SetSettings:
        """Raises ValueError where they are not those of a set."""
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
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"not the settings of a set: {error!r}") from None
