"""Ranges of delivery-ids in dispositions, in and out, and whose transaction a state names (2.7.6, 4.5.8)."""

from __future__ import annotations

from amqp_broker.frames import TransactionalState
from amqp_broker.links.serial import SERIAL_MASK


def txn_id_of(state: object) -> bytes | None:
    """The txn-id of a transactional-state (4.5.8); None for every other state."""
    return state.txn_id if type(state) is TransactionalState else None


def runs_of(delivery_ids: list[int], next_number: int) -> list[tuple[int, int]]:
    """The ranges of consecutive ids, in the order of the list, as numbers before `next_number`."""
    first = delivery_ids[0]
    count = len(delivery_ids)
    start = next_number - ((next_number - first) & SERIAL_MASK)
    if delivery_ids[-1] - first == count - 1 and delivery_ids == list(range(first, first + count)):
        return [(start, start + count - 1)]
    runs = []
    last = start
    for delivery_id in delivery_ids[1:]:
        number = next_number - ((next_number - delivery_id) & SERIAL_MASK)
        if number != last + 1:
            runs.append((start, last))
            start = number
        last = number
    runs.append((start, last))
    return runs
