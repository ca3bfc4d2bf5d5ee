"""The checksum of a range of the journal: whoever has kept its events can prove that they are those.

An event's checksum is the SHA-256 of its fields of FIELDS, in this order, each on a line of its own:

    -              it has no such field
    17             a number, in decimal digits
    6:orders       a text: how many octets it has in UTF-8, a colon, and itself

joined by line feeds. The checksum of a range is the sum of those of its events, as unsigned numbers, modulo
2^256: parts of a range can be summed wherever they are, and since each event has its lsn in it, an event in
the place of another one, twice, or missing changes the sum. docs/protocols/retention.md tells it to readers.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Final

OCTETS: Final = 32
MODULUS: Final = 1 << (8 * OCTETS)
NUMBER: Final = "number"
TEXT: Final = "text"
FIELDS: Final[dict[str, str]] = {
    "lsn": NUMBER, "time": NUMBER, "type": TEXT, "address": TEXT, "offset": NUMBER, "message_id": TEXT,
    "producer": TEXT, "container": TEXT, "group": TEXT, "half_id": TEXT, "set_id": TEXT, "epoch": NUMBER,
    "attempt": NUMBER, "outcome": TEXT, "resolver": TEXT, "reason": TEXT, "seq_stream": TEXT,
    "seq_id": NUMBER, "seq_no": NUMBER, "seq_prev": NUMBER, "bytes": NUMBER, "txn_id": TEXT, "count": NUMBER,
}  # fmt: skip
"""The fields of all types of events that are told apart, `time` in milliseconds of the Unix epoch."""

_KINDS: Final = tuple(FIELDS.items())


def checksum(event: Mapping[str, str | int]) -> int:
    """The checksum of one event, which has the fields of the wire."""
    lines = []
    for name, kind in _KINDS:
        value = event.get(name)
        if value is None:
            lines.append("-")
        elif kind is NUMBER:
            lines.append(str(value))
        else:
            text = str(value)
            lines.append(f"{len(text) if text.isascii() else len(text.encode())}:{text}")
    return int.from_bytes(sha256("\n".join(lines).encode()).digest(), "big")
