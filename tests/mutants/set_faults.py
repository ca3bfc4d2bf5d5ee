"""Seeded faults of half-message sets: what moves, and what was decided about epochs."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

STORE_TESTS: Final = "tests/persistence/test_store_suite.py"
DAMAGE_TESTS: Final = "tests/persistence/test_set_damage.py"
KILL_TESTS: Final = "tests/crash/store/test_set_fault_points.py"
PREPARED_TESTS: Final = "tests/amqp_broker/test_half_sets_prepared.py"
ENLISTED_TESTS: Final = "tests/amqp_broker/test_half_sets_enlisted.py"

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
        (f"{DAMAGE_TESTS}::test_verification_counts_the_runs_of_a_segment",),
    ),
    Mutant(
        "a segment that loses two runs at once counts one",
        "persistence/group_writer.py",
        "        leaving = Counter(segment_ids)\n",
        "        leaving = dict.fromkeys(segment_ids, 1)\n",
        (f"{DAMAGE_TESTS}::test_verification_counts_the_runs_of_a_segment",),
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
        "            found = EPOCH.value(row)\n",
        "            found = EPOCH.made(row)\n",
        (f"{DAMAGE_TESTS}::test_damaged_decisions_are_told_and_never_believed",),
    ),
    Mutant(
        "a damaged row of a node, hence a seal, is believed",
        "persistence/quarantine.py",
        "    damaged = [row for row in rows if not NODE.is_sound(row)]\n",
        "    return []\n    damaged = []\n",
        ("tests/persistence/test_node_rows.py::test_a_damaged_row_is_put_away",),
    ),
    Mutant(
        "a decision has a commit of its own, after that of its messages",
        "persistence/sqlite_store.py",
        "        if group.halves is not None:\n            self._next_half",
        "        if group.halves is not None and group.halves.decisions:\n            self._unit.commit()\n"
        "            self._unit.begin()\n"
        "        if group.halves is not None:\n            self._next_half",
        ("tests/power_loss/test_power_loss.py::test_no_power_cut_parts_an_epoch_from_its_decision",),
    ),
    Mutant(
        "an epoch that is refused alone leaves a hole in a queue that retains",
        "amqp_broker/half_sets/deciding.py",
        "            self._set(queue, next_offset=first_offset + part.count)\n",
        "            queue.next_offset = first_offset + part.count\n",
        ("tests/amqp_broker/test_half_sets_damage.py::test_a_commit_that_is_refused_alone_leaves_no_hole",),
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
    Mutant(
        "any commit ends prepared sets",
        "coordinator/half_sets.py",
        "    blocked = _judge_prepared(producer, epoch, coordinator)\n",
        "    blocked = None\n",
        (
            f"{PREPARED_TESTS}::test_no_other_commit_voids_a_prepared_set",
            f"{PREPARED_TESTS}::test_earlier_epochs_come_first",
        ),
    ),
    Mutant(
        "an age ends prepared sets",
        "amqp_broker/half_sets/half_sets.py",
        "            if staged.state is SetState.PREPARED:\n                staged.deadline_ms = NEVER_MS\n",
        "            if staged.state is SetState.PREPARED:\n                staged.state = SetState.SEALED\n",
        (f"{PREPARED_TESTS}::test_it_is_prepared_after_a_restart",),
    ),
    Mutant(
        "whose a prepared set is, is not stored",
        "amqp_broker/half_sets/settings.py",
        '        settings["home"] = staged.coordinator  # as stores of every version have it\n',
        "        pass\n",
        (f"{PREPARED_TESTS}::test_it_is_prepared_after_a_restart",),
    ),
    Mutant(
        "the outcome of a check ends what is asked about a prepared set",
        "amqp_broker/halves/checking.py",
        "                group.attempted(half, now_ms)\n",
        "",
        (f"{PREPARED_TESTS}::test_rejected_by_outcome_does_not_end_it",),
    ),
    Mutant(
        "another decision than the coordinator's is taken for the same",
        "amqp_broker/half_sets/deciding.py",
        "            if decided != chosen:\n",
        "            if not decided:\n",
        (f"{PREPARED_TESTS}::test_who_says_otherwise_than_before_is_told",),
    ),
    Mutant(
        "the coordinator's vote is forgotten at a restart",
        "amqp_broker/half_sets/enlisting.py",
        "settings_of(part, voided_at_ms=now_ms)",
        "settings_of(part)",
        (f"{ENLISTED_TESTS}::test_a_word_is_kept_over_a_restart",),
    ),
    Mutant(
        "coordinator votes about what it may have forgotten",
        "amqp_broker/half_sets/enlisting.py",
        "        elif self.half_sets.may_have_forgotten(self.producer, epoch):\n",
        "        elif False:\n",
        (f"{ENLISTED_TESTS}::test_no_word_about_what_may_be_forgotten",),
    ),
    Mutant(
        "coordinator gives no lasting word about sets that it does not know",
        "amqp_broker/half_sets/enlisting.py",
        "        for set_id in absent:\n",
        "        for set_id in ():\n",
        (f"{ENLISTED_TESTS}::test_a_word_is_kept",),
    ),
    Mutant(
        "where a winner is, is not in the decision",
        "amqp_broker/half_sets/deciding.py",
        "    return (*known, winner.store) if winner.store else known\n",
        "    return known\n",
        (f"{ENLISTED_TESTS}::test_it_wins_like_any_other",),
    ),
)
