"""Where a query is: an offset for each address, in the store that a uuid names.

    {"a":{"orders":{"0":123},"returns":{"0":7}},"log":"<uuid of the store>","v":1}

Spark compares offsets as text: the keys are sorted, so that the same place is always the same text. Each
address has one partition, "0". An offset is that of the next message to read. Spark accepts what goes
backwards and what belongs to another broker: both are looked for here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

import attrs

from amqp_broker.pipeline.errors import OffsetError

VERSION: Final = 1
PARTITION: Final = "0"
LATEST: Final = -1
"""Instead of an offset: behind the last message (Kafka's convention)."""
EARLIEST: Final = -2
"""Instead of an offset: the first message that is retained."""
NEW_CHECKPOINT: Final = (
    "to begin anew, give the query another checkpoint folder and another option subscription"
)


@attrs.frozen
class Offsets:
    """The place of a query. `log` is the uuid of the broker's store."""

    log: str
    positions: dict[str, int]

    def to_dict(self) -> dict[str, Any]:
        """What Spark makes JSON of: keys in the canonical order."""
        addresses = {address: {PARTITION: self.positions[address]} for address in sorted(self.positions)}
        return {"a": addresses, "log": self.log, "v": VERSION}

    def __str__(self) -> str:
        return json.dumps(self.to_dict(), separators=(",", ":"))


def read_offsets(found: Any) -> Offsets:
    """The offsets that Spark hands back, from its checkpoint. Raises OffsetError."""
    if not isinstance(found, dict) or set(found) != {"a", "log", "v"}:
        raise OffsetError(
            f'expected an offset {{"a": ..., "log": ..., "v": {VERSION}}} in the checkpoint, found '
            f"{_shown(found)}: it was not written by this source; {NEW_CHECKPOINT}"
        )
    if found["v"] != VERSION:
        raise OffsetError(
            f"expected an offset of version {VERSION} in the checkpoint, found version "
            f"{_shown(found['v'])}: it was "
            "written by another release of this source; use that one, or give the query another "
            "checkpoint folder"
        )
    if not isinstance(found["log"], str):
        raise OffsetError(f"expected the uuid of a store as log of an offset, found {_shown(found['log'])}")
    return Offsets(found["log"], read_positions(found["a"], lowest=0))


def read_positions(found: Any, lowest: int = EARLIEST) -> dict[str, int]:
    """Offsets by address, from `{"orders": 5}` or `{"orders": {"0": 5}}`. Raises OffsetError."""
    if not isinstance(found, dict):
        raise OffsetError(f"expected offsets by address, found {_shown(found)}")
    positions = {}
    for address, offset in found.items():
        if isinstance(offset, dict):
            if set(offset) != {PARTITION}:
                raise OffsetError(
                    f"expected the one partition 0 of address {address!r}, found {_shown(sorted(offset))}"
                )
            offset = offset[PARTITION]
        if not isinstance(offset, int) or isinstance(offset, bool) or offset < lowest:
            special = "" if lowest == 0 else f", {EARLIEST} for the earliest or {LATEST} for the latest"
            raise OffsetError(
                f"expected a whole number from 0 on{special} as offset of address {address!r}, "
                f"found {_shown(offset)}"
            )
        positions[address] = offset
    return positions


@attrs.frozen
class Range:
    """Messages of one address: from `low` on, to `high`, which is not among them."""

    address: str
    low: int
    high: int

    def __len__(self) -> int:
        return self.high - self.low

    def __str__(self) -> str:
        return f"offsets {self.low} to {self.high - 1} of {self.address!r}"


def check_log(offsets: Offsets, log: str, broker: object) -> None:
    """Raises OffsetError where the offsets belong to another store than that of the broker."""
    if offsets.log != log:
        raise OffsetError(
            f"the checkpoint has offsets of the store {offsets.log}, but the store of the broker at "
            f"{broker} is "
            f"{log}: its data directory was wiped or replaced, or the option amqp.url names another broker. "
            f"Offsets of one mean nothing in the other: point amqp.url to the right one, or {NEW_CHECKPOINT}"
        )


def ranges_between(start: Offsets, end: Offsets, frozen: Mapping[str, int]) -> list[Range]:
    """What is to be read to get from start to end, without what is empty. An address that is new in `end`
    begins where `frozen` says. Raises OffsetError for what goes backwards.
    """
    found = []
    for address in sorted(end.positions):
        high = end.positions[address]
        low = start.positions.get(address, frozen.get(address, high))
        if low > high:
            raise OffsetError(
                f"expected an end at or behind the start, but {address!r} is to be read from offset "
                f"{low} to {high}: "
                "the checkpoint was edited, or is of another query; restore the checkpoint folder, or "
                f"{NEW_CHECKPOINT}"
            )
        if low < high:
            found.append(Range(address, low, high))
    return found


def split(ranges: Iterable[Range], partitions_min: int) -> list[Range]:
    """The ranges, cut into at least so many parts of about one size, as far as they have messages."""
    whole = list(ranges)
    total = sum(map(len, whole))
    parts = []
    for each in whole:
        count = max(1, min(len(each), -(-len(each) * partitions_min // total)))
        if len(whole) >= partitions_min:
            count = 1
        bounds = [each.low + len(each) * number // count for number in range(count + 1)]
        parts += [Range(each.address, low, high) for low, high in zip(bounds, bounds[1:], strict=False)]
    return parts


def admit(start: Mapping[str, int], latest: Mapping[str, int], rows_max: int) -> dict[str, int]:
    """How far to go from start towards latest with at most `rows_max` messages, which every address gets its
    share of: by what it has, and at least one in all.
    """
    waiting = {address: max(0, latest[address] - start[address]) for address in sorted(latest)}
    total = sum(waiting.values())
    if total <= rows_max:
        return dict(latest)
    end = {address: start[address] + count * rows_max // total for address, count in waiting.items()}
    left = rows_max - sum(end[address] - start[address] for address in waiting)
    # What rounding left over goes to those that have most left, so that none waits for ever.
    for address in sorted(waiting, key=lambda each: (end[each] - latest[each], each)):
        if left and end[address] < latest[address]:
            end[address] += 1
            left -= 1
    return end


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else text[:200] + "..."
