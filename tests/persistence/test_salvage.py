"""Damaged stores: what is whole is brought out of them, and what is not is told."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest

from amqp_broker.persistence import CreateNode, NodeExists, Post, Retire
from amqp_broker.persistence.errors import StoreCorrupt, StoreInUse
from amqp_broker.persistence.repairing import repair
from amqp_broker.persistence.salvage import salvage
from amqp_broker.persistence.sqlite import SqliteStore, verify_directory
from amqp_broker.persistence.store_file import DATABASE_NAME, LOCK_NAME
from amqp_broker.testing.store_suite.halves import hold, stored
from amqp_broker.testing.store_suite.helpers import do, messages, new_queue, offsets
from tests.persistence.stores import edit, killed_at, small_store
from tests.persistence.test_write_ahead_log import FRAME, HEADER, POSTS, Killed

PAGE = 8192
LEAF = 0x0D  # of a rowid table


def fill(directory: Path) -> int:
    """Two queues of several runs and some half messages, in some hundred pages."""
    store = small_store(directory)
    queue_id = new_queue(store, "orders")
    do(store, CreateNode("other", "queue"))
    for first in range(0, 400, 10):
        do(store, Post(queue_id, messages(first, 10, size=2_000)))
    do(store, Retire(queue_id, 5, 9), hold(0), hold(1))
    store.close()
    return queue_id


def queues(store: SqliteStore) -> dict[str, list[int]]:
    """The offsets of the messages of each queue that can be read."""
    return {node.name: offsets(store, node.queue_id) for node in store.recover().nodes}


def overwrite(directory: Path, *pages: int) -> None:
    """Whole pages of the closed store's file become garbage."""
    data = bytearray((directory / DATABASE_NAME).read_bytes())
    for page in pages:
        data[(page - 1) * PAGE : page * PAGE] = random.Random(page).randbytes(PAGE)
    (directory / DATABASE_NAME).write_bytes(data)


def leaves(directory: Path, name: str) -> list[int]:
    """The leaves of the tree of a rowid table, in the order of its keys."""
    data = (directory / DATABASE_NAME).read_bytes()

    def below(page: int) -> list[int]:
        at = (page - 1) * PAGE
        if data[at] == LEAF:
            return [page]
        cells = [*struct.unpack_from(f">{int.from_bytes(data[at + 3 : at + 5])}H", data, at + 12)]
        children = [int.from_bytes(data[at + cell : at + cell + 4]) for cell in cells]
        return [
            leaf for child in [*children, int.from_bytes(data[at + 8 : at + 12])] for leaf in below(child)
        ]

    ((root,),) = edit(directory, "SELECT rootpage FROM sqlite_schema WHERE name=?", name)
    return below(root)


def test_repair_puts_away_what_is_damaged_and_keeps_the_rest(tmp_path: Path) -> None:
    """A body, a row of the index, a half message, the row of a node, a count: the file verifies after it."""
    queue_id = fill(tmp_path)
    edit(tmp_path, "UPDATE run SET bytes=bytes+1 WHERE queue_id=? AND first_offset=20", queue_id)
    segment = "(SELECT segment_id FROM run WHERE queue_id=? AND first_offset=30)"
    edit(tmp_path, f"UPDATE segment SET bodies=zeroblob(length(bodies)) WHERE id={segment}", queue_id)
    edit(tmp_path, "UPDATE segment SET runs=7 WHERE id=(SELECT max(id) FROM segment)")
    edit(tmp_path, "UPDATE half SET attempts=attempts+1 WHERE id=1")
    edit(tmp_path, "UPDATE node SET settings='{\"a\":1}' WHERE id=?", queue_id)
    assert len(verify_directory(tmp_path)) >= 13
    repaired = repair(tmp_path)
    assert repaired.left == [] and len(repaired.done) >= 13, repaired
    assert verify_directory(tmp_path) == []
    store = small_store(tmp_path)
    kept = [*range(5), *range(10, 20), *range(40, 400)]
    assert queues(store) == {"orders": kept, "other": []}
    assert [stored(store, number) is not None for number in (0, 1)].count(True) == 1
    do(store, Post(queue_id, messages(400, 1)))


def test_repair_makes_up_nothing(tmp_path: Path) -> None:
    """What would turn into a wrong answer is left, and told: a stream that would begin anew, for one."""
    fill(tmp_path)
    edit(tmp_path, "INSERT INTO stream VALUES (1, 's', '', 1, 5, x'', 0, 0, 77)")
    edit(tmp_path, "UPDATE segment SET runs=7 WHERE id=1")
    repaired = repair(tmp_path)
    assert repaired.done == ["the runs of segments were counted"]
    assert repaired.left == ["queue 1, stream b's': the row does not match its checksum"]
    assert edit(tmp_path, "SELECT seq_no FROM stream") == [(5,)]


def test_repair_gives_runs_of_a_lost_node_their_node_back(tmp_path: Path) -> None:
    """By a name that says so."""
    queue_id = fill(tmp_path)
    edit(tmp_path, "DELETE FROM node WHERE id=?", queue_id)
    repaired = repair(tmp_path)
    assert repaired.left == []
    kept = [*range(5), *range(10, 400)]
    assert queues(small_store(tmp_path)) == {f"damaged.{queue_id}": kept, "other": []}


def test_repair_of_a_whole_store_changes_nothing(tmp_path: Path) -> None:
    """Not an octet."""
    fill(tmp_path)
    before = (tmp_path / DATABASE_NAME).read_bytes()
    assert repair(tmp_path).done == []
    assert (tmp_path / DATABASE_NAME).read_bytes() == before


