"""Where a query is: an offset for each address, in the store that a uuid names.

    {"a":{"orders":{"0":123},"returns":{"0":7}},"log":"<uuid of the store>","v":1}
    {"a":{"orders":{"0":123,"1":7},"returns":{"1":7}},"log":["<of broker 0>","<of broker 1>"],"v":1}

Spark compares offsets as text: the keys are sorted, so that the same place is always the same text. An
address has a partition for each broker: "0" where there is one, which has its form of its own. An offset is
that of the next message to read. Spark accepts what goes backwards and what belongs to another broker: both
are looked for here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

import attrs

from amqp_broker.pipeline.errors import OffsetError

VERSION: Final = 1
LATEST: Final = -1
"""Instead of an offset: behind the last message (Kafka's convention)."""
EARLIEST: Final = -2
"""Instead of an offset: the first message that is retained."""
NEW_CHECKPOINT: Final = (
    "to begin anew, give the query another checkpoint folder and another option subscription"
)


Key = TypeVar("Key", str, tuple[str, int])


@attrs.frozen
class Offsets:
    """The place of a query at one broker, whose store has this uuid."""

    store_id: str
    positions: dict[str, int]


@attrs.frozen
class Place:
    """The place of a query: at each broker, in the order of the option amqp.url."""

    brokers: tuple[Offsets, ...]

    def to_dict(self) -> dict[str, Any]:
        """What Spark makes JSON of: keys in the canonical order."""
        addresses: dict[str, dict[str, int]] = {}
        for address in sorted({address for each in self.brokers for address in each.positions}):
            addresses[address] = {
                str(partition): each.positions[address]
                for partition, each in enumerate(self.brokers)
                if address in each.positions
            }
        ids = [each.store_id for each in self.brokers]
        return {"a": addresses, "log": ids[0] if len(ids) == 1 else ids, "v": VERSION}

    def __str__(self) -> str:
        return json.dumps(self.to_dict(), separators=(",", ":"))


def read_place(found: Any) -> Place:
    """The offsets that Spark hands back, from its checkpoint. Raises OffsetError."""
    if not isinstance(found, dict) or set(found) != {"a", "log", "v"}:
        raise OffsetError(
            f'expected an offset {{"a": ..., "log": ..., "v": {VERSION}}} in the checkpoint, found '
            f"{_shown(found)}: it was not written by this source; {NEW_CHECKPOINT}"
        )
    if found["v"] != VERSION:
        raise OffsetError(
            f"expected an offset of version {VERSION} in the checkpoint, found version {_shown(found['v'])}: "
            "it was written by another release of this source; use that one, or give the query another "
            "checkpoint folder"
        )
    ids = found["log"] if isinstance(found["log"], list) else [found["log"]]
    if not ids or not all(isinstance(each, str) for each in ids):
        raise OffsetError(f"expected the uuid of a store as log of an offset, found {_shown(found['log'])}")
    positions: list[dict[str, int]] = [{} for _ in ids]
    for address, offsets in read_positions(found["a"], lowest=0).items():
        by_partition = offsets if isinstance(offsets, dict) else {0: offsets}
        for partition, offset in by_partition.items():
            if partition >= len(ids):
                wanted = "the one partition 0" if len(ids) == 1 else f"partitions 0 to {len(ids) - 1}"
                raise OffsetError(f"expected {wanted} of address {address!r}, found {partition}")
            positions[partition][address] = offset
    return Place(tuple(map(Offsets, ids, positions)))


Positions = dict[str, int | dict[int, int]]


def read_positions(found: Any, lowest: int = EARLIEST) -> Positions:
    """Offsets by address, from `{"orders": 5}` or `{"orders": {"0": 5, "1": 7}}`. Raises OffsetError."""
    if not isinstance(found, dict):
        raise OffsetError(f"expected offsets by address, found {_shown(found)}")
    positions: Positions = {}
    for address, offset in found.items():
        if not isinstance(offset, dict):
            positions[address] = _offset(address, offset, lowest)
            continue
        if not offset or not all(isinstance(each, str) and each.isdecimal() for each in offset):
            raise OffsetError(
                f"expected partitions 0, 1, ... of address {address!r}, found {_shown(sorted(offset))}"
            )
        positions[address] = {int(each): _offset(address, offset[each], lowest) for each in offset}
    return positions


def _offset(address: str, offset: Any, lowest: int) -> int:
    if not isinstance(offset, int) or isinstance(offset, bool) or offset < lowest:
        special = "" if lowest == 0 else f", {EARLIEST} for the earliest or {LATEST} for the latest"
        raise OffsetError(
            f"expected a whole number from 0 on{special} as offset of address {address!r}, "
            f"found {_shown(offset)}"
        )
    return offset


def positions_at(found: Positions, partition: int) -> dict[str, int]:
    """What is said of one broker: its partition of each address, or what is said of all of them."""
    return {
        address: offset if isinstance(offset, int) else offset[partition]
        for address, offset in found.items()
        if isinstance(offset, int) or partition in offset
    }


@attrs.frozen
class Range:
    """Messages of one address: from `low` on, to `high`, which is not among them."""

    address: str
    low: int
    high: int
    partition: int = 0
    """The broker, by its place in the option amqp.url."""

    def __len__(self) -> int:
        return self.high - self.low

    def __str__(self) -> str:
        where = f", partition {self.partition}" if self.partition else ""
        return f"offsets {self.low} to {self.high - 1} of {self.address!r}{where}"


def check_stores(place: Place, ids: Sequence[str], brokers: Sequence[object]) -> Place:
    """The place with those brokers that are new behind it, which have no positions yet. Raises OffsetError
    where it belongs to other stores than these of the brokers, or to the same in another order.
    """
    twice = [each for each in ids if ids.count(each) > 1]
    if twice:
        same = [str(broker) for each, broker in zip(ids, brokers, strict=True) if each == twice[0]]
        raise OffsetError(
            f"option amqp.url: {' and '.join(same)} are the same broker (store {twice[0]}): URLs of one "
            "broker stand with commas, semicolons are between brokers"
        )
    known = [each.store_id for each in place.brokers]
    if known != list(ids[: len(known)]) and set(known) <= set(ids):
        order = "; ".join(str(brokers[ids.index(each)]) for each in known)
        raise OffsetError(
            f"the checkpoint has the brokers in another order: expected the option amqp.url to begin with "
            f"{order}, found {'; '.join(map(str, brokers))}. Brokers can only be added at the end"
        )
    for partition, store_id in enumerate(known):
        if partition >= len(ids):
            raise OffsetError(
                f"the checkpoint has offsets at {len(known)} brokers, and the option amqp.url names "
                f"{len(ids)}: the one with the store {store_id} is missing. Name it again; a broker cannot "
                "be taken away"
            )
        if store_id != ids[partition]:
            raise OffsetError(
                f"the checkpoint has offsets of the store {store_id}, but the store of the broker at "
                f"{brokers[partition]} is {ids[partition]}: its data directory was wiped or replaced, or the "
                "option amqp.url names another broker. Offsets of one mean nothing in the other: point "
                f"amqp.url to the right one, or {NEW_CHECKPOINT}"
            )
    return Place(place.brokers + tuple(Offsets(store_id, {}) for store_id in ids[len(known) :]))


def ranges_between(
    start: Offsets, end: Offsets, frozen: Mapping[str, int], partition: int = 0
) -> list[Range]:
    """What is to be read to get from start to end, without what is empty. An address that is new in `end`
    begins where `frozen` says. Raises OffsetError for what goes backwards.
    """
    found = []
    for address in sorted(end.positions):
        high = end.positions[address]
        low = start.positions.get(address, frozen.get(address, high))
        if low > high:
            raise OffsetError(
                f"expected an end at or behind the start, but {address!r} is to be read from offset {low} to "
                f"{high}: the checkpoint was edited, or is of another query; restore the checkpoint folder, "
                f"or {NEW_CHECKPOINT}"
            )
        if low < high:
            found.append(Range(address, low, high, partition))
    return found


def split(ranges: Iterable[Range], partitions_min: int, rows_max: int | None = None) -> list[Range]:
    """The ranges, cut into at least so many parts of about one size, as far as they have messages, each of
    at most `rows_max` messages.
    """
    whole = list(ranges)
    total = sum(map(len, whole))
    parts = []
    for each in whole:
        count = max(1, min(len(each), -(-len(each) * partitions_min // total)))
        if len(whole) >= partitions_min:
            count = 1
        if rows_max is not None:
            count = max(count, -(-len(each) // rows_max))
        bounds = [each.low + len(each) * number // count for number in range(count + 1)]
        parts += [
            Range(each.address, low, high, each.partition)
            for low, high in zip(bounds, bounds[1:], strict=False)
        ]
    return parts


def admit(start: Mapping[Key, int], latest: Mapping[Key, int], rows_max: int) -> dict[Key, int]:
    """How far to go from start towards latest with at most `rows_max` messages, which every address (of every
    broker) gets its share of: by what it has, and at least one in all.
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
