"""What a store holds when it is opened: nodes, numbering and counts, with one aggregate over the index."""

from __future__ import annotations

from typing import Final

import attrs

from amqp_broker.persistence.directory import MAX_SEGMENT_MESSAGES
from amqp_broker.persistence.errors import StoreCorrupt
from amqp_broker.persistence.group import EVERYTHING, NodeState
from amqp_broker.persistence.node_rows import read_nodes
from amqp_broker.persistence.retained_table import load_retentions, measure
from amqp_broker.persistence.runs import RUN, RunCache
from amqp_broker.persistence.store import Recovered, RecoveredNode
from amqp_broker.persistence.unit_of_work import UnitOfWork

# For each node a range of the index; rows below the purge mark wait to be swept. What a row says is taken for
# what it can be at most: nobody looks at checksums here, and one flipped bit must not fill a queue.
_COUNTS: Final = (
    "SELECT n.id, sum(max(0, min(r.live_count, r.count))), sum(max(0, min(r.live_bytes, r.bytes))), "
    f"max(r.first_offset+max(1, min(r.count, {MAX_SEGMENT_MESSAGES}))) "
    "FROM node n CROSS JOIN run r ON r.queue_id=n.id AND r.first_offset>=n.purged_to "
    "WHERE n.name IS NOT NULL GROUP BY n.id"
)
_CHANGED: Final = "SELECT queue_id, min(offset), max(offset) FROM changed GROUP BY queue_id"
_UNSWEPT: Final = "SELECT EXISTS (SELECT 1 FROM run WHERE queue_id=? AND first_offset<?)"
_SEGMENT_IDS: Final = "SELECT coalesce(max(id), 0) FROM segment"
_LAST_NODE_ID: Final = "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name='node'"


@attrs.define
class Loaded:
    """What a store's memory begins with. `sweep`: the queues with something below their purge mark, and the
    mark.
    """

    recovered: Recovered
    nodes: dict[int, NodeState]
    sweep: dict[int, int]
    next_segment_id: int
    last_node_id: int


def load(unit: UnitOfWork, runs: RunCache) -> Loaded:
    """Read it all. Raises StoreCorrupt, StoreFailed."""
    try:
        return _load(unit, runs)
    except (TypeError, ValueError) as error:
        raise StoreCorrupt(f"the table of nodes is damaged: {error}") from error


def _load(unit: UnitOfWork, runs: RunCache) -> Loaded:
    counts = {row[0]: row[1:] for row in unit.query(_COUNTS)}
    for run in [run for spread in runs.spreads for run in spread.runs if run.live_count]:  # of a store in use
        messages, octets, end = counts.get(run.queue_id, (0, 0, 0))
        counts[run.queue_id] = messages + run.live_count, octets + run.live_bytes, max(end, run.end)
    changed = {row[0]: row[1:] for row in unit.query(_CHANGED)}
    retentions = load_retentions(unit)
    recovered = Recovered([])
    nodes: dict[int, NodeState] = {}
    sweep: dict[int, int] = {}
    for node, next_offset, purged_to in read_nodes(unit):
        queue_id = node.queue_id
        if not node.name:
            sweep[queue_id] = EVERYTHING
            continue
        message_count, byte_count, top_end = counts.get(queue_id, (0, 0, 0))
        node.durable_next = next_offset
        node.top_end = top_end
        node.next_offset = max(next_offset, top_end)
        node.purged_to = purged_to
        node.live_count = message_count
        if queue_id in changed:
            node.changed_low, node.changed_high = changed[queue_id]
        nodes[queue_id] = node
        retention = node.retention = retentions.get(queue_id)
        if retention is not None:
            measure(unit, queue_id, retention, purged_to, node.next_offset)
            if retention.retains():
                node.keep_from = retention.first_offset
        if purged_to and unit.query(_UNSWEPT, (queue_id, purged_to)) == [(1,)]:
            sweep[queue_id] = purged_to
        first_offset = _first_live(runs, node)
        recovered.nodes.append(
            RecoveredNode(
                queue_id,
                node.name,
                node.kind,
                node.settings,
                node.next_offset,
                message_count,
                byte_count,
                first_offset,
            )  # fmt: skip
        )
    ((last_segment_id,),) = unit.query(_SEGMENT_IDS)
    ((last_node_id,),) = unit.query(_LAST_NODE_ID)
    return Loaded(recovered, nodes, sweep, last_segment_id + 1, last_node_id)


def _first_live(runs: RunCache, node: NodeState) -> int:
    # Two rows: the first one may lie below the purge mark, not swept yet.
    select = runs.select if node.retention is None else runs.select_live
    for row in select(node.queue_id, node.purged_to, EVERYTHING, 2):
        if isinstance(row[1], int) and row[1] < node.purged_to:
            continue
        run = RUN.value(row)
        if run is None:
            # `read` begins there and puts it into quarantine.
            return row[1] if isinstance(row[1], int) else node.purged_to
        return run.first + (~run.gone & (run.gone + 1)).bit_length() - 1
    return node.next_offset