def test_salvage_of_a_whole_store_brings_out_all_of_it(tmp_path: Path) -> None:
    """Under another id; the old one is as it was."""
    fill(tmp_path / "data")
    before = (tmp_path / "data" / DATABASE_NAME).read_bytes()
    salvaged = salvage(tmp_path / "data", tmp_path / "new", "another")
    assert salvaged.lost == [] and salvaged.repaired.done == salvaged.repaired.left == []
    assert (tmp_path / "data" / DATABASE_NAME).read_bytes() == before
    for table, count in salvaged.rows.items():
        assert edit(tmp_path / "data", f"SELECT count(*) FROM {table}") == [(count,)], table
    assert edit(tmp_path / "new", "SELECT value FROM meta WHERE key='store_id'") == [("another",)]
    kept = [*range(5), *range(10, 400)]
    store = small_store(tmp_path / "new")
    assert queues(store) == {"orders": kept, "other": []} and stored(store, 0) and stored(store, 1)
    with pytest.raises(NodeExists):
        raise next(filter(None, store.apply([[CreateNode("orders", "queue")]])))
    store.abandon()


def test_salvage_reads_around_damaged_pages(tmp_path: Path) -> None:
    """Leaves of the tables of segments and runs, in the midst and at the ends: the others are brought out."""
    queue_id = fill(tmp_path / "data")
    segments = leaves(tmp_path / "data", "segment")
    assert len(segments) > 4, "to have some in the midst"
    overwrite(tmp_path / "data", segments[1], segments[3], segments[-1])
    assert verify_directory(tmp_path / "data")
    salvaged = salvage(tmp_path / "data", tmp_path / "new", "another")
    assert any(words.startswith("segment, rows between") for words in salvaged.lost), salvaged.lost
    assert salvaged.repaired.left == [] and verify_directory(tmp_path / "new") == []
    store = small_store(tmp_path / "new")
    found = queues(store)["orders"]
    assert 0 < len(found) and set(found) <= {*range(5), *range(10, 400)}
    whole = salvaged.rows["segment"]
    assert whole >= 40 - 3 * (40 // len(segments) + 2), f"{whole} of 40, on {len(segments)} leaves"
    assert len(found) >= 10 * whole - 5
    do(store, Post(queue_id, messages(store.recover().nodes[0].next_offset, 1)))


def test_salvage_of_lost_runs_and_nodes(tmp_path: Path) -> None:
    """Without its index nothing of a queue can be told; without its node, its messages can."""
    fill(tmp_path / "data")
    overwrite(tmp_path / "data", *leaves(tmp_path / "data", "node"))
    salvaged = salvage(tmp_path / "data", tmp_path / "new", "another")
    assert [words for words in salvaged.lost if words.startswith("node")]
    kept = [*range(5), *range(10, 400)]
    assert queues(small_store(tmp_path / "new"))["damaged.1"] == kept


def test_salvage_without_the_tables_is_refused(tmp_path: Path) -> None:
    """Nothing is made then, nor where something is already, nor while a broker has the store."""
    fill(tmp_path / "data")
    store = small_store(tmp_path / "data")
    with pytest.raises(StoreInUse):
        salvage(tmp_path / "data", tmp_path / "new", "another")
    store.close()
    with pytest.raises(FileExistsError):
        salvage(tmp_path / "data", tmp_path / "data", "another")
    with pytest.raises(FileNotFoundError):
        salvage(tmp_path / "nothing", tmp_path / "new", "another")
    overwrite(tmp_path / "data", 1)
    with pytest.raises(StoreCorrupt):
        salvage(tmp_path / "data", tmp_path / "new", "another")
    assert not (tmp_path / "new").exists()


def test_salvage_of_a_store_with_a_damaged_log(tmp_path: Path) -> None:
    """What stands before the damage in the log is brought out, and that some is lost is told."""
    killed = Killed(tmp_path)
    damaged = killed.flipped(HEADER + FRAME * (killed.commits()[-3]) + 40)
    before = {path.name: path.read_bytes() for path in damaged.iterdir() if path.name != LOCK_NAME}
    salvaged = salvage(damaged, tmp_path / "new", "another")
    assert len(salvaged.lost) == 1 and "commits" in salvaged.lost[0]
    assert verify_directory(tmp_path / "new") == []
    assert 0 < len(offsets(small_store(tmp_path / "new"), killed.queue_id)) < 2 * POSTS
    assert before == {path.name: path.read_bytes() for path in damaged.iterdir() if path.name != LOCK_NAME}


SALVAGE = """
import sys
from amqp_broker.persistence.salvage import salvage
salvage(sys.argv[1] + "/data", sys.argv[1] + "/new", "another")
"""


@pytest.mark.parametrize("point", ["step", "before_rename"])
def test_a_salvage_that_is_killed_leaves_the_damaged_store_as_it_was(point: str, tmp_path: Path) -> None:
    """And nothing under the name of the new one; it can be done again."""
    fill(tmp_path / "data")
    before = (tmp_path / "data" / DATABASE_NAME).read_bytes()
    killed_at(f"salvage.{point}", 1, SALVAGE, tmp_path)
    assert not (tmp_path / "new").exists()
    assert (tmp_path / "data" / DATABASE_NAME).read_bytes() == before
    assert salvage(tmp_path / "data", tmp_path / "new", "another").lost == []
