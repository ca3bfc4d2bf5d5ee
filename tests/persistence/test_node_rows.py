"""Rows of nodes: damage is noticed at the start, put away, and costs no message."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from amqp_broker.persistence import (
    Configure,
    CreateNode,
    DeleteNode,
    Move,
    Post,
    Purge,
    Retain,
    Retire,
    Unit,
)
from amqp_broker.persistence.group import EVERYTHING
from amqp_broker.persistence.node_rows import NODE
from amqp_broker.persistence.sqlite import SqliteStore, verify_directory
from amqp_broker.persistence.store_file import DATABASE_NAME
from amqp_broker.testing.store_suite.helpers import do, do_idle_work, do_units, messages, new_queue, offsets
from tests.persistence.stores import assert_whole, edit, small_store

SEALED: dict[str, object] = {"set": "s", "sealed_count": 5, "sealed_checksum": 1}
PUT_AWAY = "SELECT queue_id, offset, reason, bytes FROM quarantine"


def are_sound(store: SqliteStore) -> bool:
    """Whether all rows of nodes match their checksums now."""
    return all(map(NODE.is_sound, store._unit.query(NODE.select(""))))


def filled(directory: Path) -> None:
    """A queue (1) with ten messages, a sealed set (2) with five, an empty queue (3) that goes on at 7."""
    store = small_store(directory)
    orders = new_queue(store)
    do(store, CreateNode("$half-set/g/p/7/s/orders", "set", {"set": "s"}))
    empty = new_queue(store, "empty")
    do(store, Post(orders, messages(0, 10)))
    do(store, Post(2, messages(0, 5)), Configure(2, SEALED))
    do(store, Post(empty, messages(0, 7)), Retire(empty, 0, 6))
    assert_whole(store)


def test_every_change_of_a_row_has_its_checksum(tmp_path: Path) -> None:
    """Each row is sound after random groups of all verbs that write rows of nodes, with housekeeping."""
    chance = random.Random(5)
    store = small_store(tmp_path, synchronous="OFF")
    nodes: dict[int, int] = {}
    for step in range(300):
        units: list[Unit] = []
        made: list[CreateNode] = []
        for _ in range(chance.choice((1, 2, 4))):
            draw = chance.random()
            if not nodes or draw < 0.2:
                made.append(CreateNode(f"n\u00fc{step}.{len(made)}", "queue", {"at": step}))
                units.append([made[-1]])
                continue
            queue_id = chance.choice(sorted(nodes))
            other = chance.choice(sorted(nodes))
            if draw < 0.4:
                count = chance.choice((1, 3))
                units.append([Post(queue_id, messages(nodes[queue_id], count))])
                nodes[queue_id] += count
            elif draw < 0.6:
                units.append([Retire(queue_id, 0, nodes[queue_id]), Configure(queue_id, {"step": step})])
            elif draw < 0.75:
                units.append([Purge(queue_id), Configure(queue_id, {})])
            elif draw < 0.8:
                units.append([Retain(queue_id, 0, chance.choice((0, 10)))])
            elif draw < 0.9 and other != queue_id:
                units.append([Move(queue_id, other, nodes[other], 5)])
                nodes[other] += 1000
                units[-1].append(Post(other, messages(nodes[other], 1)))
                nodes[other] += 1
                del nodes[queue_id]
            else:
                units.append([Configure(queue_id, {"last": 1}), DeleteNode(queue_id)])
                del nodes[queue_id]
        do_units(store, units)
        assert are_sound(store), units
        nodes |= {verb.queue_id: 0 for verb in made}
        if step % 7 == 0:
            do_idle_work(store, float(step))
            assert are_sound(store), "housekeeping"
    assert_whole(store)


@pytest.mark.parametrize(
    ("sql", "name", "kind", "next_offset"),
    [
        ('UPDATE node SET settings=\'{"set":"s","sealed_count":6}\' WHERE id=2', "", "set", 5),
        ("UPDATE node SET settings=CAST(x'7b22ff' AS TEXT) WHERE id=2", "", "set", 5),
        ("UPDATE node SET name=CAST(x'6f72ff' AS TEXT) WHERE id=2", "damaged.2", "set", 5),
        ("UPDATE node SET name='$half-set/g/p/6/s/orders' WHERE id=2", "$half-set/g/p/6/s/orders", "set", 5),
        ("UPDATE node SET name=NULL WHERE id=2", "damaged.2", "set", 5),
        ("UPDATE node SET kind='qet' WHERE id=2", "", "set", 5),
        ("UPDATE node SET kind='queue' WHERE id=2", "", "set", 5),
        ("UPDATE node SET purged_to=3 WHERE id=2", "", "set", 5),
        (f"UPDATE node SET purged_to={EVERYTHING} WHERE id=2", "", "set", 5),
        ("UPDATE node SET next_offset=9 WHERE id=2", "", "set", 9),
        (f"UPDATE node SET next_offset={1 << 60} WHERE id=2", "", "set", 5),
        ("UPDATE node SET next_offset=-1 WHERE id=2", "", "set", 5),
        ("UPDATE node SET checksum=checksum+1 WHERE id=2", "", "set", 5),
    ],
)
def test_a_damaged_row_is_put_away(sql: str, name: str, kind: str, next_offset: int, tmp_path: Path) -> None:
    """Its settings, hence a seal, are never believed. Its messages stay, and the next start finds nothing."""
    filled(tmp_path)
    edit(tmp_path, sql)
    (finding,) = verify_directory(tmp_path)
    assert "node 2" in finding and "does not match its checksum" in finding
    store = small_store(tmp_path)
    recovered = store.recover()
    (one,) = recovered.quarantined
    assert (one.queue_id, one.offset) == (2, -1)
    nodes = {node.queue_id: node for node in recovered.nodes}
    found = nodes[2]
    assert (found.name, found.kind) == (name or "$half-set/g/p/7/s/orders", kind)
    assert found.settings == {}
    assert (found.next_offset, found.message_count) == (next_offset, 5)
    assert (nodes[1].next_offset, nodes[3].next_offset) == (10, 7)
    do(store, Post(2, messages(found.next_offset, 1)), Configure(2, SEALED), Post(1, messages(10, 1)))
    do_idle_work(store, 0.0)
    assert_whole(store)
    ((queue_id, offset, reason, row),) = edit(tmp_path, PUT_AWAY)
    assert (queue_id, offset) == (2, -1) and "checksum" in reason and row.startswith(b"(2, ")
    store = small_store(tmp_path)
    assert store.recover().quarantined == []
    assert offsets(store, 2) == [0, 1, 2, 3, 4, next_offset]


def test_a_damaged_queue_keeps_its_messages_and_its_name(tmp_path: Path) -> None:
    """A queue with a damaged row keeps its messages and its name. A deleted node stays deleted."""
    filled(tmp_path)
    store = small_store(tmp_path)
    do(store, CreateNode("gone", "queue"))
    do(store, Post(4, messages(0, 3)))
    do(store, DeleteNode(4))
    store.close()
    edit(tmp_path, "UPDATE node SET kind='queuf' WHERE id=1")
    edit(tmp_path, "UPDATE node SET next_offset=500 WHERE id=4")
    edit(tmp_path, "UPDATE node SET purged_to=7 WHERE id=3")
    store = small_store(tmp_path)
    recovered = store.recover()
    assert [one.queue_id for one in recovered.quarantined] == [1, 3, 4]
    assert [(n.queue_id, n.name, n.kind, n.next_offset) for n in recovered.nodes if n.queue_id != 2] == [
        (1, "orders", "queue", 10), (3, "empty", "queue", 7),
    ]  # fmt: skip
    assert offsets(store, 1) == [*range(10)]
    do_idle_work(store, 0.0)
    assert_whole(store)
    assert edit(tmp_path, "SELECT id FROM node ORDER BY id") == [(1,), (2,), (3,)], "the deleted one is swept"


def test_a_row_that_took_the_name_of_another_gets_one_of_its_own(tmp_path: Path) -> None:
    """Of two rows with one name the sound one keeps it, and the damaged one gets a new name."""
    store = small_store(tmp_path)
    for at, name in enumerate(("orders", "orderz"), 1):
        do(store, Post(new_queue(store, name), messages(0, at)))
    store.close()
    path = tmp_path / DATABASE_NAME
    path.write_bytes(path.read_bytes().replace(b"orderz", b"orders"))
    store = small_store(tmp_path)
    nodes = store.recover().nodes
    assert [(node.name, node.message_count) for node in nodes] == [("orders", 1), ("damaged.2", 2)]
    do(store, DeleteNode(2), CreateNode("orderz", "queue"))
    assert_whole(store)
