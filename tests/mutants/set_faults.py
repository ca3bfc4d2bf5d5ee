"""Seeded faults of half-message sets: what moves, and what was decided about epochs."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

STORE_TESTS: Final = "tests/persistence/test_store_checks.py"
DAMAGE_TESTS: Final = "tests/persistence/test_set_damage.py"
KILL_TESTS: Final = "tests/persistence/test_set_fault_points.py"

FAULTS: Final = (
    Mutant(
        "what moves stays where it was, too",
        "persistence/group_writer.py",
        "        self._unit.execute_many(_DELETE_RUNS, former_rows(self._moved))\n",
        "",
        (f"{KILL_TESTS}::test_kill[epoch.after_commit-7]",),
    ),
    Mutant(
        "what was retired comes back by a move",
        "persistence/moving.py",
        "places.stored(run, run.first, 0, run.count, run.gone if touched is None else touched.gone)",
        "places.stored(run, run.first, 0, run.count, run.gone)",
        (f"{STORE_TESTS}",),
    ),
    Mutant(
        "runs that share a segment are not counted",
        "persistence/group_writer.py",
        "        self._unit.execute_many(_SHARE_SEGMENT, more_runs(self._moved))\n",
        "",
        (f"{DAMAGE_TESTS}::test_checker_counts_the_runs_of_a_segment",),
    ),
    Mutant(
        "a segment that loses two runs at once counts one",
        "persistence/group_writer.py",
        "        leaving = Counter(segment_ids)\n",
        "        leaving = dict.fromkeys(segment_ids, 1)\n",
        (f"{DAMAGE_TESTS}::test_checker_counts_the_runs_of_a_segment",),
    ),
    Mutant(
        "what was returned is forgotten by a move",
        "persistence/moving.py",
        "                target.changed[place] = Return(\n",
        "                {}[place] = Return(\n",
        (f"{STORE_TESTS}",),
    ),
    Mutant(
        "a set with a damaged index moves in part",
        "persistence/moving.py",
        "            if run is None:\n                raise RowDamaged(",
        "            if run is None:\n                continue\n                raise RowDamaged(",
        (f"{DAMAGE_TESTS}::test_a_set_with_a_damaged_index_does_not_move",),
    ),
    Mutant(
        "a decision is written by a commit of its own",
        "persistence/ledger.py",
        "        if changes.decisions:\n            self.epochs.write(changes.decisions)\n",
        "        if changes.decisions:\n            self._unit.commit()\n            self._unit.begin()\n"
        "            self.epochs.write(changes.decisions)\n",
        (f"{KILL_TESTS}::test_kill[epoch.before_record-7]",),
    ),
    Mutant(
        "a damaged decision is believed",
        "persistence/epoch_table.py",
        "            if not is_sound(epoch_checksum, row):\n",
        "            if not row:\n",
        (f"{DAMAGE_TESTS}::test_damaged_decisions_are_told_and_never_believed",),
    ),
    Mutant(
        "a damaged row of a node, hence a seal, is believed",
        "persistence/node_rows.py",
        "    damaged = [row for row in rows if not is_sound(node_checksum, row)]\n",
        "    return []\n    damaged = []\n",
        ("tests/persistence/test_node_rows.py::test_a_damaged_row_is_put_away",),
    ),
    Mutant(
        "an epoch may be decided twice",
        "persistence/half_changes.py",
        "assert key not in self.decisions and not self._is_decided(*key), ",
        "assert key, ",
        (f"{STORE_TESTS}",),
    ),
    Mutant(
        "decisions are kept for ever",
        "persistence/epoch_table.py",
        "        self._unit.execute_many(_FORGET, [(*producer, KEEP_DECISIONS) for producer in producers])\n",
        "",
        (f"{STORE_TESTS}",),
    ),
)
